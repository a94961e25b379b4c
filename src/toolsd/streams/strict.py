"""The strict accumulator: OpenAI Chat deltas into calls by five rules, with nothing repaired.

1. Deltas are keyed by `index`, not by arrival. 2. `id` may arrive in any chunk of its index; the first one stays.
3. `name` is concatenated over chunks. 4. The result is ordered by index. 5. A delta without an index describes a
single call and is folded into one slot of its own, placed last; an index that is present but not a non-negative
integer is dropped and counted. `type` is not read: an assembled call is always a function.

Each slot keeps lists of fragments and joins them on demand, so the cost of a delta does not depend on how many came
before. Unbounded by design: the host bounds the stream (`toolsd.streams.bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolsd.streams.draft import Draft, Trace, described
from toolsd.streams.plain import read

# The key of the slot for deltas that have no index: above every index a provider can send.
_LAST = float("inf")


class ToolCallAccumulator:
    """Assembles the tool calls of one completion. One accumulator per completion, never shared or reused.

    >>> accumulator = ToolCallAccumulator()
    >>> accumulator.observe([{"index": 0, "id": "call_a", "function": {"name": "f", "arguments": ""}}])
    >>> accumulator.observe([{"index": 0, "function": {"arguments": "{}"}}])
    >>> accumulator.assembled()
    [{'id': 'call_a', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}]
    """

    __slots__ = ("_slots", "_trace", "dropped_deltas", "new_names", "size")

    def __init__(self, trace: Trace | None = None) -> None:
        self._slots: dict[float, _Slot] = {}
        self._trace = trace
        self.dropped_deltas = 0
        self.new_names: list[str] = []  # names in the order they began; for who asks while the stream goes on
        self.size = 0  # characters of arguments so far

    @property
    def is_empty(self) -> bool:
        """Whether no call has begun."""
        return not self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def observe(self, deltas: Iterable[Any] | None) -> None:  # noqa: PLR0912 -- the hot path calls nothing
        """Fold the `tool_calls` of one chunk: a list of dicts or SDK objects, an empty list, or None.

        Never raises on what a provider sent; what cannot belong to any call is counted in `dropped_deltas`.
        """
        if not deltas:
            return
        slots = self._slots
        for delta in as_list(deltas):
            if isinstance(delta, dict):
                index = delta.get("index")
                id_ = delta.get("id")
                function = delta.get("function")
            elif isinstance(delta, (str, bytes, int, float, list)) or delta is None:
                self.dropped_deltas += 1
                continue
            else:
                index, id_, function = read(delta, "index"), read(delta, "id"), read(delta, "function")
            key: float
            if type(index) is int and index >= 0:
                key = index
            elif index is None:
                key = _LAST
            else:
                self.dropped_deltas += 1
                continue
            slot = slots.get(key)
            if slot is None:
                slot = slots[key] = _Slot()
            if id_ and slot.id is None and isinstance(id_, str):
                slot.id = id_
            name = arguments = None
            if isinstance(function, dict):
                name = function.get("name")
                arguments = function.get("arguments")
            elif function:
                name, arguments = read(function, "name"), read(function, "arguments")
            if name and isinstance(name, str):
                if not slot.names:
                    self.new_names.append(name)
                slot.names.append(name)
            if arguments and isinstance(arguments, str):
                slot.fragments.append(arguments)
                self.size += len(arguments)
            if self._trace is not None:
                self._trace(slot, described(index, id_, name, arguments), "its index" if key != _LAST else "no index")

    def assembled(self) -> list[dict[str, Any]]:
        """The calls so far in index order, as OpenAI `tool_calls`; a fresh list each time, also mid-stream.

        `id` is None and `name` empty where none came. Does not end accumulation.
        """
        return [
            {
                "id": slot.id,
                "type": "function",
                "function": {"name": "".join(slot.names), "arguments": slot.text()},
            }
            for _, slot in sorted(self._slots.items())
        ]

    def drafts(self) -> list[Draft]:
        """The calls so far for settlement (`toolsd.streams.settle`), in index order."""
        drafts: list[Draft] = []
        for _, slot in sorted(self._slots.items()):
            slot.name = "".join(slot.names)
            drafts.append(slot)
        return drafts


class _Slot(Draft):
    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []


def as_list(deltas: Any) -> Iterable[Any]:
    """`deltas` as something to iterate: a single object that was sent in place of a list counts as a list of one."""
    if isinstance(deltas, (list, tuple)):
        return deltas
    if isinstance(deltas, (dict, str, bytes)) or not hasattr(deltas, "__iter__"):
        return (deltas,)
    # Pydantic models iterate over their fields; one of them alone is a delta, not a list of deltas.
    return (deltas,) if hasattr(deltas, "function") else deltas
