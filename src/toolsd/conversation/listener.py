"""Listens to a stream beside its assembler. Which formats there are and what they remember is theirs."""

from __future__ import annotations

from typing import Any

from toolsd.conversation.formats import FORMATS
from toolsd.conversation.said import Said


class Listener:
    """Listens to a stream from its first decisive chunk on, and remembers in the shape of its format."""

    __slots__ = ("_said", "format")

    def __init__(self) -> None:
        self.format: str | None = None
        self._said = Said()

    def __call__(self, format: str | None, chunk: Any) -> None:
        if format != self.format:
            self.format = format
            shape = FORMATS.get(format or "")
            self._said = Said() if shape is None else shape.said()
        if type(chunk) is dict or self._said.takes_objects:
            self._said.take(chunk)

    def parts(self) -> list[Any]:
        return self._said.parts()
