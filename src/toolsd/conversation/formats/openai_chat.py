"""OpenAI Chat Completions, what imitates them, and Mistral, which differs in the ids it takes.

A tool's message holds text only, so pictures are described. Reasoning that a server streamed as `reasoning_content`
goes back under that name: DeepSeek refuses the next request without it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from toolsd.conversation.formats.base import Entry, Format
from toolsd.conversation.said import Said
from toolsd.conversation.schemas import Schema
from toolsd.streams.formats.base import mapping, sequence
from toolsd.streams.plain import plain


class OpenAIChatSaid(Said):
    """Text and reasoning of the choice that is the turn, the one with the lowest index."""

    takes_objects: ClassVar[bool] = True

    def __init__(self) -> None:
        self._choices: dict[int, dict[str, list[str]]] = {}

    def take(self, chunk: Any) -> None:
        choices = _field(chunk, "choices")
        if choices is None:
            choices = _field(_field(chunk, "data") or _field(chunk, "chunk"), "choices")
        if not isinstance(choices, (list, tuple)):
            return
        for position, choice in enumerate(choices):
            delta = _field(choice, "delta")
            if delta is None:
                delta = _field(choice, "message")
            content = _field(delta, "content")
            if type(delta) is dict:
                reasoning = delta.get("reasoning_content")
            else:
                # litellm declares it; to openai and others it is unknown, and they are slow to say that there is none.
                extra, declared = _field(delta, "__pydantic_extra__"), _field(delta, "__dict__")
                reasoning = (extra or {}).get("reasoning_content") or (declared or {}).get("reasoning_content")
            index = _field(choice, "index")
            said = self._choices.setdefault(index if type(index) is int else position, {})
            if content:
                _add(said, "content", content)
            if reasoning:
                _add(said, "reasoning_content", reasoning)

    def parts(self) -> list[Any]:
        """One dict with the keys that something was said under."""
        said = self._choices[min(self._choices)] if self._choices else {}
        return [{key: "".join(pieces) for key, pieces in said.items()}]


class OpenAIChat(Format):
    name: ClassVar[str] = "openai-chat"
    said: ClassVar[type[Said]] = OpenAIChatSaid
    # "Invalid 'tools[0].function.description': string too long", and 40 for an id of a call.
    description_max: ClassVar[int | None] = 1024
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[!-~]{1,40}")

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        spoken = said[0] if said else {}
        assistant = {"role": "assistant", "content": None, **spoken, "tool_calls": [_call(entry) for entry in entries]}
        return [assistant, *(self.result(entry) for entry in entries)]

    def result(self, entry: Entry) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": entry.id, "content": entry.text}


class Mistral(OpenAIChat):
    name: ClassVar[str] = "mistral"
    description_max: ClassVar[int | None] = None
    # "Tool call id ... must be a-z, A-Z, 0-9, with a length of 9."
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[a-zA-Z0-9]{9}")

    def result(self, entry: Entry) -> dict[str, Any]:
        return super().result(entry) | {"name": entry.name}

    def new_id(self, digest: str) -> str:
        return digest[:9]


def _call(entry: Entry) -> dict[str, Any]:
    if entry.custom:
        what = {"type": "custom", "custom": {"name": entry.name, "input": entry.free_text}}
    else:
        what = {"type": "function", "function": {"name": entry.name, "arguments": entry.arguments}}
    return {"id": entry.id, **what, **entry.extra}


def _add(said: dict[str, list[str]], key: str, value: Any) -> None:
    if not isinstance(value, str):  # Mistral's list of text and thinking
        parts = [mapping(plain(part)).get("text") for part in sequence(plain(value))]
        value = "".join(part for part in parts if isinstance(part, str))
    if value:
        said.setdefault(key, []).append(value)


def _field(thing: Any, key: str) -> Any:
    """`toolsd.streams.plain.read` for what its adapter has read before: quicker, since no foreign mapping is here."""
    if type(thing) is dict:
        return thing.get(key)
    try:
        return getattr(thing, key, None)
    except Exception:  # noqa: BLE001 -- as there
        return None
