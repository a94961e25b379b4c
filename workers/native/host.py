"""The Host of a shared library.

Owns one loaded library and gives it its batches, blocking, on the worker's main thread. Must not know sockets,
processes or messages, nor what the structs look like in memory (`abi`).

While the library runs, the signal that asks a blocked batch to stop waits: its handler would raise in whatever
callback the library makes next, where an exception can go nowhere. The library asks `cancelled` instead.
"""

from __future__ import annotations

import ctypes
import signal

from toolsd import signals
from toolsd.host import BatchCancelled, HostBatch, HostCall, Manifest
from toolsd.launch import Launch

from ..declared import settled
from . import abi
from .batch import NativeBatch
from .loading import Loaded, load


class BatchFailed(Exception):
    """The library's invoke_batch said that the batch failed as a whole."""


class NativeHost:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._loaded: Loaded | None = None
        self._allocator = abi.allocator()
        self._places: dict[str, int] = {}

    def load(self) -> Manifest:
        self._loaded = load(self._launch.path)
        self._places = {tool.name: at for at, tool in enumerate(self._loaded.tools)}
        return Manifest(settled(self._loaded.tools, self._launch.tools))

    def start(self) -> None:
        return None

    def run(self, batch: HostBatch) -> None:
        assert self._loaded is not None
        source = self._loaded.source
        given: list[HostCall] = list(batch.calls)
        running = NativeBatch(batch, given, self._places, self._launch.result_max)
        if not source.flags & abi.TELLS:
            for call in given:
                batch.started(call.slot)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signals.CANCEL,))
        try:
            answer = source.invoke_batch(
                source.state,
                ctypes.byref(running.context),
                running.calls,
                running.results,
                len(given),
                ctypes.byref(self._allocator),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signals.CANCEL,))
        running.collect()
        if answer != 0:
            if batch.cancelled:
                raise BatchCancelled
            raise BatchFailed(f"{running.reason or 'it did not say why (toolsd_context.fail can)'} (status {answer})")
        if batch.cancelled and not running.complete:
            raise BatchCancelled

    def close(self) -> None:
        if self._loaded is not None and self._loaded.source.deinit:
            self._loaded.source.deinit(self._loaded.source.state)
