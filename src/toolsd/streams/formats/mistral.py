"""Mistral's chat stream: OpenAI Chat chunks, which its SDK wraps in an event each. Ids may be the text `null`."""

from __future__ import annotations

from typing import ClassVar

from toolsd.streams.formats.openai_chat import OpenAIChat


class Mistral(OpenAIChat):
    format: ClassVar[str | None] = "mistral"
