"""`toolsd serve`: the daemon, in the foreground."""

from __future__ import annotations

import os

import click

from toolsd import __version__, config
from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.output import plural
from toolsd.core.snapshot import SourceView
from toolsd.errors import ConfigError, NameCollision
from toolsd.service import Service
from toolsd.telemetry import logs


class _Start:
    """What `serve` says when every source was looked at, or why the daemon has to end then."""

    def __init__(self) -> None:
        self.refused: ConfigError | None = None

    def ready(self, service: Service) -> None:
        sources = service.core.snapshot().sources
        failed = [source for source in sources if source.failure is not None]
        self.refused = _refusal(failed)
        if self.refused is not None:
            service.stop()
            return
        # Whoever started it may not read on; that is no reason not to serve.
        try:
            _tell(service, [source.name for source in failed], len(sources) - len(failed))
        except OSError:
            output.abandon_stdout()


def _tell(service: Service, failed: list[str], sources: int) -> None:
    """The ready line."""
    tools, pid = len(service.core.tools()), os.getpid()
    if settings().json:
        output.json(
            {
                "ready": True,
                "version": __version__,
                "pid": pid,
                "address": service.place.address,
                "sources": sources,
                "tools": tools,
                "failed": failed,
            },
            flush=True,
        )
        return
    output.say(
        f"toolsd {__version__} is ready: pid {pid}, {plural(sources, 'source')}, {plural(tools, 'tool')}, "
        f"socket {service.place.path}" + (f"; not available: {', '.join(failed)}" if failed else ""),
        flush=True,
    )


def _refusal(failed: list[SourceView]) -> ConfigError | None:
    """A collision of tool names ends the daemon, and so does a required source that is not there."""
    collisions = [source.failure.message for source in failed if source.failure and source.state == "refused"]
    if collisions:
        return NameCollision("; ".join(collisions))
    missing = [source.failure.message for source in failed if source.failure and source.required]
    return ConfigError(f"a required source is missing: {'; '.join(missing)}") if missing else None


@click.command()
@json_option
@global_options
@click.option(
    "--allow-unsandboxed", is_flag=True, help='Let sources whose mode is "off" run with all rights of this user.'
)
def command(allow_unsandboxed: bool) -> int:
    """Run the daemon in the foreground until SIGTERM, Ctrl-C or `toolsd stop`.

    Prints one line when it is ready. The first signal lets running turns finish, the second one ends it at once.
    """
    from toolsd import daemon

    options = settings()
    loaded = config.load(options.config, allow_unsandboxed=allow_unsandboxed)
    logs.to_stderr(options.verbosity)
    start = _Start()
    status = daemon.serve(
        loaded.sources,
        options.socket or loaded.daemon.socket,
        stop_timeout=loaded.daemon.stop_timeout,
        on_ready=start.ready,
    )
    if start.refused is not None:
        raise start.refused
    return status
