"""`toolsd serve` without its face: a coordinator in the foreground of this process, until a signal or a client ends it.

Owns the process-wide settings of a daemon: signals, the limit on open files, the umask around its socket, how often
cycles of garbage are looked for. Must not know configuration files or how anything is shown.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
from collections.abc import Sequence
from typing import Any

from toolsd.config import Config
from toolsd.core.model import SourceSpec
from toolsd.runtime import Place
from toolsd.service import OnService, Service

_log = logging.getLogger("toolsd")


def serve(
    sources: Sequence[SourceSpec],
    address: str | None = None,
    *,
    stop_timeout: float = 20.0,
    configuration: Config | None = None,
    on_ready: OnService | None = None,
) -> int:
    """Serve `sources` at `address` (None: this user's daemon). Returns the exit status.

    SIGTERM and SIGINT drain: what runs may finish, for `stop_timeout` seconds. The second signal ends at once, and the
    status is 128 + that signal, as a shell has it. SIGHUP has the `configuration` read again, if there is one.

    Raises:
        AlreadyRunning: another process serves this address.
        ConfigError: the address cannot be used, names collide, or a required source does not start.
    """
    _raise_open_files()
    # What is loaded stays; what turns make dies by reference count. A daemon need not look for cycles as often as that.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    os.umask(0o077)  # the socket is made by a library, with what the umask leaves
    with Place.claim(address) as place:
        return asyncio.run(_serve(sources, place, stop_timeout, configuration, on_ready))


async def _serve(
    sources: Sequence[SourceSpec],
    place: Place,
    stop_timeout: float,
    configuration: Config | None,
    on_ready: OnService | None,
) -> int:
    service = Service(sources, place, stop_timeout=stop_timeout, configuration=configuration, on_ready=on_ready)
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        if len(received) == 1:
            _log.info("draining: open turns may finish within %g s; a second signal ends them now", stop_timeout)
            service.drain()
        else:
            service.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, service.reload, _reloaded)
    await service.run()
    return 128 + received[1] if len(received) > 1 else 0


def _reloaded(body: dict[str, Any]) -> None:
    """A signal has nobody to answer to but the log. What the core refuses, it has logged itself."""
    changed = [f"{change['kind']} {change['stanza']}" for change in body["changes"] if change["kind"] != "unchanged"]
    if body["published"]:
        _log.info("reloaded: %s", ", ".join(changed) or "nothing had changed")
    elif not body["changes"]:
        _log.warning("reload refused, nothing was changed: %s", body["refused"])


def _raise_open_files() -> None:
    """A client is one descriptor and a worker several: take what the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
