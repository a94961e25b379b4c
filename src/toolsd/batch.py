"""A batch as the author of an `invoke_batch` sees it: calls to look at, slots to fill.

Owns the rule that a slot is filled once, with a value or a text. Must not know how the batch came or where it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from toolsd.context import Context
from toolsd.errors import SlotError
from toolsd.host import SlotMisuse


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
    """Where the result of one call goes."""

    __slots__ = ("_fill", "filled", "misused", "name")

    def __init__(self, name: str, fill: Callable[[Any], None]) -> None:
        self.name = name
        self.filled = False
        self.misused = False
        self._fill = fill

    def __repr__(self) -> str:
        return f"<slot of {self.name}, {'filled' if self.filled else 'empty'}>"

    def ok(self, value: Any) -> None:
        """Fill the slot with a result.

        Raises:
            SlotMisuse: it is filled already.
        """
        self._take(value)

    def fail(self, message: str) -> None:
        """Fill the slot with an error; `message` is for the model.

        Raises:
            SlotMisuse: it is filled already.
        """
        self._take(SlotError("tool_error", str(message)))

    def _take(self, what: Any) -> None:
        if self.filled:
            self.misused = True
            raise SlotMisuse(f"the slot of {self.name} is filled twice")
        self.filled = True
        self._fill(what)


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

    def check(self) -> None:
        """Raises SlotMisuse if a slot was filled twice, even if the author's code has caught that."""
        twice = [slot.name for slot in self._slots if slot.misused]
        if twice:
            raise SlotMisuse(f"filled twice: {', '.join(twice)}")
