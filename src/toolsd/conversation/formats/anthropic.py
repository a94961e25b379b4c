"""Anthropic Messages.

The assistant's blocks go back in the order they came: a request with thinking switched on is refused unless the turn
begins with its thinking, signature included. All results of a turn are in one user message.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.formats.blocks import SaidBlocks
from toolsd.conversation.pieces import PICTURES, Piece, encoded, mime
from toolsd.conversation.said import CALL, Said, woven
from toolsd.conversation.schemas import Rules, Schema
from toolsd.streams.formats.base import key, mapping, sequence, text

_GROWS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class AnthropicSaid(SaidBlocks):
    """Every block but the calls: text, thinking, and tools that ran at the provider with their results."""

    def take(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        index = key(chunk.get("index"))
        if kind == "content_block_start":
            self._start(index, mapping(chunk.get("content_block")))
        elif kind == "content_block_delta":
            self._grow(self.at(index), mapping(chunk.get("delta")))
        elif kind in ("message_start", "message"):
            message = mapping(chunk.get("message")) if kind == "message_start" else chunk
            for place, block in enumerate(sequence(message.get("content"))):
                self._start(place, mapping(block))

    def _start(self, index: int, block: dict[str, Any]) -> None:
        call = block.get("type") == "tool_use"
        self.begin(index, CALL if call else {key: [value] if key in _TEXTS else value for key, value in block.items()})

    @staticmethod
    def _grow(block: Any, delta: dict[str, Any]) -> None:
        if not isinstance(block, dict):
            return
        kind = text(delta.get("type"))
        grows = _GROWS.get(kind)
        if grows is not None:
            block.setdefault(grows, []).append(text(delta.get(grows)))
        elif kind == "citations_delta":
            block["citations"] = [*sequence(block.get("citations")), delta.get("citation")]
        elif kind == "input_json_delta":
            block.setdefault(_INPUT, []).append(text(delta.get("partial_json")))

    def kept(self, block: Any) -> Any:
        pieces = block.get(_INPUT)
        whole = {
            name: "".join(piece for piece in value if isinstance(piece, str)) if name in _TEXTS else value
            for name, value in block.items()
            if name != _INPUT and value is not None
        }
        if pieces and "".join(pieces).strip():
            try:
                whole["input"] = json.loads("".join(pieces))
            except ValueError:
                return None
        kind = whole.get("type")
        if not kind or (kind == "text" and not whole.get("text", "").strip()):
            return None  # blank text is refused
        if kind == "thinking" and not whole.get("signature"):
            return None  # cut off, or from a server that signs nothing; it cannot be verified
        return whole


_TEXTS = frozenset(_GROWS.values())
_INPUT = "partial_json"


class Anthropic(Format):
    name: ClassVar[str] = "anthropic"
    said: ClassVar[type[Said]] = AnthropicSaid
    # "tools.0.custom.input_schema.properties: Property keys should match pattern"
    rules: ClassVar[Rules] = Rules(property_name=re.compile(r"[a-zA-Z0-9_.-]{1,64}"))
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    id_prefix: ClassVar[str] = "toolu_"

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        return {"name": name, "description": description, "input_schema": schema}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        calls = [
            {"type": "tool_use", "id": entry.id, "name": entry.name, "input": entry.input, **_sent_back(entry.extra)}
            for entry in entries
        ]
        return [
            {"role": "assistant", "content": woven(said, calls)},
            {"role": "user", "content": [_result(entry) for entry in entries]},
        ]


def _sent_back(extra: dict[str, Any]) -> dict[str, Any]:
    """Who made the call (programmatic tool calling) must be said again; nothing else of a call is taken."""
    return {"caller": extra["caller"]} if isinstance(extra.get("caller"), dict) else {}


def _result(entry: Entry) -> dict[str, Any]:
    found = entry.pieces(PICTURES)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": entry.id}
    if len(found) == 1 and isinstance(found[0], str):
        block["content"] = found[0]
    else:
        block["content"] = [_piece(piece) for piece in found if piece != ""]
    if not entry.result.ok:
        block["is_error"] = True
    return block


def _piece(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    return {"type": "image", "source": {"type": "base64", "media_type": mime(piece), "data": encoded(piece)}}
