"""One module per provider format, and which of them a chunk belongs to."""

from __future__ import annotations

from typing import Any

from toolsd.streams.formats import anthropic, bedrock, cohere
from toolsd.streams.formats.anthropic import Anthropic
from toolsd.streams.formats.base import Adapter, text
from toolsd.streams.formats.bedrock import Bedrock
from toolsd.streams.formats.cohere import Cohere
from toolsd.streams.formats.gemini import Gemini
from toolsd.streams.formats.gemini_interactions import GeminiInteractions
from toolsd.streams.formats.mistral import Mistral
from toolsd.streams.formats.ollama import Ollama
from toolsd.streams.formats.openai_chat import OpenAIChat
from toolsd.streams.formats.openai_responses import OpenAIResponses
from toolsd.streams.plain import read

__all__ = ["FORMATS", "Adapter", "OpenAIChat", "recognise"]

FORMATS: dict[str, type[Adapter]] = {
    str(kind.format): kind
    for kind in (
        OpenAIChat,
        OpenAIResponses,
        Anthropic,
        Gemini,
        GeminiInteractions,
        Bedrock,
        Cohere,
        Ollama,
        Mistral,
    )
}


def recognise(chunk: Any) -> type[Adapter] | None:
    """The format that `chunk` (a dict, or an object with attributes) shows beyond doubt, None if it shows none."""
    if read(chunk, "choices") is not None:
        return OpenAIChat
    if not isinstance(chunk, dict):  # of the events of openai's stream helper, one holds each chunk
        return OpenAIChat if read(chunk, "type") == "chunk" and read(chunk, "chunk") is not None else None
    kind = text(chunk.get("type"))
    if kind.startswith("response."):
        return OpenAIResponses
    if kind in anthropic.EVENTS or (kind == "message" and "content" in chunk):
        return Anthropic
    if kind in cohere.EVENTS:
        return Cohere
    if chunk.get("object") == "response":
        return OpenAIResponses
    if text(chunk.get("event_type")).startswith(("interaction", "step.", "content.")):
        return GeminiInteractions
    inner = chunk.get("response")
    if not _GEMINI.isdisjoint(inner if isinstance(inner, dict) else chunk):
        return Gemini
    if kind in bedrock.EVENTS or not bedrock.EVENTS.isdisjoint(chunk) or "stopReason" in chunk:
        return Bedrock
    if "done" in chunk and ("message" in chunk or "model" in chunk):
        return Ollama
    message = chunk.get("message")
    if isinstance(message, dict) and "finish_reason" in chunk:
        return Cohere
    if isinstance(chunk.get("data"), dict) and "choices" in chunk["data"]:
        return Mistral
    return None


_GEMINI = frozenset({"candidates", "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata"})
