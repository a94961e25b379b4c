"""One batch as the library sees it: the structs it reads, the functions it calls back, the slots it fills.

Owns the memory of both sides while the batch runs, and what each way to fill a slot becomes. Must not know how the
library was loaded.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from toolsd.content import (
    Blob,
    Image,
    LogLevel,
    LogRecord,
    Output,
    Progress,
    Report,
    encode_error,
    encode_result,
    pack_report,
)
from toolsd.errors import ResultInvalid, SlotError
from toolsd.host import HostBatch, HostCall, SlotMisuse

from . import abi

_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


class NativeBatch:
    """`given` are the calls that the library gets; a slot of the library is an index into them."""

    def __init__(self, batch: HostBatch, given: Sequence[HostCall], places: dict[str, int], result_max: int) -> None:
        self.calls = (abi.Call * len(given))(
            *(
                abi.Call(places[call.tool], abi.text(call.tool), abi.text(call.id), abi.text(call.arguments))
                for call in given
            )
        )
        self.results = (abi.Result * len(given))()
        self.context = abi.Context(
            turn=abi.text(batch.turn),
            session=abi.text(batch.session),
            deadline=abi.NO_DEADLINE if batch.deadline is None else int(batch.deadline * 1e9),
            cancelled=abi.CANCELLED(lambda _: batch.cancelled),
            started=abi.MARK(self._started),
            finished=abi.MARK(self._finished),
            progress=abi.PROGRESS(self._progress),
            write=abi.WRITE(self._write),
            log=abi.LOG(self._log),
            fail=abi.FAIL(self._fail),
        )
        self.reason = ""
        self._batch = batch
        self._given = given
        self._result_max = result_max
        self._taken = [False] * len(given)
        self._problem: Exception | None = None

    @property
    def complete(self) -> bool:
        return all(self._taken)

    def collect(self) -> None:
        """Take every slot that is filled; the library has returned.

        Raises:
            SlotMisuse: it filled one twice, or named one that does not exist.
            MemoryError: there is no memory left.
        """
        for at, result in enumerate(self.results):
            if result.kind != abi.EMPTY:
                self._take(at)
        if self._problem is not None:
            raise self._problem

    # --- what the library calls, from any thread; nothing may be raised into it ---------------------------------------

    def _started(self, _context: object, at: int) -> None:
        if self._exists(at):
            self._batch.started(self._given[at].slot)

    def _finished(self, _context: object, at: int) -> None:
        if not self._exists(at):
            return
        try:
            if self.results[at].kind == abi.EMPTY:
                raise SlotMisuse(f"the library said that slot {at} is finished, and it is empty")
            self._take(at)
        except Exception as error:  # noqa: BLE001 - raised once the library has returned
            self._problem = self._problem or error

    def _progress(self, _context: object, at: int, done: float, total: float, message: bytes | None) -> None:
        told = None if message is None else message.decode("utf-8", "replace")
        self._report(at, lambda: Progress(done, total or None, told))

    def _write(self, _context: object, at: int, data: int | None, size: int) -> None:
        self._report(at, lambda: Output(ctypes.string_at(data or 0, size).decode("utf-8", "replace")))

    def _log(self, _context: object, at: int, level: int, message: bytes | None) -> None:
        told = _LEVELS[min(max(level, 0), len(_LEVELS) - 1)]
        self._report(at, lambda: LogRecord(told, (message or b"").decode("utf-8", "replace")))

    def _fail(self, _context: object, message: bytes | None) -> None:
        self.reason = (message or b"").decode("utf-8", "replace")

    def _report(self, at: int, report: Callable[[], Report]) -> None:
        if not self._exists(at):
            return
        try:
            self._batch.progress(self._given[at].slot, pack_report(report()))
        except Exception as error:  # noqa: BLE001 - a report that cannot be sent must not cost the call its result
            sys.stderr.write(f"toolsd: a report of {self._given[at].tool} was not sent: {error}\n")

    def _exists(self, at: int) -> bool:
        if at < len(self._given):
            return True
        self._problem = self._problem or SlotMisuse(f"the library named call {at} of {len(self._given)}")
        return False

    # --- slots --------------------------------------------------------------------------------------------------------

    def _take(self, at: int) -> None:
        """Turn what the library put into a slot into an outcome, and free it."""
        result, call = self.results[at], self._given[at]
        outcome = self._outcome(result, call)
        if result.data:
            abi.release(result.data)
        result.kind, result.data, result.size = abi.EMPTY, None, 0
        self._taken[at] = True
        self._batch.finished(call.slot, outcome)

    def _outcome(self, result: abi.Result, call: HostCall) -> bytes:
        if result.size and not result.data:
            if self._batch.exhausted():
                raise MemoryError(f"{call.tool} found no memory for {result.size} bytes of result")
            needs = f"{call.tool} needs {result.size} bytes for its result, and there are none"
            return encode_error(SlotError("tool_error", needs))
        if result.size > self._result_max and result.kind != abi.ERROR:
            size, limit = result.size, self._result_max
            message = f"The result of {call.tool} has {size} bytes; {limit} are allowed. Ask for less of it."
            return encode_error(SlotError("result_too_large", message, {"size": size, "limit": limit}))
        data = memoryview((ctypes.c_char * result.size).from_address(result.data or 0)) if result.size else b""
        try:
            return _encoded(result, data)
        except (ValueError, TypeError, RecursionError, ResultInvalid, msgspec.MsgspecError) as error:
            message = f"{call.tool} gave a result that cannot be sent: {error}"
            return encode_error(SlotError("result_invalid", message))


def _encoded(result: abi.Result, data: Any) -> bytes:
    """The outcome for what is in a slot. Raises what msgspec and `toolsd.content` raise for what is none."""
    match result.kind:
        case abi.TEXT:
            return encode_result(str(data, "utf-8"))
        case abi.JSON:
            return encode_result(msgspec.json.decode(data))
        case abi.BYTES:
            mime = (result.mime or b"application/octet-stream").decode("ascii")
            return encode_result((Image if mime.startswith("image/") else Blob)(bytes(data), mime))
        case abi.ERROR:
            return encode_error(
                SlotError("tool_error", str(data, "utf-8", "replace") or "it failed and did not say why")
            )
    raise ValueError(f"its kind is {result.kind}; toolsd_source.h has 1 to {abi.ERROR}")
