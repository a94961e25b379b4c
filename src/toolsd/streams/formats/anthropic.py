"""Anthropic Messages events.

Only `tool_use` blocks are calls; `server_tool_use`, `mcp_tool_use` and their results run at the provider. The `input`
of a start event is a placeholder, or the whole input where no delta follows. A stop event does not prove that the
input is whole, and no stop reason makes or cancels a call.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft
from toolsd.streams.formats.base import identity, key, mapping, sequence, text
from toolsd.streams.formats.blocks import Blocks

EVENTS = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    }
)
_BLOCK = frozenset({"type", "id", "name", "input"})


class Anthropic(Blocks):
    format: ClassVar[str | None] = "anthropic"
    repeats = frozenset({"input_json", "text", "thinking", "signature", "citation"})

    def feed(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        if kind == "content_block_delta":
            delta = mapping(chunk.get("delta"))
            if delta.get("type") == "input_json_delta" or "partial_json" in delta:
                self.grow(key(chunk.get("index")), delta.get("partial_json"))
        elif kind == "content_block_start":
            block = mapping(chunk.get("content_block"))
            self.start(key(chunk.get("index")), _call(block) if block.get("type") == "tool_use" else None)
        elif kind == "content_block_stop":
            self.stop(key(chunk.get("index")))
        elif kind == "message_delta":
            self.say(mapping(chunk.get("delta")).get("stop_reason"))
        elif kind in ("message_start", "message"):
            self._whole(mapping(chunk.get("message")) if kind == "message_start" else chunk)
        elif kind == "error" or "error" in chunk:
            self.failed = True

    def _whole(self, message: dict[str, Any]) -> None:
        """A message with content in it: the body of an answer that was not streamed after all."""
        for index, block in enumerate(sequence(message.get("content"))):
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self.start(index, _call(block))
                self.stop(index)
        self.say(message.get("stop_reason"))


def _call(block: dict[str, Any]) -> Draft:
    draft = Draft(identity(block.get("id")), text(block.get("name")))
    given = block.get("input")
    draft.fallback = given if isinstance(given, (str, dict)) else None
    for name, value in block.items():
        if name not in _BLOCK and value is not None:
            draft.keep(name, value)
    return draft
