"""Gemini generateContent, from the Gemini API or Vertex: parts with thought signatures.

A call without an id is matched by its place, so none is made up. Since Gemini 3 a result may hold pictures; an older
model refuses the request that has one, so there they are described.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.formats.gemini_schema import RULES, GeminiTrimmer
from toolsd.conversation.names import NameRule
from toolsd.conversation.pieces import encoded, has_parts, mime
from toolsd.conversation.said import CALL, Said, woven
from toolsd.conversation.schemas import Rules, Schema, Trimmer
from toolsd.streams.formats.base import mapping, sequence, text

# "Must start with a letter or an underscore"; dots and colons are taken by some versions of the API only.
NAMES = NameRule("a-zA-Z_", "a-zA-Z0-9_-", 63)
_MEDIA = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf"})
_WITHOUT_MEDIA = re.compile(r"(models/)?gemini-[12]\b")


class Model(str):
    """The model that spoke, among what it said."""


class GeminiSaid(Said):
    """All parts of the candidate that is the turn, the one with the lowest index; text in a row is one part."""

    def __init__(self) -> None:
        self._candidates: dict[int, list[Any]] = {}
        self._model = ""

    def take(self, chunk: Any) -> None:
        chunk = chunk["response"] if isinstance(chunk.get("response"), dict) else chunk
        self._model = text(_get(chunk, "modelVersion")) or self._model
        for candidate in sequence(chunk.get("candidates")):
            index = candidate.get("index") if isinstance(candidate, dict) else None
            parts = self._candidates.setdefault(index if type(index) is int else 0, [])
            for part in sequence(mapping(mapping(candidate).get("content")).get("parts")):
                if isinstance(part, dict):
                    self._part(parts, part)

    def parts(self) -> list[Any]:
        said = self._candidates[min(self._candidates)] if self._candidates else []
        joined = [{**part, "text": "".join(part["text"])} if _is_text(part) else part for part in said]
        kept = [part for part in joined if part is CALL or set(part) - {"text", "thought"} or part.get("text")]
        return [*([Model(self._model)] if self._model else []), *kept]

    @staticmethod
    def _part(parts: list[Any], part: dict[str, Any]) -> None:
        call = _get(part, "functionCall")
        if isinstance(call, dict):
            if call.get("name") or call.get("id") or call.get("args"):
                parts.append(CALL)
            return
        kept = {_CAMEL.get(key, key): value for key, value in part.items() if value is not None}
        if isinstance(kept.get("text"), str):
            last = parts[-1] if parts and _is_text(parts[-1]) else None
            same = last is not None and bool(last.get("thought")) == bool(kept.get("thought"))
            if same and last is not None and not last.get("thoughtSignature"):
                last["text"].append(kept.pop("text"))
                last.update(kept)
                return
            kept["text"] = [kept["text"]]
        parts.append(kept)


class Gemini(Format):
    name: ClassVar[str] = "gemini"
    said: ClassVar[type[Said]] = GeminiSaid
    names: ClassVar[NameRule] = NAMES
    rules: ClassVar[Rules] = RULES
    trims: ClassVar[type[Trimmer]] = GeminiTrimmer
    needs_ids: ClassVar[bool] = False

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        # An object without properties is refused; a function without parameters has none.
        given = {"parameters": schema} if schema.get("properties") else {}
        return {"name": name, "description": description, **given}

    def listed(self, declared: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"functionDeclarations": declared}] if declared else []

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        models = [part for part in said if isinstance(part, Model)]
        takes = frozenset[str]() if models and _WITHOUT_MEDIA.match(models[0]) else _MEDIA
        parts = woven([part for part in said if not isinstance(part, Model)], [_call(entry) for entry in entries])
        results = [{"functionResponse": _response(entry, takes)} for entry in entries]
        return [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]


def _call(entry: Entry) -> dict[str, Any]:
    call = {"name": entry.name, "args": entry.input}
    return {"functionCall": call if entry.id is None else {"id": entry.id, **call}, **entry.extra}


def _response(entry: Entry, takes: frozenset[str]) -> dict[str, Any]:
    result = entry.result
    found = entry.pieces(takes)
    said = "\n".join(piece for piece in found if isinstance(piece, str))
    whole = not result.ok or has_parts(result.content)
    response = {"output" if result.ok else "error": said if whole else result.content}
    answer: dict[str, Any] = {"name": entry.name, "response": response}
    media = [{"inlineData": {"mimeType": mime(p), "data": encoded(p)}} for p in found if not isinstance(p, str)]
    if media:
        answer["parts"] = media
    return answer if entry.id is None else {"id": entry.id, **answer}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), list)


_CAMEL = {
    "thought_signature": "thoughtSignature",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
}


def _get(thing: dict[str, Any], name: str) -> Any:
    """A field under its JSON name, or under the name that protobuf's Python dumps use."""
    if name in thing:
        return thing[name]
    return thing.get(re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), name))
