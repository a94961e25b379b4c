"""A batch while it runs in the worker: what a Host sees of it (`toolsd.host.HostBatch`), and how it is answered.

Owns the slots and the batch's region of the flight recorder. Hands finished messages to `send`; knows no socket.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from toolsd import codec
from toolsd.errors import Evidence, Failure
from toolsd.flight import Region
from toolsd.host import BatchCancelled, HostCall, SlotMisuse
from toolsd.messages import Batch, BatchDone, CallProgress, Partial

Send = Callable[[list[Any]], None]
# What is kept of a traceback: the ends of both the first and the last frames are what a person reads.
_TRACEBACK = 16 * 1024


class RunningBatch:
    """One batch. `finished`, `started` and `progress` may be called from any thread."""

    def __init__(
        self, message: Batch, frames: Sequence[Any], region: Region, send: Send, exhausted: Callable[[], bool]
    ) -> None:
        """`exhausted`: whether the worker's memory is used up.

        Raises:
            PeerProtocolError: an argument frame is missing.
        """
        self.id = message.batch
        self.turn = message.turn
        self.session = message.session
        self.deadline = None if message.deadline is None else time.monotonic() + message.deadline
        self.calls = tuple(
            [
                HostCall(slot, call.id, call.tool, _text(codec.payload(call.arguments, frames)))
                for slot, call in enumerate(message.calls)
            ]
        )
        self.began = False  # the task of an asynchronous batch has made its first step
        self.interrupted = False  # BatchCancelled was raised in it
        self.misuse: SlotMisuse | None = None
        self._cancelled = False
        self._region = region
        self._send = send
        self.exhausted = exhausted
        self._flush = message.flush
        self._outcomes: list[bytes | None] = [None] * len(self.calls)  # empty bytes: it went out early
        self._open = len(self.calls)
        self._over = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        region.begin(self.id, len(self.calls))

    @property
    def cancelled(self) -> bool:
        return self._cancelled or self._region.cancel_asked(self.id)

    @property
    def complete(self) -> bool:
        """Every slot is filled."""
        return self._open == 0

    def cancel(self) -> None:
        """Somebody asked, by message."""
        self._cancelled = True

    def started(self, slot: int) -> None:
        self._region.started(slot)

    def finished(self, slot: int, outcome: bytes) -> None:
        if os.getpid() != self._pid:
            self._leave_fork()
        with self._lock:
            if self._over:
                raise SlotMisuse(f"slot {slot} was filled after its batch had ended")
            problem = self._problem(slot, outcome)
            if problem is not None:
                self.misuse = self.misuse or SlotMisuse(problem)
                raise SlotMisuse(problem)
            self._outcomes[slot] = outcome
            self._open -= 1
            self._region.finished(slot)
            if self._flush and self._open:
                large = codec.Frames()
                message = Partial(self.id, ((slot, large.put(outcome)),))
                self._send(codec.encode(message, large.frames))
                self._outcomes[slot] = b""  # it is on its way; nothing need keep it

    def progress(self, slot: int, payload: bytes) -> None:
        large = codec.Frames()
        frames = codec.encode(CallProgress(self.id, slot, large.put(payload)), large.frames)
        with self._lock:
            if not self._over:
                self._send(frames)

    def close(self, error: BaseException | None) -> list[Any]:
        """End the batch and make its answer; `error` came out of the Host. Nothing is sent for it afterwards."""
        if os.getpid() != self._pid:
            self._leave_fork()
        with self._lock:
            self._over = True
        failure = self._failure(error)
        if failure is not None:
            return codec.encode(BatchDone(self.id, (), failure))
        large = codec.Frames()
        last: list[tuple[int, Any]] = [(slot, outcome) for slot, outcome in enumerate(self._outcomes) if outcome]
        if not codec.inline([outcome for _, outcome in last]):
            last = [(slot, large.put(outcome)) for slot, outcome in last]
        return codec.encode(BatchDone(self.id, tuple(last)), large.frames)

    def _leave_fork(self) -> NoReturn:
        """End a child that a tool forked and let out: it would run the rest of the batch a second time."""
        sys.stderr.write(f"toolsd: process {os.getpid()}, forked by a tool, came out of it and ends here\n")
        os._exit(1)

    def _problem(self, slot: int, outcome: bytes) -> str | None:
        if not 0 <= slot < len(self._outcomes):
            return f"there is no slot {slot}; this batch has {len(self._outcomes)}"
        if self._outcomes[slot] is not None:
            return f"slot {slot} ({self.calls[slot].tool}) was filled twice"
        if type(outcome) is not bytes or not outcome:
            return f"slot {slot} ({self.calls[slot].tool}) got {type(outcome).__name__}, not an outcome"
        if len(outcome) > codec.FRAME_MAX:
            return f"slot {slot} ({self.calls[slot].tool}) got {len(outcome)} bytes; a link carries {codec.FRAME_MAX}"
        return None

    def _failure(self, error: BaseException | None) -> Failure | None:
        if self.misuse is not None:
            return Failure("protocol_violation", str(self.misuse), evidence=_evidence(error))
        if isinstance(error, BatchCancelled) and self.cancelled:
            return Failure("turn_cancelled", "the batch stopped when it was asked to", cause="stopped")
        if error is not None:
            what = "".join(traceback.format_exception_only(error)).strip()
            return Failure("batch_raised", f"an error came out of the source: {what}", evidence=_evidence(error))
        if self._open:
            empty = [call for call in self.calls if self._outcomes[call.slot] is None]
            named = ", ".join(f"{call.tool} (slot {call.slot})" for call in empty[:5])
            more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
            return Failure("results_incomplete", f"the source returned with empty slots: {named}{more}")
        return None


def _evidence(error: BaseException | None) -> Evidence | None:
    if error is None:
        return None
    text = "".join(traceback.format_exception(error))
    if len(text) > _TRACEBACK:
        text = f"{text[: _TRACEBACK // 2]}\n  [...]\n{text[-_TRACEBACK // 2 :]}"
    return Evidence(traceback=text)


def _text(arguments: Any) -> str:
    """The raw text. What is not UTF-8 keeps its place as lone surrogates, which the parser names."""
    return arguments if type(arguments) is str else bytes(arguments).decode("utf-8", "surrogateescape")
