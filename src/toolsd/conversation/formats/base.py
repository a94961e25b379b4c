"""What a provider format is to a conversation: its limits on names, ids and schemas, and its shapes.

Knows no provider. The stream of a format is `toolsd.streams.formats`; the two go by the same names.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, ClassVar

from toolsd.conversation.names import LETTERS, NameRule
from toolsd.conversation.pieces import Piece, pieces
from toolsd.conversation.said import Said
from toolsd.conversation.schemas import Rules, Schema, Trimmer
from toolsd.errors import UsageError
from toolsd.result import Result
from toolsd.streams import ArgumentsMalformed, AssembledCall, parse_tool_call_arguments


class Entry:
    """One call and its result on their way into messages. `name` is one that the provider accepts."""

    def __init__(self, call: AssembledCall, id: str | None, name: str, result: Result) -> None:
        self.id = id
        self.name = name
        self.custom = call.custom
        self.extra = call.extra
        self.result = result
        self._text = call.arguments

    @cached_property
    def input(self) -> dict[str, Any]:
        """The arguments as an object, which most providers insist on. Text that is none is wrapped, as Anthropic
        advises for broken input, so that the model sees what it wrote."""
        if self.custom:
            return {"input": self._text}
        try:
            return parse_tool_call_arguments(self._text)
        except ArgumentsMalformed:
            return {"INVALID_JSON": self._text}

    @property
    def free_text(self) -> str:
        """The input of a custom tool."""
        return self._text

    @property
    def arguments(self) -> str:
        """The arguments as the text of an object: as the model wrote them, if that is what they are. Servers that
        parse the conversation refuse all of it for one call whose arguments are not."""
        text = self._text.strip()
        if not self.custom and text.startswith("{") and "INVALID_JSON" not in self.input:
            return self._text
        return json.dumps(self.input, ensure_ascii=False)

    def pieces(self, takes: frozenset[str] = frozenset()) -> list[Piece]:
        """The result: text, and pictures of the types in `takes`."""
        return pieces(self.result, takes)

    @property
    def text(self) -> str:
        return self.result.text


class Format:
    """One provider's shapes. `names` is what it lets a tool be called, `description_max` in characters."""

    name: ClassVar[str]
    names: ClassVar[NameRule] = LETTERS
    rules: ClassVar[Rules] = Rules()
    trims: ClassVar[type[Trimmer]] = Trimmer
    description_max: ClassVar[int | None] = None
    said: ClassVar[type[Said]] = Said
    # Calls that came without an id may go back without one.
    needs_ids: ClassVar[bool] = True
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[!-~]{1,64}")
    id_prefix: ClassVar[str] = "call_"

    def trimmer(self, schema: Any) -> Trimmer:
        return self.trims(self.rules, schema)

    def declare(self, name: str, description: str, schema: Schema) -> dict[str, Any]:
        """One tool."""
        raise NotImplementedError

    def listed(self, declared: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """All tools as the value of `tools=`."""
        return declared

    def messages(self, said: list[Any], entries: list[Entry]) -> list[dict[str, Any]]:
        """What the model said and called, and what came of it."""
        raise UsageError(f"{self.name} has no messages to append results to")

    def takes_id(self, id: str) -> bool:
        return self.ids.fullmatch(id) is not None

    def new_id(self, digest: str) -> str:
        """An id made from hexadecimal digits."""
        return self.id_prefix + digest[:24]
