"""One module per provider format, and which of them a chunk belongs to."""

from __future__ import annotations

from typing import Any

from toolsd.streams.formats.base import Adapter
from toolsd.streams.formats.openai_chat import OpenAIChat
from toolsd.streams.plain import read

__all__ = ["FORMATS", "Adapter", "OpenAIChat", "recognise"]

FORMATS: dict[str, type[Adapter]] = {"openai-chat": OpenAIChat}


def recognise(chunk: Any) -> type[Adapter] | None:
    """The format that `chunk` shows beyond doubt, None if it could be of several."""
    if read(chunk, "choices") is not None:
        return OpenAIChat
    return None
