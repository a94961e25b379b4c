"""One module per provider format: how tools are offered to it, and how it takes calls and results back."""

from __future__ import annotations

from toolsd.conversation.formats.anthropic import Anthropic
from toolsd.conversation.formats.base import Format
from toolsd.conversation.formats.bedrock import Bedrock
from toolsd.conversation.formats.cohere import Cohere
from toolsd.conversation.formats.gemini import Gemini
from toolsd.conversation.formats.gemini_interactions import GeminiInteractions
from toolsd.conversation.formats.mcp import Mcp
from toolsd.conversation.formats.ollama import Ollama
from toolsd.conversation.formats.openai_chat import Mistral, OpenAIChat
from toolsd.conversation.formats.openai_responses import OpenAIResponses
from toolsd.errors import UsageError

FORMATS: dict[str, Format] = {
    shape.name: shape
    for shape in (
        OpenAIChat(),
        OpenAIResponses(),
        Anthropic(),
        Gemini(),
        GeminiInteractions(),
        Bedrock(),
        Cohere(),
        Ollama(),
        Mistral(),
        Mcp(),
    )
}


def known(format: str) -> str:
    """`format`, if it is one. Raises UsageError."""
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", hint=f"one of: {', '.join(FORMATS)}")
    return format
