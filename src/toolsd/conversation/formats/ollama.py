"""Ollama's own chat API. Arguments are objects, and a result is matched by its tool's name and by its place."""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.said import Said
from toolsd.conversation.schemas import Rules, Schema, Trimmer
from toolsd.streams.formats.base import mapping, text


class OllamaSaid(Said):
    """Text and thinking."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}

    def take(self, chunk: Any) -> None:
        message = mapping(chunk.get("message"))
        for key in ("content", "thinking"):
            if text(message.get(key)):
                self._said.setdefault(key, []).append(message[key])

    def parts(self) -> list[Any]:
        """One dict with the keys of the assistant's message."""
        return [{key: "".join(pieces) for key, pieces in self._said.items()}]


class OllamaTrimmer(Trimmer):
    """A union of plain types is written as a list of types: the server reads both, its Python client only the list."""

    def finished(self, schema: Schema, path: str) -> Schema:
        options = schema.get("anyOf")
        if isinstance(options, list) and "type" not in schema and options:
            bare = [option.get("type") for option in options if set(option) <= {"type"}]
            if len(bare) == len(options) and all(isinstance(kind, str) for kind in bare):
                del schema["anyOf"]
                schema["type"] = bare
        return super().finished(schema, path)


class Ollama(Format):
    name: ClassVar[str] = "ollama"
    said: ClassVar[type[Said]] = OllamaSaid
    trims: ClassVar[type[Trimmer]] = OllamaTrimmer
    needs_ids: ClassVar[bool] = False
    # The fields of `ToolFunctionParameters` and `ToolProperty` in its api/types.go; it drops all others unseen.
    rules: ClassVar[Rules] = Rules(
        keywords=frozenset({"type", "description", "items", "enum", "anyOf", "properties", "required"}),
        top=frozenset({"type", "properties", "required"}),
        references=False,
    )

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        calls = [{**_id(entry, "id"), "function": {"name": entry.name, "arguments": entry.input}} for entry in entries]
        assistant = {"role": "assistant", "content": "", **(said[0] if said else {}), "tool_calls": calls}
        results = [
            {"role": "tool", "tool_name": entry.name, **_id(entry, "tool_call_id"), "content": entry.text}
            for entry in entries
        ]
        return [assistant, *results]


def _id(entry: Entry, key: str) -> dict[str, Any]:
    return {} if entry.id is None else {key: entry.id}
