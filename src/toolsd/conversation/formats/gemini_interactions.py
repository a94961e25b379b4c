"""Gemini interactions: a conversation is a list of steps.

A request with `previous_interaction_id` has the model's steps already and takes only those of type `function_result`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.formats.blocks import SaidBlocks
from toolsd.conversation.formats.gemini import NAMES
from toolsd.conversation.names import NameRule
from toolsd.conversation.pieces import PICTURES, Piece, encoded, mime
from toolsd.conversation.said import CALL, Said, woven
from toolsd.conversation.schemas import Schema
from toolsd.streams.formats.base import key, mapping, text


class InteractionsSaid(SaidBlocks):
    """Thoughts with their signatures, and text."""

    def take(self, chunk: Any) -> None:
        kind = text(chunk.get("event_type"))
        index = key(chunk.get("index"))
        if kind == "step.start":
            step = mapping(chunk.get("step"))
            self.begin(index, CALL if step.get("type") == "function_call" else dict(step))
        elif kind == "step.delta" and isinstance(self.at(index), dict):
            self._grow(self.at(index), mapping(chunk.get("delta")))

    @staticmethod
    def _grow(step: dict[str, Any], delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        if kind == "text":
            content = step.setdefault("content", [])
            if content and mapping(content[-1]).get("type") == "text":
                content[-1]["text"] = text(content[-1].get("text")) + text(delta.get("text"))
            else:
                content.append({"type": "text", "text": text(delta.get("text"))})
        elif kind == "thought_signature" and delta.get("signature"):
            step["signature"] = delta["signature"]
        elif kind == "thought_summary" and delta.get("content"):
            step.setdefault("summary", []).append(delta["content"])

    def kept(self, block: Any) -> Any:
        return block if block.get("type") == "thought" or block.get("content") else None


class GeminiInteractions(Format):
    name: ClassVar[str] = "gemini-interactions"
    said: ClassVar[type[Said]] = InteractionsSaid
    names: ClassVar[NameRule] = NAMES

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        return {"type": "function", "name": name, "description": description, "parameters": schema}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        calls = [
            {"type": "function_call", "id": entry.id, "name": entry.name, "arguments": entry.input, **entry.extra}
            for entry in entries
        ]
        return [*woven(said, calls), *(_result(entry) for entry in entries)]


def _result(entry: Entry) -> dict[str, Any]:
    found = entry.pieces(PICTURES)
    plain = len(found) == 1 and isinstance(found[0], str)
    step = {
        "type": "function_result",
        "call_id": entry.id,
        "name": entry.name,
        "result": found[0] if plain else [_piece(piece) for piece in found],
    }
    return step if entry.result.ok else step | {"is_error": True}


def _piece(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    return {"type": "image", "mime_type": mime(piece), "data": encoded(piece)}
