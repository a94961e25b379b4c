"""`toolsd serve`: the daemon, in the foreground."""

from __future__ import annotations

import os

import click

from toolsd import __version__, config
from toolsd.cli import output
from toolsd.cli.app import global_options, json_option, settings
from toolsd.errors import NameCollision
from toolsd.service import Service
from toolsd.telemetry import logs


class _Start:
    """What `serve` says when every source was looked at. A collision of tool names ends the daemon."""

    def __init__(self) -> None:
        self.collision: NameCollision | None = None

    def ready(self, service: Service) -> None:
        sources = service.core.snapshot().sources
        refused = [source for source in sources if source.state == "refused"]
        if refused:
            texts = [source.failure.message if source.failure else source.name for source in refused]
            self.collision = NameCollision("\n".join(texts), hint="rename one of the tools")
            service.stop()
            return
        failed = [source for source in sources if source.failure is not None]
        counts = {"sources": len(sources) - len(failed), "tools": len(service.core.tools())}
        if settings().json:
            ready = {"ready": True, "version": __version__, "pid": os.getpid(), "address": service.place.address}
            output.json({**ready, **counts, "failed": [source.name for source in failed]}, flush=True)
            return
        for source in failed:
            assert source.failure is not None
            output.complain(f"source {source.name} is not available: {source.failure.message}")
        output.say(
            f"toolsd {__version__} is ready: pid {os.getpid()}, {plural(counts['sources'], 'source')}, "
            f"{plural(counts['tools'], 'tool')}, socket {service.place.path}",
            flush=True,
        )


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


@click.command()
@json_option
@global_options
def command() -> int:
    """Run the daemon in the foreground until SIGTERM, Ctrl-C or `toolsd stop`.

    Prints one line when it is ready. The first signal lets running turns finish, the second one ends it at once.
    """
    from toolsd import daemon

    options = settings()
    loaded = config.load(options.config)
    logs.to_stderr(options.verbosity)
    start = _Start()
    status = daemon.serve(
        loaded.sources,
        options.socket or loaded.daemon.socket,
        stop_timeout=loaded.daemon.stop_timeout,
        on_ready=start.ready,
    )
    if start.collision is not None:
        raise start.collision
    return status
