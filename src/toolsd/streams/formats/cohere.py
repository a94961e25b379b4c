"""Cohere v2 chat events: a call starts, grows and ends under an index of its own, between text and plan events."""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft
from toolsd.streams.formats.base import identity, key, mapping, sequence, text
from toolsd.streams.formats.blocks import Blocks

EVENTS = frozenset(
    {
        "message-start", "message-end", "content-start", "content-delta", "content-end", "tool-plan-delta",
        "tool-call-start", "tool-call-delta", "tool-call-end", "citation-start", "citation-end",
    }
)  # fmt: skip


class Cohere(Blocks):
    format: ClassVar[str | None] = "cohere"

    def feed(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        index = key(chunk.get("index"))
        delta = mapping(chunk.get("delta"))
        if kind == "tool-call-delta":
            for call in _calls(delta):
                self.grow(index, mapping(call.get("function")).get("arguments"))
        elif kind == "tool-call-start":
            for call in _calls(delta):
                function = mapping(call.get("function"))
                self.start(index, Draft(identity(call.get("id")), text(function.get("name"))))
                self.grow(index, function.get("arguments"))
        elif kind == "tool-call-end":
            self.stop(index)
        elif kind == "message-end":
            self.say(delta.get("finish_reason"))
            if delta.get("error"):
                self.failed = True
        elif not kind and "message" in chunk:
            self._whole(chunk)
        elif kind == "error" or "error" in chunk:
            self.failed = True

    def _whole(self, body: dict[str, Any]) -> None:
        """An answer that was not streamed."""
        for index, call in enumerate(sequence(mapping(body.get("message")).get("tool_calls"))):
            function = mapping(mapping(call).get("function"))
            self.start(index, Draft(identity(mapping(call).get("id")), text(function.get("name"))))
            self.grow(index, function.get("arguments"))
            self.stop(index)
        self.say(body.get("finish_reason"))


def _calls(delta: dict[str, Any]) -> list[dict[str, Any]]:
    return [call for call in sequence(mapping(delta.get("message")).get("tool_calls")) if isinstance(call, dict)]
