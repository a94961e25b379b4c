"""The tolerant accumulator: the surface of the strict one, for the streams that servers really send.

Theory of operation. A delta goes to a slot. The index chooses it, but identity overrules a collision: parallel calls
that all claim index 0, tails that drift to another index, ids that are minted anew with every fragment. With *head*
meaning a delta that carries a name:

- index known, ids equal or one side without id: that slot; but a head without id that begins a fresh object where the
  slot holds a whole value already, and is no exact resend, is another call.
- index known, ids differ: the slot that owns the id; else, for no head, the same slot under its first id; else, where
  the slot is unfinished, the names are equal and the fragment begins no object, the same slot; else another call,
  and the index means that one from now on.
- index unseen: for no head the slot that owns the id; for a head too, if it continues that slot; else a new one.
- no index: the slot that owns the id; else by shape, with the slot touched last as the place where tails belong.
- an index that is not a non-negative integer: dropped and counted.

Names neither double nor get cut: a fragment equal to the name so far is a repeat, one that extends it replaces it,
another one is appended until the first argument byte after the name began. Ids are never joined; empty ones and the
text `null` are none, integers become text. Nothing is decided for good before the end: a slot with neither id nor name
is then folded into the slot that was current when it appeared, if that makes an object; one without anything is no
call.

A stream that keeps to the protocol comes out exactly as from the strict accumulator. No fragment is looked at twice
and nothing is parsed before the end, so a delta costs the same however many came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolsd.streams.arguments import ArgumentsMalformed, parse
from toolsd.streams.draft import Draft, Fragment, Trace, as_json, described
from toolsd.streams.lexical import JsonScan, starts_object
from toolsd.streams.plain import extras, plain, read
from toolsd.streams.strict import as_list

_NAME_LIMIT = 1024  # a name beyond this is illegal already; joining more pieces would cost time without an end
_PROTOCOL = frozenset({"index", "id", "type", "function"})


class TolerantAccumulator:
    """Assembles the tool calls of one completion from OpenAI deltas. One accumulator per completion."""

    __slots__ = ("_by_id", "_by_index", "_latest", "_slots", "_trace", "_why", "dropped_deltas", "new_names", "size")

    def __init__(self, trace: Trace | None = None) -> None:
        self._slots: list[_Slot] = []
        self._by_index: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._latest: _Slot | None = None
        self._trace = trace
        self._why = ""
        self.dropped_deltas = 0
        self.new_names: list[str] = []
        self.size = 0

    @property
    def is_empty(self) -> bool:
        """Whether no call has begun."""
        return not self._slots

    def __len__(self) -> int:
        return len(self._slots)

    def observe(self, deltas: Iterable[Any] | None) -> None:  # noqa: PLR0912, PLR0915 -- the hot path calls nothing
        """Fold the `tool_calls` of one chunk: a list of dicts or SDK objects, an empty list, or None. Never raises."""
        if not deltas:
            return
        for delta in as_list(deltas):
            if isinstance(delta, dict):
                index = delta.get("index")
                id_ = delta.get("id")
                function = delta.get("function")
                more: Mapping[str, Any] | None = None if _PROTOCOL.issuperset(delta) else delta
            elif isinstance(delta, (str, bytes, int, float, list)) or delta is None:
                self._drop("not an object")
                continue
            else:
                index, id_, function = read(delta, "index"), read(delta, "id"), read(delta, "function")
                more = extras(delta)
                if function is None and read(delta, "custom") is not None:
                    more = {**(more or {}), "custom": plain(read(delta, "custom"))}
            if isinstance(function, dict):
                name = function.get("name")
                arguments = function.get("arguments")
            elif function:
                name, arguments = read(function, "name"), read(function, "arguments")
            else:
                name = arguments = None
            custom = more is not None and isinstance(more.get("custom"), dict)
            if custom and more is not None:
                name, arguments = more["custom"].get("name"), more["custom"].get("input")
            if name is not None and not isinstance(name, str):
                name = None
            if arguments is not None and not isinstance(arguments, (str, dict)):
                if not isinstance(arguments, (list, int, float)):
                    arguments = plain(arguments)
                if not isinstance(arguments, dict):
                    arguments = as_json(arguments)
            if id_ is not None:
                id_ = _id(id_)

            if type(index) is int and index >= 0:
                slot = self._by_index.get(index)
                if slot is None or name or id_:
                    slot = self._route(slot, index, id_, name, arguments)
            elif index is None:
                slot = self._route_without_index(id_, name, arguments)
            else:
                self._drop("an index that is not a non-negative integer")
                continue
            if slot is None:
                continue
            self._latest = slot
            if id_ and slot.id is None:
                slot.id = id_
                self._by_id[id_] = slot
            if name:
                self._take_name(slot, name)
            if custom:
                slot.custom = True
            if more is not None:
                for key, value in more.items():
                    if key not in _PROTOCOL and key != "custom" and value is not None:
                        slot.keep(key, plain(value))
            if arguments is not None and arguments != "":
                slot.fragments.append(arguments)
                self.size += len(arguments)
            if self._trace is not None:
                self._trace(slot, described(index, id_, name, arguments), self._why or "its index")
                self._why = ""

    def assembled(self) -> list[dict[str, Any]]:
        """The calls so far in order, as OpenAI `tool_calls`; a fresh list each time, also mid-stream.

        Arguments are joined, not settled (`toolsd.streams.settle`). `id` is None and `name` empty where none came.
        """
        return [
            {"id": draft.id, "type": "custom", "custom": {"name": draft.name, "input": draft.text()}}
            if draft.custom
            else {"id": draft.id, "type": "function", "function": {"name": draft.name, "arguments": draft.text()}}
            for draft in self.drafts()
        ]

    def drafts(self) -> list[Draft]:
        """The calls so far for settlement, in order: by index, then by arrival. Drifting tails are folded."""
        tails: dict[int, list[_Slot]] = {}
        roots: list[_Slot] = []
        for slot in self._slots:  # in order of arrival, so the slot that was current before comes first
            slot.into = None
            if slot.id is None and not slot.name and slot.after is not None:
                slot.root = slot.after.root
                tails.setdefault(id(slot.root), []).append(slot)
            else:
                slot.root = slot
                roots.append(slot)
        found: list[tuple[int, int, Draft]] = []
        for slot in roots:
            parts = tails.get(id(slot), [])
            draft: Draft = slot
            if parts:
                joined = _joined(slot, parts)
                if joined is None:
                    found += [(part.order, part.arrival, part) for part in parts]
                else:
                    draft = joined
            found.append((slot.order, slot.arrival, draft))
        found.sort(key=lambda entry: entry[:2])
        return [draft for _, _, draft in found if draft.id is not None or draft.name or draft.fragments]

    def _route(
        self, slot: _Slot | None, index: int, id_: str | None, name: str | None, arguments: Fragment | None
    ) -> _Slot | None:
        """The slot for a delta with an index: `slot` is what the index means so far."""
        owner = self._by_id.get(id_) if id_ else None
        if slot is None:
            if owner is not None and (not name or owner.continued_by(name, arguments)):
                self._why = "its id is known from another index"
                owner.note("note:index_changed")
                return owner
            if not (id_ or name or arguments):
                return None
            return self._open(index, "an index not seen before")
        if slot.id is not None and id_ and slot.id != id_:
            if owner is not None:
                self._why = "its id is known from another index"
                owner.note("note:index_changed")
                return owner
            if not name or slot.continued_by(name, arguments):
                self._why = "its index; another id in the middle of a call"
                slot.note("note:id_changed")
                return slot
            return self._open(index, "a name with another id: a new call on a used index")
        if name and not id_ and slot.followed_by(name, arguments, any_name=False):
            return self._open(index, "a name and a fresh object after a whole one: a new call on a used index")
        return slot

    def _route_without_index(self, id_: str | None, name: str | None, arguments: Fragment | None) -> _Slot | None:
        owner = self._by_id.get(id_) if id_ else None
        if owner is not None:
            self._why = "no index; its id is known"
            return owner
        latest = self._latest
        if latest is None:
            return self._open(None, "no index; the first call") if id_ or name or arguments else None
        if id_:
            if name and (latest.id is not None or latest.followed_by(name, arguments, any_name=True)):
                return self._open(None, "no index; a name with a new id")
            if latest.id is not None:
                latest.note("note:id_changed")
        elif name and latest.name and latest.followed_by(name, arguments, any_name=True):
            return self._open(None, "no index, no id; a name after a whole call")
        self._why = "no index; the call touched last"
        return latest

    def _open(self, index: int | None, why: str) -> _Slot:
        latest = self._latest
        order = index if index is not None else latest.order if latest is not None else 0
        slot = _Slot(index, order, len(self._slots), latest)
        self._slots.append(slot)
        if index is not None:
            self._by_index[index] = slot
        self._why = why
        return slot

    def _take_name(self, slot: _Slot, name: str) -> None:
        known = slot.name
        if not known:
            slot.name = name
            slot.named_at = len(slot.fragments)
            self.new_names.append(name)
        elif name == known:
            slot.note("note:name_repeated")
        elif len(slot.fragments) > slot.named_at:
            slot.note("note:name_changed")  # arguments have begun: the first name stays
        elif len(known) > _NAME_LIMIT:
            return  # no name of a tool, whatever follows
        else:
            longer = name.startswith(known)
            if longer:
                slot.note("note:cumulative_name")
            slot.name = name if longer else known + name
            self.new_names.append(slot.name)

    def _drop(self, why: str) -> None:
        self.dropped_deltas += 1
        if self._trace is not None:
            self._trace(None, "a delta", why + ": dropped and counted")


class _Slot(Draft):
    __slots__ = ("_scan", "_scanned", "_size", "after", "arrival", "index", "named_at", "order", "root")

    def __init__(self, index: int | None, order: int, arrival: int, after: _Slot | None) -> None:
        super().__init__()
        self.index = index
        self.order = order  # where the result puts it, before arrival
        self.arrival = arrival
        self.after = after  # the slot that was current when this one appeared
        self.root: _Slot = self
        self.named_at = 0  # how many fragments there were when the name began
        self._scan: JsonScan | None = None
        self._scanned = 0  # fragments
        self._size = 0  # of those

    def continued_by(self, name: str, arguments: Fragment | None) -> bool:
        """Whether a head under another id or index is the middle of this call all the same."""
        return name == self.name and not self.custom and not starts_object(arguments) and self._state() == "unfinished"

    def followed_by(self, name: str, arguments: Fragment | None, *, any_name: bool) -> bool:
        """Whether a head without an id of its own is the next call rather than more of this one."""
        if self._state() != "complete":
            return False
        fresh = starts_object(arguments) or (any_name and name != self.name)
        return fresh and not self._resent(name, arguments)

    def _resent(self, name: str, arguments: Fragment | None) -> bool:
        if name != self.name or arguments is None:
            return False
        if isinstance(arguments, dict):
            return self.fragments == [arguments]
        return self._size == len(arguments) and self.text() == arguments

    def _state(self) -> str:
        """`empty`, `unfinished` or `complete`; only the fragments that came since the last look are scanned."""
        if self._scan is None:
            self._scan = JsonScan()
        for fragment in self.fragments[self._scanned :]:
            self._size += len(fragment)
            if isinstance(fragment, str):
                self._scan.feed(fragment)
            else:
                self._scan.complete = self._scan.started = True
        self._scanned = len(self.fragments)
        return "complete" if self._scan.complete else "unfinished" if self._scan.started else "empty"


def _joined(slot: _Slot, tails: list[_Slot]) -> Draft | None:
    """`slot` with the fragments of `tails`, if it is unfinished without them and an object with them."""
    try:
        if parse(slot.text()).text.strip():
            return None
    except ArgumentsMalformed:
        pass
    joined = Draft(slot.id, slot.name, custom=slot.custom)
    joined.fragments = [*slot.fragments, *(fragment for tail in tails for fragment in tail.fragments)]
    joined.notes = list(slot.notes or ())
    joined.extra = slot.extra
    try:
        parse(joined.text())
    except ArgumentsMalformed:
        return None
    joined.note("note:tail_reattached")
    for part in (slot, *tails):
        part.into = joined
    return joined


def _id(value: Any) -> str | None:
    if isinstance(value, str):
        return value if value and value != "null" else None
    return str(value) if type(value) is int else None
