"""A coordinator inside this process: the same Service, on a thread of its own, at a private place.

Owns the thread. Must not know turns or clients: a client connects to `address` as it would to a daemon.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolsd.errors import UsageError
from toolsd.runtime import Place

if TYPE_CHECKING:
    import asyncio

    from toolsd.config import Config
    from toolsd.service import Service


# How long the thread may take to end once nothing is waited for any more; it is left behind then. Seconds.
_FAREWELL = 10.0


class Embedded:
    """Started at most once, stopped at the latest when the interpreter ends."""

    def __init__(self, config: str | os.PathLike[str] | None, allow_unsandboxed: bool) -> None:
        self._config = config
        self._allow_unsandboxed = allow_unsandboxed
        self._guard = threading.Lock()
        self._running: _Running | None = None
        self._finalizer: weakref.finalize[[], Embedded] | None = None

    @property
    def address(self) -> str:
        if self._running is None:
            raise UsageError("the local coordinator was not started yet", hint="open() the client first")
        return self._running.place.address

    def start(self) -> None:
        """Start and wait until it is ready (see `Service`). Idempotent.

        Raises:
            ConfigError: the configuration has mistakes, names collide, or a required source does not start.
            UsageError: it was started by the process this one was forked from.
        """
        with self._guard:
            if self._running is not None:
                self._running.check_process()
                return
            from toolsd import config  # here: a client of a daemon needs no configuration and no service

            loaded = config.load(self._config, allow_unsandboxed=self._allow_unsandboxed)
            running = _Running(Place.private(), loaded)
            running.start()
            self._running = running
            self._finalizer = weakref.finalize(self, running.stop)

    def stop(self) -> None:
        """Let the sources close, end the workers and the thread, remove the files. Idempotent.

        What still runs has the configuration's `stop_timeout` to end; Ctrl-C meanwhile ends it at once.
        """
        if self._finalizer is not None:
            self._finalizer()


_running: set[_Running] = set()
_registered = False


def _stop_at_exit(running: _Running) -> None:
    """Have it stopped when the interpreter ends, while threads can still be started.

    `atexit` comes too late: thread pools take no work any more. What is registered here runs before that, last first;
    the pools' own end was registered when their module was imported.
    """
    global _registered
    _running.add(running)
    if not _registered:
        _registered = True
        importlib.import_module("concurrent.futures.thread")
        threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


def _stop_all() -> None:
    for each in tuple(_running):
        each.stop()


class _Running:
    def __init__(self, place: Place, loaded: Config) -> None:
        self.place = place
        self._loaded = loaded
        self._pid = os.getpid()
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._service: Service | None = None
        self._unwanted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="toolsd-coordinator", daemon=True)

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise UsageError(
                f"this client's coordinator lives in process {self._pid}, not in its fork {os.getpid()}",
                hint="make a local client in the child",
            )

    def start(self) -> None:
        _stop_at_exit(self)
        self._thread.start()
        try:
            self._ready.wait()
        except BaseException:  # Ctrl-C while sources start
            self.stop()
            raise
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    def stop(self) -> None:
        if os.getpid() != self._pid:
            return
        self._unwanted = True  # should the thread not have got as far as its service
        if self._service is not None:
            self._have(self._service.drain)
        if threading.current_thread() is self._thread:
            return  # where the garbage collector found the client unused; it ends by itself now
        try:
            self._thread.join(self._loaded.daemon.stop_timeout + _FAREWELL)
        except BaseException:  # Ctrl-C: not even the sources are waited for
            if self._service is not None:
                self._have(self._service.stop)
            self._thread.join(_FAREWELL)
            raise

    def _have(self, done: Callable[[], None]) -> None:
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop has just ended by itself
                self._loop.call_soon_threadsafe(done)

    def _main(self) -> None:
        import asyncio

        try:
            with self.place:
                asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits in `start`
            self._failed = error
        finally:
            self._ready.set()
            _running.discard(self)

    async def _serve(self) -> None:
        import asyncio

        from toolsd.service import Service

        self._loop = asyncio.get_running_loop()
        self._service = Service(
            self._loaded.sources,
            self.place,
            stop_timeout=self._loaded.daemon.stop_timeout,
            configuration=self._loaded,
            on_ready=self._tell,
        )
        if self._unwanted:
            self._service.stop()
        await self._service.run()

    def _tell(self, service: Service) -> None:
        self._ready.set()
