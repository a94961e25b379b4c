"""A batch as the author of an `invoke_batch` sees it: calls to look at, slots to fill.

Owns their shape. Must not know how the batch came, where it goes, or what is done about a slot that is filled twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from toolsd.context import Context
from toolsd.errors import SlotError


class BatchCall:
    """One call of the batch; its arguments are valid.

    `arguments` are the typed values by parameter name, with the defaults of those the model left out. `raw` is the
    text the model sent.
    """

    __slots__ = ("_invoke", "arguments", "context", "id", "raw", "tool")

    def __init__(
        self,
        invoke: Callable[[dict[str, Any], Context], Any],
        *,
        arguments: dict[str, Any],
        context: Context,
        raw: str,
    ) -> None:
        self._invoke = invoke
        self.arguments = arguments
        self.context = context
        self.raw = raw
        self.id = context.call_id
        self.tool = context.tool

    def __repr__(self) -> str:
        return f"BatchCall({self.tool}, {self.arguments!r})"

    def invoke(self) -> Any:
        """Call the declared function; its value (a coroutine, if it is `async def`) or its exception."""
        return self._invoke(dict(self.arguments), self.context)


class Slot:
    """Where the result of one call goes. Filling it twice raises SlotMisuse and fails the batch."""

    __slots__ = ("_fill", "_name", "filled")

    def __init__(self, name: str, fill: Callable[[Any], None]) -> None:
        self.filled = False
        self._name = name
        self._fill = fill

    def __repr__(self) -> str:
        return f"<slot of {self._name}, {'filled' if self.filled else 'empty'}>"

    def ok(self, value: Any) -> None:
        """Fill the slot with a result."""
        self._fill(value)
        self.filled = True

    def fail(self, error: str | Exception) -> None:
        """Fill the slot with an error: a text for the model, or what `BatchCall.invoke` raised, which is told as for
        any tool."""
        self._fill(error if isinstance(error, Exception) else SlotError("tool_error", str(error)))
        self.filled = True


class BatchResults(Sequence[Slot]):
    """The slots of a batch, one for each call, in the order of the calls. It cannot grow or shrink."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = tuple(slots)

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, at: int) -> Slot: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Slot]: ...

    def __getitem__(self, at: int | slice) -> Slot | Sequence[Slot]:
        if isinstance(at, int) and not -len(self._slots) <= at < len(self._slots):
            raise IndexError(f"there is no slot {at}: the batch has {len(self._slots)} calls")
        return self._slots[at]
