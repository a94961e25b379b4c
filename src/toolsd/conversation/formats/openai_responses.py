"""OpenAI Responses: a conversation is a list of items, and an answer's own items go back as they came.

Reasoning goes back in front of its calls where it can: with `store=false` and without `encrypted_content` the service
does not know it any more, and refuses it. Then the calls go back without their item ids, which would ask for it.
A request with `previous_response_id` has the model's items already and takes only those of type `*_output`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.pieces import PICTURES, Piece, data_url
from toolsd.conversation.said import CALL, Said, woven
from toolsd.conversation.schemas import Schema
from toolsd.streams.formats.base import mapping, sequence, text

_CALLS = frozenset({"function_call", "custom_tool_call"})


class OpenAIResponsesSaid(Said):
    """The finished items of the answer, in their order."""

    def __init__(self) -> None:
        self._items: dict[int, Any] = {}
        self._stored = True

    def take(self, chunk: Any) -> None:
        kind = text(chunk.get("type"))
        if kind in ("response.output_item.done", "response.output_item.added"):
            place = chunk.get("output_index")
            self._item(place if type(place) is int else len(self._items), chunk.get("item"), kind.endswith("done"))
        elif chunk.get("object") == "response" or isinstance(chunk.get("response"), dict):
            response = chunk if chunk.get("object") == "response" else chunk["response"]
            if response.get("store") is False:
                self._stored = False
            for place, item in enumerate(sequence(response.get("output"))):
                if place not in self._items:
                    self._item(place, item, kind != "response.created")

    def parts(self) -> list[Any]:
        found = []
        for _, item in sorted(self._items.items(), key=lambda entry: entry[0]):
            lost = item is not CALL and item["type"] == "reasoning" and not self._stored
            if not lost or item.get("encrypted_content"):
                found.append(item)
        return found

    def _item(self, place: int, item: Any, finished: bool) -> None:
        item = mapping(item)
        kind = item.get("type")
        if kind in _CALLS:
            self._items[place] = CALL
        elif finished and isinstance(kind, str) and kind:
            self._items[place] = {key: value for key, value in item.items() if value is not None and key != "parsed"}


class OpenAIResponses(Format):
    name: ClassVar[str] = "openai-responses"
    said: ClassVar[type[Said]] = OpenAIResponsesSaid
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[!-~]{1,64}")

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        # Left out, `strict` is true here, and a schema with optional arguments is refused.
        return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        known = any(item is not CALL and item["type"] == "reasoning" for item in said)
        return [*woven(said, [_call(entry, known) for entry in entries]), *(_output(entry) for entry in entries)]


def _call(entry: Entry, with_item_id: bool) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "function_call", "call_id": entry.id, "name": entry.name}
    if entry.custom:
        item |= {"type": "custom_tool_call", "input": entry.free_text}
    else:
        item["arguments"] = entry.arguments
    return item | {key: value for key, value in entry.extra.items() if key != "id" or with_item_id}


def _output(entry: Entry) -> dict[str, Any]:
    found = entry.pieces(PICTURES)
    plain = len(found) == 1 and isinstance(found[0], str)
    return {
        "type": "custom_tool_call_output" if entry.custom else "function_call_output",
        "call_id": entry.id,
        "output": found[0] if plain else [_piece(piece) for piece in found],
    }


def _piece(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "input_text", "text": piece}
    return {"type": "input_image", "image_url": data_url(piece), "detail": "auto"}
