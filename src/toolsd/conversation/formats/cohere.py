"""Cohere v2 chat. Its tool messages hold text and documents, so pictures are described."""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.names import NameRule
from toolsd.conversation.said import Said
from toolsd.conversation.schemas import Rules, Schema
from toolsd.streams.formats.base import mapping, sequence, text


class CohereSaid(Said):
    """The plan for the calls, and text."""

    def __init__(self) -> None:
        self._plan: list[str] = []
        self._text: list[str] = []

    def take(self, chunk: Any) -> None:
        kind = chunk.get("type")
        message = mapping(mapping(chunk.get("delta")).get("message"))
        if kind == "tool-plan-delta":
            self._plan.append(text(message.get("tool_plan")))
        elif kind == "content-delta":
            self._text.append(text(mapping(message.get("content")).get("text")))
        elif not kind and "message" in chunk:
            whole = mapping(chunk.get("message"))
            self._plan.append(text(whole.get("tool_plan")))
            self._text += [text(mapping(part).get("text")) for part in sequence(whole.get("content"))]

    def parts(self) -> list[Any]:
        """One dict with the keys of the assistant's message."""
        plan, content = "".join(self._plan), "".join(self._text)
        found: dict[str, Any] = {"tool_plan": plan} if plan else {}
        return [found | ({"content": [{"type": "text", "text": content}]} if content else {})]


class Cohere(Format):
    name: ClassVar[str] = "cohere"
    said: ClassVar[type[Said]] = CohereSaid
    # "Valid names contain only the characters a-z, A-Z, 0-9, _ and must not begin with a digit."
    names: ClassVar[NameRule] = NameRule("a-zA-Z_", "a-zA-Z0-9_", 64)
    # What its structured outputs do not take; with `strict_tools` a schema that has them is refused.
    rules: ClassVar[Rules] = Rules(
        unwanted=frozenset(
            {
                "allOf", "oneOf", "not", "if", "then", "else", "minimum", "maximum", "exclusiveMinimum",
                "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength",
                "minProperties", "maxProperties", "patternProperties", "propertyNames", "prefixItems", "contains",
            }
        )
    )  # fmt: skip

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        calls = [
            {"id": entry.id, "type": "function", "function": {"name": entry.name, "arguments": entry.arguments}}
            for entry in entries
        ]
        assistant = {"role": "assistant", **(said[0] if said else {}), "tool_calls": calls}
        return [assistant, *({"role": "tool", "tool_call_id": entry.id, "content": entry.text} for entry in entries)]
