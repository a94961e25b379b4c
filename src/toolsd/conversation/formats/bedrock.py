"""Bedrock Converse: `toolConfig={"tools": ...}`, and content blocks with one key each.

Nova takes nothing but `type`, `properties` and `required` at the top of a schema, so references are inlined.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.formats.blocks import SaidBlocks
from toolsd.conversation.pieces import PICTURES, Piece, mime
from toolsd.conversation.said import CALL, Said, woven
from toolsd.conversation.schemas import Rules, Schema
from toolsd.streams.formats.base import key, mapping, sequence, text


class BedrockSaid(SaidBlocks):
    """Text and reasoning, by block."""

    def take(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        for name, body in (chunk if kind not in chunk and kind else {kind: chunk} if kind else chunk).items():
            self._event(name, mapping(body))

    def _event(self, name: str, body: dict[str, Any]) -> None:
        index = key(body.get("contentBlockIndex"))
        if name == "contentBlockStart" and "toolUse" in mapping(body.get("start")):
            self.begin(index, CALL)
        elif name == "contentBlockDelta":
            delta = mapping(body.get("delta"))
            if isinstance(delta.get("text"), str):
                self._grow(index, "text", delta["text"])
            for part, value in mapping(delta.get("reasoningContent")).items():
                self._grow(index, part, value)
        elif name == "output":
            for place, block in enumerate(sequence(mapping(body.get("message")).get("content"))):
                self.begin(place, CALL if "toolUse" in mapping(block) else {"whole": [block]})

    def _grow(self, index: int, part: str, value: Any) -> None:
        block = self.at(index)
        if not isinstance(block, dict):
            block = {"reasoning": part != "text" or None}
            self.begin(index, block)
        block.setdefault(part, []).append(value)

    def kept(self, block: Any) -> Any:
        if "whole" in block:
            return block["whole"][0]
        text = "".join(piece for piece in block.get("text", ()) if isinstance(piece, str))
        if "redactedContent" in block:
            return {"reasoningContent": {"redactedContent": b"".join(map(_bytes, block["redactedContent"]))}}
        if "signature" in block:
            signature = "".join(map(str, block["signature"]))
            return {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        return {"text": text} if text.strip() and not block.get("reasoning") else None


class Bedrock(Format):
    name: ClassVar[str] = "bedrock"
    said: ClassVar[type[Said]] = BedrockSaid
    rules: ClassVar[Rules] = Rules(
        top=frozenset({"type", "properties", "required"}),
        references=False,
        property_name=re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
    )
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[a-zA-Z0-9_-]{1,64}")
    id_prefix: ClassVar[str] = "tooluse_"

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        # A description has at least one character.
        return {"toolSpec": {"name": name, "description": description or name, "inputSchema": {"json": schema}}}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        calls = [{"toolUse": {"toolUseId": entry.id, "name": entry.name, "input": entry.input}} for entry in entries]
        return [
            {"role": "assistant", "content": woven(said, calls)},
            {"role": "user", "content": [{"toolResult": _result(entry)} for entry in entries]},
        ]


def _result(entry: Entry) -> dict[str, Any]:
    content = [_piece(piece) for piece in entry.pieces(PICTURES)]
    if isinstance(entry.result.content, dict):
        content = [{"json": entry.result.content}]
    return {"toolUseId": entry.id, "content": content, "status": "success" if entry.result.ok else "error"}


def _piece(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"text": piece or "(empty)"}  # blank text is refused
    return {"image": {"format": mime(piece).removeprefix("image/"), "source": {"bytes": bytes(piece.data)}}}


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else b""
