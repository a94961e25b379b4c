"""The worker runtime: what runs in a worker process around a Host.

Owns the worker's end of the link, the order of its life (greet, load, ready, batches, close) and how a batch is
stopped. Knows no kind of source: a Host is found by its name and only asked what `toolsd.host` says.

Theory of operation. A source that blocks runs on the main thread, one batch at a time, and the same thread waits for
the next message; while a batch runs, the socket belongs to the batch, whose lock orders the threads that send through
it (libzmq allows a socket to change threads across a memory barrier). An asynchronous source gets an event loop, a
task for each batch, and a socket that only the loop's thread touches.

Cancel reaches an asynchronous batch as a message, which cancels its task. Blocked code cannot read messages, so the
node also sends a signal: its handler looks into the flight recorder whether the batch that runs *now* is the one to
stop, so a late signal never hits the next batch, and raises `BatchCancelled` in it, once.
"""

from __future__ import annotations

import asyncio
import contextvars
import faulthandler
import importlib
import inspect
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from toolsd import codec, flight, signals, transport
from toolsd.errors import LocalProtocolError
from toolsd.host import BatchCancelled, Host, Manifest, SourceLoadError
from toolsd.launch import Launch
from toolsd.launcher import Descriptors
from toolsd.memory import Memory
from toolsd.messages import (
    PROTOCOL_VERSION,
    TO_WORKER,
    Batch,
    Bye,
    CancelBatch,
    Deinit,
    Hello,
    Message,
    Ready,
    Refused,
    StartFailed,
)
from toolsd.running import RunningBatch
from toolsd.sandbox import mercy
from toolsd.transport import Port

_EXIT_BROKEN = 1  # the source does not load, does not close, or memory ran out: the evidence says which
_EXIT_REFUSED = 76
# How long one look for room in the node's queue lasts; there is always another. Seconds.
_PATIENCE = 60.0
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
_decoder = codec.Decoder(TO_WORKER)
_in_batch: contextvars.ContextVar[RunningBatch | None] = contextvars.ContextVar("batch", default=None)


def run(source: str, launch: Launch, fds: Descriptors) -> int:
    """Be a worker until the end; gives the exit status. Called in a process that the sandbox has confined."""
    sys.argv = [launch.path]
    mercy.enter(launch)
    for stream in (sys.stdout, sys.stderr):  # what is printed before a death should be seen
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    writer = flight.Writer(fds.recorder)
    faulthandler.enable(file=fds.recorder)
    faulthandler.register(signals.STACKS, file=fds.recorder, all_threads=True)
    ctx = transport.context(sockets=8)
    socket = transport.inherited_dealer(ctx, fds.listener, "ipc:///worker")
    worker = _Worker(launch, writer, socket, fds.memory)
    try:
        return worker.live(source)
    except SystemExit as leaving:
        return _status(leaving)
    finally:
        socket.close()
        ctx.term()  # waits for the last words, for as long as the socket lingers


class _Worker:
    def __init__(self, launch: Launch, writer: flight.Writer, socket: transport.Socket, memory: int) -> None:
        self._launch = launch
        self._writer = writer
        self._socket = socket
        # How a message goes out; a loop puts its port's way here, for a send can swallow what the loop waits for.
        self.put: Callable[[list[Any]], bool] = partial(transport.send, socket)
        self._main = threading.get_ident()
        self._memory = Memory(memory, launch.limits.memory)
        self._batch: RunningBatch | None = None  # the one that blocks the main thread
        self._shielded = False  # the main thread is in the middle of a message
        self._deferred = False
        signal.signal(signals.CANCEL, self._cancel_signal)

    def live(self, source: str) -> int:
        self._send(codec.encode(Hello((PROTOCOL_VERSION,), source, os.getpid())))
        try:
            module = importlib.import_module(f"toolsd_workers.{self._launch.kind}")
            host: Host = module.make_host(self._launch)
            manifest = host.load()
        except BaseException as error:  # noqa: BLE001  # whatever a source does while loading is its load failure
            return self._start_failed(error)
        if manifest.asynchronous:
            return _Asynchronous(self, host, manifest).serve()
        try:
            host.start()
            self._send(_ready(manifest))
        except BaseException as error:  # noqa: BLE001
            return self._start_failed(error)
        return self._serve(host)

    # --- a source that blocks ---------------------------------------------------------------------------------------

    def _serve(self, host: Host) -> int:
        while True:
            frames = transport.await_message(self._socket)
            message = _decoder.decode(frames[0])
            match message:
                case Batch():
                    region = self._region(message)
                    self._run(host, RunningBatch(message, frames[1:], region, self._send, self._memory.is_used_up))
                case Deinit():
                    return self._close(host)
                case Refused():
                    return refused(message)
                case _:  # a CANCEL that came too late, or a kind of a later version
                    pass

    def _run(self, host: Host, batch: RunningBatch) -> None:
        error: BaseException | None = None
        try:
            self._batch = batch
            try:
                if batch.cancelled:  # its signal came before the batch was taken, and found nothing to stop
                    raise BatchCancelled
                host.run(batch)
            except BaseException as raised:  # noqa: BLE001  # SystemExit and MemoryError are looked at below
                error = raised
            self._batch = None
        except BatchCancelled as cancelled:  # the signal came in the instant in which the batch ended by itself
            self._batch = None
            error = error or (None if batch.complete else cancelled)
        self.end(batch, error)

    def end(self, batch: RunningBatch, error: BaseException | None) -> None:
        """Answer for a batch that is over; leave if it means the end of the worker."""
        if isinstance(error, SystemExit):
            raise error
        if isinstance(error, MemoryError):
            self._leave_if_exhausted(error)
        self._send(batch.close(error))

    def _close(self, host: Host) -> int:
        try:
            host.close()
        except Exception:  # noqa: BLE001  # it is leaving anyway; its output tells
            traceback.print_exc()
            return _EXIT_BROKEN
        self._send(codec.encode(Bye()))
        return 0

    # --- both kinds -------------------------------------------------------------------------------------------------

    def _region(self, message: Batch) -> flight.Region:
        return self._writer.regions[message.region]

    def _send(self, frames: list[Any]) -> None:
        """Send, waiting for the node to read if it must; a cancel signal waits until the message is whole."""
        main = threading.get_ident() == self._main
        if main:
            self._shielded = True
        self._writer.sending()
        while not self.put(frames):
            transport.wait_sendable(self._socket, _PATIENCE)
        if main:
            self._shielded = False
            if self._deferred:
                self._deferred = False
                self._interrupt(self._batch)

    def _start_failed(self, error: BaseException) -> int:
        if isinstance(error, SourceLoadError):
            message = str(error)
        elif isinstance(error, SystemExit):
            message = f"the source called sys.exit({error.code!r}) while it was loading"
        else:
            what = "".join(traceback.format_exception_only(error)).strip()
            message = f"an error came out of the source while it was loading: {what}"
        hint = mercy.hint(error)
        message = f"{message} ({hint})" if hint is not None else message
        detail = "".join(traceback.format_exception(error))[-16_384:]
        self._send(codec.encode(StartFailed(message, detail)))
        return _status(error) or _EXIT_BROKEN if isinstance(error, SystemExit) else _EXIT_BROKEN

    def _cancel_signal(self, _number: int, frame: FrameType | None) -> None:
        batch = self._batch or (_in_batch.get() if _in_coroutine(frame) else None)
        if self._shielded:
            self._deferred = True
        else:
            self._interrupt(batch)

    def _interrupt(self, batch: RunningBatch | None) -> None:
        if batch is not None and batch.cancelled and not batch.interrupted:
            batch.interrupted = True
            raise BatchCancelled

    def _leave_if_exhausted(self, error: MemoryError) -> None:
        """Turn a MemoryError that came out of a batch into the end of the worker, if memory really was used up."""
        if self._memory.is_used_up():
            self._writer.out_of_memory(
                f"MemoryError with {self._memory.peak()} bytes used at the peak; limits.memory is {self._memory.limit}"
            )
            traceback.print_exception(error)
            raise SystemExit(_EXIT_BROKEN)


class _Asynchronous:
    """The loop of an asynchronous source: a task for each batch; only the loop's thread touches the socket."""

    def __init__(self, worker: _Worker, host: Host, manifest: Manifest) -> None:
        self._worker = worker
        self._host = host
        self._manifest = manifest
        self._loop = asyncio.new_event_loop()
        self._outbox: deque[list[Any]] = deque()
        self._tasks: dict[int, tuple[RunningBatch, asyncio.Task[None]]] = {}
        self._over: asyncio.Future[int] = self._loop.create_future()

    def serve(self) -> int:
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(self._live())

    async def _live(self) -> int:
        worker = self._worker
        try:
            starting = self._host.start()
            if starting is not None:
                await starting
            worker._send(_ready(self._manifest))
        except BaseException as error:  # noqa: BLE001
            return worker._start_failed(error)
        port = Port(self._loop, worker._socket, self._on_frames)
        worker.put = port.send
        try:
            return await self._over
        finally:
            port.detach()

    def _on_frames(self, frames: list[Any]) -> None:
        message: Message | None = _decoder.decode(frames[0])
        match message:
            case Batch():
                worker = self._worker
                region = worker._region(message)
                batch = RunningBatch(message, frames[1:], region, self._send, worker._memory.is_used_up)
                self._tasks[batch.id] = (batch, self._loop.create_task(self._run(batch)))
            case CancelBatch():
                if message.batch in self._tasks:
                    batch, task = self._tasks[message.batch]
                    batch.cancel()
                    if batch.began:  # a task that is cancelled before its first step would never answer
                        task.cancel()
            case Deinit():
                self._closing = self._loop.create_task(self._close())
            case Refused():
                self._over.set_result(refused(message))
            case _:
                pass

    async def _run(self, batch: RunningBatch) -> None:
        error: BaseException | None = None
        batch.began = True
        try:
            _in_batch.set(batch)
            try:
                if batch.cancelled:
                    raise BatchCancelled
                running = self._host.run(batch)
                if running is not None:
                    await running
            except BaseException as raised:  # noqa: BLE001  # SystemExit and MemoryError are looked at by `end`
                error = raised
            _in_batch.set(None)
        except BatchCancelled as cancelled:  # as in `_Worker._run`
            _in_batch.set(None)
            error = error or (None if batch.complete else cancelled)
        del self._tasks[batch.id]
        if isinstance(error, asyncio.CancelledError) and batch.cancelled:
            error = BatchCancelled()
        self._flush()
        self._worker.end(batch, error)

    async def _close(self) -> None:
        try:
            closing = self._host.close()
            if inspect.isawaitable(closing):
                await closing
        except Exception:  # noqa: BLE001  # it is leaving anyway; its output tells
            traceback.print_exc()
            self._over.set_result(_EXIT_BROKEN)
            return
        self._send(codec.encode(Bye()))
        self._over.set_result(0)

    def _send(self, frames: list[Any]) -> None:
        """Send from any thread, in order: what another thread hands over leaves before what the loop sends next."""
        self._outbox.append(frames)
        if threading.get_ident() == self._worker._main:
            self._flush()
        else:
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        while self._outbox:
            self._worker._send(self._outbox.popleft())


def _in_coroutine(frame: FrameType | None) -> bool:
    """Whether a coroutine runs, and not only the loop: what is raised in the loop's own callbacks, which carry the
    context of a batch too, is swallowed there, with whatever the callback was to bring about.
    """
    while frame is not None and frame.f_code is not asyncio.Handle._run.__code__:
        if frame.f_code.co_flags & _COROUTINE:
            return True
        frame = frame.f_back
    return False


def _ready(manifest: Manifest) -> list[Any]:
    try:
        return codec.encode(Ready(manifest.tools, manifest.reentrant and manifest.asynchronous))
    except LocalProtocolError as error:
        raise SourceLoadError(f"the declared tools cannot be sent: {error.message}") from error


def refused(message: Refused) -> int:
    print(f"refused by the node: {message.message}", file=sys.stderr)  # noqa: T201  # kept as evidence
    return _EXIT_REFUSED


def _status(leaving: SystemExit) -> int:
    """The exit status that `sys.exit` asked for."""
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    print(leaving.code, file=sys.stderr)  # noqa: T201  # as the interpreter does
    return 1
