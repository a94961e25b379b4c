"""`toolsd serve`: the daemon, in the foreground."""

from __future__ import annotations

import os

import click

from toolsd import __version__, config
from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.cli.output import plural
from toolsd.service import Service
from toolsd.telemetry import logs


def _ready(service: Service) -> None:
    # Whoever started it may not read on; that is no reason not to serve.
    try:
        _tell(service)
    except OSError:
        output.abandon_stdout()


def _tell(service: Service) -> None:
    """The ready line."""
    views = service.core.snapshot().sources
    failed = [source.name for source in views if source.failure is not None]
    starting = [source.name for source in views if source.state == "discovering"]
    sources = len(views) - len(failed) - len(starting)
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
                "starting": starting,
            },
            flush=True,
        )
        return
    output.say(
        f"toolsd {__version__} is ready: pid {pid}, {plural(sources, 'source')}, {plural(tools, 'tool')}, "
        f"socket {service.place.path}"
        + (f"; still starting: {', '.join(starting)}" if starting else "")
        + (f"; not available: {', '.join(failed)}" if failed else ""),
        flush=True,
    )


@click.command()
@json_option
@global_options
@click.option(
    "--allow-unsandboxed", is_flag=True, help='Let sources whose mode is "off" run with all rights of this user.'
)
def command(allow_unsandboxed: bool) -> int:
    """Run the daemon in the foreground until SIGTERM, Ctrl-C or `toolsd stop`.

    Prints one line when it is ready. The first signal lets running turns finish, the second one ends it at once.
    SIGHUP has it read its configuration again, as `toolsd reload` does.
    """
    from toolsd import daemon

    options = settings()
    loaded = config.load(options.config, allow_unsandboxed=allow_unsandboxed)
    logs.to_stderr(options.verbosity)
    return daemon.serve(
        loaded.sources,
        options.socket or loaded.daemon.socket,
        stop_timeout=loaded.daemon.stop_timeout,
        configuration=loaded,
        on_ready=_ready,
    )
