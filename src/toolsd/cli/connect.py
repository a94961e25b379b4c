"""The client a verb works with: of the daemon, or of a coordinator embedded for this one command.

Owns the rule which of the two: `--config` embeds one, except for verbs that are about the daemon itself. There it says
whose daemon: `[daemon] socket` of that file is where it listens.
"""

from __future__ import annotations

import click

from toolsd import config, runtime
from toolsd.cli.app import settings
from toolsd.client import Client
from toolsd.errors import ConfigError, ToolsdError
from toolsd.telemetry import logs


def client() -> Client:
    """For verbs that use tools: `call`, `turn`, `tools`."""
    options = settings()
    if options.config is not None:
        logs.to_stderr(options.verbosity - 1)  # one step quieter than a daemon: nobody came to read a log
        return Client.local(options.config)
    return daemon()


def daemon() -> Client:
    """For verbs about the daemon: `ps`, `stop`."""
    return Client.connect(runtime.address_of(runtime.socket_path(address())))


def address() -> str | None:
    """Where the daemon listens: `--socket`, else what the configuration says, else None for the usual place."""
    options = settings()
    if options.socket is not None:
        return options.socket
    if options.config is not None:
        return config.load(options.config, allow_unsandboxed=True).daemon.socket
    try:
        return config.load(allow_unsandboxed=True).daemon.socket
    except ConfigError:  # none here, or one that `check` has something to say about; the usual place is still there
        return None


def complete_tools(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Tool names for the shell's completion; none if no daemon answers at once."""
    try:
        with context, Client.connect(runtime.address_of(runtime.socket_path(address())), timeout=1.0) as connected:
            return [tool.name for tool in connected.tools() if tool.name.startswith(incomplete)]
    except ToolsdError:
        return []
