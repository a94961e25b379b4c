"""What a running tool knows of its call, and what it can say while it runs.

Owns nothing: it is a view of one call of a batch. Must not know tools, sources, messages or the process it is in. Its
methods may be called from any thread.
"""

from __future__ import annotations

import time
from typing import Any

from toolsd.content import LogLevel, LogRecord, Output, Progress, pack_report
from toolsd.host import HostBatch, HostCall


class Context:
    """Given to a tool that has a parameter annotated `Context`; the model does not see that parameter.

    `call_id` is the id the model gave (`None`: it gave none), `turn` the turn's id, `session` the session the caller
    named, `tool` the tool's name.
    """

    __slots__ = ("_batch", "_slot", "_until", "call_id", "session", "tool", "turn")

    def __init__(self, batch: HostBatch, call: HostCall, timeout: float | None = None) -> None:
        self._batch = batch
        self._slot = call.slot
        self._until = batch.deadline
        if timeout is not None:
            own = time.monotonic() + timeout
            self._until = own if self._until is None else min(own, self._until)
        self.call_id = call.id
        self.turn = batch.turn
        self.session = batch.session
        self.tool = call.tool

    @property
    def deadline(self) -> float | None:
        """Seconds left until the batch's deadline or the tool's own timeout, never below 0; `None`: no bound."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this call to stop. A loop in a thread should look now and then, and return."""
        return self._batch.cancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell how far the call is: `done` of `total`, in any unit.

        Raises:
            ResultInvalid: a number is not finite or the message cannot be sent.
        """
        self._batch.progress(self._slot, pack_report(Progress(done, total, message)))

    def write(self, text: str) -> None:
        """Send a piece of output now, before the result. What is written is not part of the result.

        Raises:
            ResultInvalid: the text cannot be sent.
        """
        self._batch.progress(self._slot, pack_report(Output(text)))

    def log(self, level: LogLevel, message: str, /, **fields: Any) -> None:
        """Send a log record to the caller of the turn. `fields` are JSON values.

        Raises:
            ResultInvalid: the level is none, or the message or a field cannot be sent.
        """
        self._batch.progress(self._slot, pack_report(LogRecord(level, message, fields)))

    def debug(self, message: str, /, **fields: Any) -> None:
        self.log("debug", message, **fields)

    def info(self, message: str, /, **fields: Any) -> None:
        self.log("info", message, **fields)

    def warning(self, message: str, /, **fields: Any) -> None:
        self.log("warning", message, **fields)

    def error(self, message: str, /, **fields: Any) -> None:
        self.log("error", message, **fields)
