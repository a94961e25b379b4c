"""Ollama's native chat chunks: every entry of `message.tool_calls` is a whole call, in whichever chunk it comes.

Calls usually have no ids here. The last chunk has `done: true` and may still hold calls.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft, Trace
from toolsd.streams.formats.base import Adapter, identity, mapping, sequence, text


class Ollama(Adapter):
    format: ClassVar[str | None] = "ollama"

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        super().__init__(strict=strict, trace=trace)
        self._drafts: list[Draft] = []

    def feed(self, chunk: Any) -> None:
        for call in sequence(mapping(chunk.get("message")).get("tool_calls")):
            if not isinstance(call, dict):
                self.drop(call, "not an object")
                continue
            function = mapping(call.get("function"))
            draft = Draft(identity(call.get("id")), text(function.get("name")), needs_id=False)
            self._drafts.append(self.open(draft, "a whole call"))
            self.append(draft, function.get("arguments"), "the same entry")
        if chunk.get("error"):
            self.failed = True
        if chunk.get("done") is True:
            self.say(chunk.get("done_reason") or "stop")

    def drafts(self) -> list[Draft]:
        return list(self._drafts)
