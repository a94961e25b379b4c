"""OpenAI Responses events.

One call has three aliases (item id, call id, output index) and shows up to four times: as the item that was added, as
deltas, as `.done`, and as the finished item, alone or inside of the finished response. They are alternatives and never
added up; the finished item is trusted most, the added one least, and an empty one is absent. Only the call id is
published. Calls of the server's own tools (web search, code, MCP, tool search) are not calls.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft, Trace
from toolsd.streams.formats.base import Adapter, identity, mapping, sequence, text

_TEXT = {"function_call": "arguments", "custom_tool_call": "input"}
_ITEM = frozenset({"type", "status", "call_id", "name", "arguments", "input"})
_DELTA = {"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"}
_DONE = {"response.function_call_arguments.done": "arguments", "response.custom_tool_call_input.done": "input"}
_END = {
    "response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done",
}  # fmt: skip


class OpenAIResponses(Adapter):
    format: ClassVar[str | None] = "openai-responses"

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._items: list[_Call] = []
        self._by_item: dict[str, _Call | None] = {}  # None: an item that is no call of the client
        self._by_call: dict[str, _Call] = {}
        self._by_output: dict[int, _Call | None] = {}
        self._early: dict[str | int, list[str]] = {}  # deltas of items that were not announced yet

    def feed(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        if kind in _DELTA:
            self._delta(chunk, chunk.get("delta"))
        elif kind in _DONE:
            self._snapshot(chunk, chunk.get(_DONE[kind]))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            output = chunk.get("output_index")
            self._item(mapping(chunk.get("item")), output, finished=kind.endswith("done"))
        elif kind in _END:
            self._end(mapping(chunk.get("response")), kind)
        elif kind in ("error", "response.error") or (not kind and chunk.get("error")):
            self.failed = True
        elif chunk.get("object") == "response":
            self._end(chunk, "response." + text(chunk.get("status")))

    def finish(self) -> None:
        self.dropped = sum(len(fragments) for fragments in self._early.values())

    def drafts(self) -> list[Draft]:
        ordered = sorted(self._items, key=lambda call: call.output)
        return [*ordered]

    def _delta(self, event: dict[str, Any], delta: Any) -> None:
        if not delta:
            return
        call = self._find(event)
        if isinstance(call, _Call):
            self.append(call, delta, "its item")
        elif call == "unknown" and isinstance(delta, str):
            self._hold(event, delta)

    def _snapshot(self, event: dict[str, Any], value: Any) -> None:
        call = self._find(event)
        if isinstance(call, _Call):
            if value and isinstance(value, (str, dict)) and not call.finished:
                self.size += len(value)
                call.final = value
        elif call == "unknown" and isinstance(value, str) and value:
            self._hold(event, value)

    def _hold(self, event: dict[str, Any], fragment: str) -> None:
        alias = identity(event.get("item_id")) or event.get("output_index")
        self.size += len(fragment)
        self._early.setdefault(alias if isinstance(alias, (str, int)) else "", []).append(fragment)
        if self.trace is not None:
            self.trace(None, f"arguments for item {alias}", "not announced yet: held, and dropped if it never is")

    def _find(self, event: dict[str, Any]) -> _Call | str | None:
        """The call of a delta; None for an item that is no call, "unknown" for one that was not announced."""
        item, output = identity(event.get("item_id")), event.get("output_index")
        if item is not None and item in self._by_item:
            return self._by_item[item]
        # Some gateways mint item ids anew with every event; the output index stays.
        if type(output) is int:
            return self._by_output.get(output, "unknown")
        if item is None and self._items:
            return self._items[-1]
        return "unknown"

    def _item(self, item: dict[str, Any], output: Any, *, finished: bool) -> None:
        output = output if type(output) is int else None
        kind = text(item.get("type"))
        item_id, call_id = identity(item.get("id")), identity(item.get("call_id"))
        if kind not in _TEXT:
            if item_id is not None:
                self._by_item[item_id] = None
            if output is not None:
                self._by_output[output] = None
            return
        call = self._known(item_id, call_id, output, finished)
        if call is None:
            call = self._begin(item, kind, call_id, output)
        if item_id is not None:
            self._by_item[item_id] = call
        if output is not None:
            self._by_output[output] = call
        if call_id is not None:
            call.id = call.id or call_id
            self._by_call[call_id] = call
        if not call.name and text(item.get("name")):
            call.name = text(item.get("name"))
            self.new_names.append(call.name)
        for name, value in item.items():
            if name not in _ITEM and value is not None:
                call.keep(name, value)
        for alias in (item_id, output):
            for fragment in self._early.pop(alias, ()) if alias is not None else ():
                call.fragments.append(fragment)
        self._value(call, item.get(_TEXT[kind]), finished)

    def _value(self, call: _Call, value: Any, finished: bool) -> None:
        if not value or not isinstance(value, (str, dict)):
            return
        self.size += len(value)
        if finished:
            call.final, call.finished = value, True
        elif call.fallback is None:
            call.fallback = value
        if self.trace is not None:
            self.trace(
                call, "whole arguments", "the finished item" if finished else "the added item; deltas replace it"
            )

    def _known(self, item_id: str | None, call_id: str | None, output: int | None, finished: bool) -> _Call | None:
        near = (
            self._by_item.get(item_id) if item_id is not None else None,
            self._by_output.get(output) if output is not None else None,
        )
        for call in near:
            if call is not None and (call.id is None or call_id is None or call.id == call_id):
                return call
        owner = self._by_call.get(call_id) if call_id is not None else None
        if not finished and item_id is not None and output is not None:
            return None  # announced under an item and a place of its own: a second call, even if it says the same id
        return owner

    def _begin(self, item: dict[str, Any], kind: str, call_id: str | None, output: int | None) -> _Call:
        after = self._items[-1].output if self._items else 0
        call = _Call(call_id, text(item.get("name")), output if output is not None else after)
        call.custom = kind == "custom_tool_call"
        self._items.append(call)
        self.open(call, f"output item {output}")
        return call

    def _end(self, response: dict[str, Any], kind: str) -> None:
        for output, item in enumerate(sequence(response.get("output"))):
            if isinstance(item, dict) and item.get("type") in _TEXT:
                self._item(item, output, finished=True)
        status = text(response.get("status")) or kind.removeprefix("response.")
        if status == "failed" or response.get("error"):
            self.failed = True
        reason = text(mapping(response.get("incomplete_details")).get("reason"))
        self.say(reason or status)


class _Call(Draft):
    __slots__ = ("finished", "output")

    def __init__(self, id: str | None, name: str, output: int) -> None:
        super().__init__(id, name)
        self.output = output
        self.finished = False
