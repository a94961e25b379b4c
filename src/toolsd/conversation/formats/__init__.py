"""One module per provider format: how tools are offered to it, and how it takes calls and results back."""

from __future__ import annotations

from toolsd.conversation.formats.anthropic import Anthropic
from toolsd.conversation.formats.base import Format
from toolsd.conversation.formats.mcp import Mcp
from toolsd.conversation.formats.openai_chat import Mistral, OpenAIChat
from toolsd.errors import UsageError

FORMATS: dict[str, Format] = {
    shape.name: shape
    for shape in (
        OpenAIChat(),
        Anthropic(),
        Mistral(),
        Mcp(),
    )
}


def known(format: str) -> str:
    """`format`, if it is one. Raises UsageError."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", hint=f"one of: {', '.join(FORMATS)}")
    return format
