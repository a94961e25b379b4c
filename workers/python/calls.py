"""One call of a Python tool, from raw arguments to the outcome in its slot.

Owns what each way a tool can end becomes in its slot. Must not know scheduling, nor asyncio, which a source that
blocks never imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from toolsd.content import encode_error, encode_result, size_of
from toolsd.context import Context
from toolsd.errors import ResultInvalid, SlotError, ToolError
from toolsd.host import BatchCancelled, HostBatch, HostCall
from toolsd.misfits import BadArguments
from toolsd.sandbox import mercy
from toolsd.source import Tool

# What a tool may not keep from the runtime: each says that the batch, the worker or the loop has to end.
PASSED_ON = (BatchCancelled, SystemExit, KeyboardInterrupt, GeneratorExit)
# Characters of an exception's message that a model gets to read; a log is no message.
_MESSAGE_MAX = 16_000


class Runnable:
    """A tool made ready: what a call needs at hand."""

    __slots__ = ("_bind", "_context", "_function", "_positional", "_result_max", "asynchronous", "timeout", "tool")

    def __init__(self, tool: Tool, timeout: float | None, result_max: int) -> None:
        parameters = tool.parameters
        self.tool = tool
        self.timeout = timeout
        self.asynchronous = tool.asynchronous
        self._bind = parameters.bind
        self._context = parameters.context
        self._positional = parameters.positional
        self._function: Callable[..., Any] = tool.function
        self._result_max = result_max

    def bind(self, batch: HostBatch, call: HostCall) -> dict[str, Any] | None:
        """The call's arguments; `None` if they do not fit, and then its slot is filled."""
        try:
            return self._bind(call.arguments)
        except BadArguments as bad:
            outcome = encode_error(bad.error)
        except PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 - the author's types may run code of theirs (__post_init__)
            outcome = self.failed(batch, error)
        batch.finished(call.slot, outcome)
        return None

    def invoke(self, arguments: dict[str, Any], context: Context) -> Any:
        """What the function gives for bound arguments."""
        if self._context is not None:
            arguments[self._context] = context
        if self._positional:
            return self._function(*[arguments.pop(name) for name in self._positional], **arguments)
        return self._function(**arguments)

    def context(self, batch: HostBatch, call: HostCall) -> Context:
        return Context(batch, call, self.timeout)

    def begin(self, batch: HostBatch, call: HostCall, arguments: dict[str, Any]) -> Any:
        """As `invoke`, noting that the call has begun; a context is made only for a function that wants one."""
        batch.started(call.slot)
        if self._context is None and not self._positional:
            return self._function(**arguments)
        return self.invoke(arguments, self.context(batch, call))

    def run(self, batch: HostBatch, call: HostCall) -> None:
        """Run the call on this thread and fill its slot."""
        arguments = self.bind(batch, call)
        if arguments is None:
            return
        try:
            outcome = encode_result(self.begin(batch, call, arguments))
        except PASSED_ON:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises stays in its slot
            outcome = self.failed(batch, error)
        self.fill(batch, call.slot, outcome)

    def fill(self, batch: HostBatch, slot: int, outcome: bytes) -> None:
        if len(outcome) > self._result_max and not outcome.startswith(b"e") and size_of(outcome) > self._result_max:
            size, limit = size_of(outcome), self._result_max
            message = f"The result of {self.tool.name} has {size} bytes; {limit} are allowed. Ask for less of it."
            details = {"size": size, "limit": limit, "key": "result_max"}
            outcome = encode_error(SlotError("result_too_large", message, details))
        batch.finished(slot, outcome)

    def failed(self, batch: HostBatch, error: BaseException) -> bytes:
        """The outcome for an exception that came out of the tool, or of the encoding of its result.

        Raises it again if it means that the worker's memory is used up: no call after this one could be trusted.
        """
        if isinstance(error, MemoryError) and batch.exhausted():
            raise error
        if isinstance(error, ToolError):
            return encode_error(SlotError("tool_error", _text(error)))
        if isinstance(error, ResultInvalid):
            message = f"{self.tool.name} gave a result that cannot be sent: {error.message}"
            return encode_error(SlotError("result_invalid", message, {"path": error.path}))
        _log(self.tool.name, error)
        details = {"type": type(error).__qualname__}
        key = mercy.limit(error)
        if key is not None:
            details["key"] = key
        hint = mercy.hint(error)
        if hint is not None:
            return encode_error(SlotError("tool_error", f"{describe(error)} ({hint})", details | {"hint": hint}))
        return encode_error(SlotError("tool_error", describe(error), details))

    def timed_out(self) -> bytes:
        message = f"{self.tool.name} did not finish within {self.timeout:g} seconds and was stopped."
        return encode_error(SlotError("tool_timeout", message, {"limit": self.timeout}))


def describe(error: BaseException) -> str:
    """Type and message of an exception, whatever its `__str__` does."""
    name, text = type(error).__qualname__, _text(error)
    if isinstance(error, MemoryError) and not text:
        text = "it needs more memory than there is"
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 - the author's own class
        return f"(its message cannot be read: {type(broken).__qualname__})"
    return text if len(text) <= _MESSAGE_MAX else text[:_MESSAGE_MAX] + "…"


def _log(tool: str, error: BaseException) -> None:
    """The traceback, without our own frames, to the worker's stderr: for the author, not for the model."""
    import traceback

    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    try:
        sys.stderr.write(f"toolsd: {tool} raised:\n")
        traceback.print_exception(type(error), error, tb, file=sys.stderr)
    except Exception:  # noqa: BLE001 - a broken stderr or a broken exception must not cost the call its slot
        return
