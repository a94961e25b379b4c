"""One worker's link as its node sees it: the socket, what was sent and came back, and whether that is the protocol.

Owns the DEALER, the listening socket until the worker has answered, and the batches in flight. Turns frames into core
events. Knows no process: births, deaths and kills are the node's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any

from toolsd import codec, transport
from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    Event,
    ProgressReported,
    SlotsFilled,
    WorkerMisbehaved,
    WorkerReady,
    WorkerStartFailed,
)
from toolsd.core.instructions import SendBatch
from toolsd.errors import CallState, PeerProtocolError
from toolsd.messages import (
    FROM_WORKER,
    PROTOCOL_VERSION,
    Batch,
    BatchDone,
    Bye,
    CallProgress,
    CancelBatch,
    Deinit,
    Hello,
    Message,
    Partial,
    Ready,
    StartFailed,
    WireCall,
)
from toolsd.transport import Port

# What `BatchDone.failure` may say; anything else would let a worker speak for the coordinator.
_BATCH_FAILURES = frozenset({"batch_raised", "results_incomplete", "protocol_violation", "turn_cancelled"})
_decoder = codec.Decoder(FROM_WORKER)


class InFlight:
    """A batch the worker holds: its region in the flight recorder, its tools by slot, and which slots are filled."""

    __slots__ = ("filled", "open", "region", "tools")

    def __init__(self, region: int, tools: tuple[str, ...]) -> None:
        self.region = region
        self.tools = tools
        self.filled = bytearray(len(tools))
        self.open = len(tools)


class Link:
    """The node's end.

    `received` counts messages, for comparison with what the worker announced; `closed`: no further ones will come.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ctx: transport.Context,
        directory: int,
        worker: int,
        *,
        emit: Callable[[Event], None],
        states: Callable[[InFlight, int], tuple[CallState, ...]],
        on_closed: Callable[[], None],
        lasting: Callable[[], bool],
    ) -> None:
        """`directory` is a descriptor of the 0700 directory for sockets; `on_closed` tells that the link broke.

        `states` reads in the flight recorder how far the calls of a batch have come. `lasting` is asked before the end
        of a batch is believed; after a no, nothing of this worker is.

        Raises:
            OSError: no socket, or no descriptor left.
        """
        self.batches: dict[int, InFlight] = {}
        self.received = 0
        self.ready = False
        self.closed = False
        self._worker = worker
        self._emit = emit
        self._states = states
        self._directory = directory
        self._early: list[list[Any]] | None = []
        self._loop = loop
        self._condemned = False
        self._greeted = False
        # A name within the directory's descriptor: however long the runtime directory's path, this one fits into the
        # 107 bytes of sockaddr_un (unix(7)).
        self._name = f"w{secrets.token_hex(6)}"
        path = f"/proc/self/fd/{directory}/{self._name}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.listener.bind(path)
            self.listener.listen(1)
            dealer, self._watching = transport.watched_dealer(ctx, f"ipc://{path}")
        except BaseException:
            self._close_listener()
            raise
        self._on_closed = on_closed
        self._lasting = lasting
        self._disconnects = transport.Disconnects(loop, self._watching, self._connection_lost)
        self._port = Port(loop, dealer, self._on_frames)

    # --- to the worker ----------------------------------------------------------------------------------------------

    def send_batch(self, order: SendBatch) -> None:
        """Hand over a batch.

        Raises:
            LocalProtocolError: it does not fit into a message; nothing was sent.
        """
        frames = codec.Frames()
        calls: tuple[Any, ...] = order.calls
        if not codec.inline([call.arguments for call in calls]):
            calls = tuple(
                [WireCall(call.id, call.tool, frames.put(_argument(call.arguments)), call.defect) for call in calls]
            )
        message = Batch(order.batch, order.turn, calls, order.session, order.deadline, order.flush, order.region)
        encoded = codec.encode(message, frames.frames)
        self.batches[order.batch] = InFlight(order.region, tuple([call.tool for call in order.calls]))
        self._send(encoded)

    def cancel_batch(self, batch: int) -> None:
        self._send(codec.encode(CancelBatch(batch)))

    def deinit(self) -> None:
        self._send(codec.encode(Deinit()))

    def _send(self, frames: list[Any]) -> None:
        if not self._port.send(frames):
            self._loop.call_soon(self.misbehaved, "it does not read its link")

    def _connection_lost(self, _fd: int) -> None:
        self.closed = True
        self._on_closed()

    # --- from the worker --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """The worker's birth was reported: handle what it said before we knew of it."""
        early, self._early = self._early, None
        for frames in early or ():
            self._take(frames)

    def drain(self) -> None:
        """Handle everything that has arrived."""
        socket = self._port.socket
        while not socket.closed and transport.readable(socket):
            self._port.drain()

    def misbehaved(self, message: str) -> None:
        """Say so once, and believe nothing the worker sends from now on."""
        if not self._condemned:
            self._condemned = True
            self._emit(WorkerMisbehaved(self._worker, message))

    def _on_frames(self, frames: list[Any]) -> None:
        self.received += 1
        if self._early is None:
            self._take(frames)
        else:
            self._early.append(frames)

    def _take(self, frames: list[Any]) -> None:
        if self._condemned:
            return
        try:
            message = _decoder.decode(frames[0])
            if message is not None:
                self._handle(message, frames[1:])
        except PeerProtocolError as error:
            self.misbehaved(error.message)

    def _handle(self, message: Message, frames: list[Any]) -> None:
        match message:
            case BatchDone():
                self._batch_done(message, frames)
            case Partial():
                results = self._results(message.batch, message.results, frames)
                self._emit(SlotsFilled(self._worker, message.batch, results))
            case CallProgress():
                flying = self._flying(message.batch)
                if not 0 <= message.slot < len(flying.tools):
                    raise PeerProtocolError(f"batch {message.batch} has no slot {message.slot}")
                payload = codec.payload(message.payload, frames)
                self._emit(ProgressReported(self._worker, message.batch, message.slot, payload))
            case Hello():
                self._hello(message)
            case Ready():
                self._expect_greeted("READY")
                self.ready = True
                self._emit(WorkerReady(self._worker, message.tools, message.reentrant))
            case StartFailed():
                self._expect_greeted("STARTFAILED")
                self._emit(WorkerStartFailed(self._worker, message.message, message.detail))
            case Bye():
                pass

    def _hello(self, message: Hello) -> None:
        if self._greeted:
            raise PeerProtocolError("a second HELLO")
        if PROTOCOL_VERSION not in message.versions:
            spoken = ", ".join(map(str, message.versions)) or "none"
            raise PeerProtocolError(f"it speaks protocol versions {spoken}, this node speaks {PROTOCOL_VERSION}")
        self._greeted = True
        self._close_listener()

    def _expect_greeted(self, what: str) -> None:
        if not self._greeted:
            raise PeerProtocolError(f"{what} before HELLO")
        if self.ready:
            raise PeerProtocolError(f"{what} after READY")

    def _batch_done(self, message: BatchDone, frames: list[Any]) -> None:
        if not self._lasting():
            self._condemned = True
            return
        batch, failure = message.batch, message.failure
        results = self._results(batch, message.results, frames)
        flying = self.batches[batch]
        if failure is not None:
            if failure.code not in _BATCH_FAILURES:
                raise PeerProtocolError(f"a batch cannot fail with {failure.code!r}")
            del self.batches[batch]
            self._emit(BatchFailed(self._worker, batch, failure, self._states(flying, batch)))
            return
        if flying.open:
            raise PeerProtocolError(f"batch {batch} is said to be done with {flying.open} slots empty")
        del self.batches[batch]
        self._emit(BatchFinished(self._worker, batch, results))

    def _flying(self, batch: int) -> InFlight:
        flying = self.batches.get(batch)
        if flying is None:
            raise PeerProtocolError(f"it was not given batch {batch}, or has ended it")
        return flying

    def _results(
        self, batch: int, slots: tuple[tuple[int, Any], ...], frames: list[Any]
    ) -> tuple[tuple[int, Any], ...]:
        flying = self._flying(batch)
        filled = flying.filled
        results = []
        for slot, outcome in slots:
            if not 0 <= slot < len(filled):
                raise PeerProtocolError(f"batch {batch} has no slot {slot}")
            if filled[slot]:
                raise PeerProtocolError(f"slot {slot} of batch {batch} is filled twice")
            filled[slot] = 1
            results.append((slot, codec.payload(outcome, frames)))
        flying.open -= len(results)
        return tuple(results)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._disconnects.stop()
        self._port.detach()
        transport.close_watched(self._port.socket, self._watching)
        self._close_listener()

    def _close_listener(self) -> None:
        if self.listener.fileno() >= 0:
            self.listener.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=self._directory)


def _argument(arguments: Any) -> Any:
    """Text as it is; bytes that came from elsewhere as a frame, for only text may stand in a header."""
    return memoryview(arguments) if isinstance(arguments, bytes) else arguments
