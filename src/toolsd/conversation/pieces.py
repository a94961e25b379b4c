"""A result as what goes into a message: text, and the pictures that a provider takes."""

from __future__ import annotations

import base64
from collections.abc import Container
from typing import Any

from toolsd.content import Blob, Content, Json, Text
from toolsd.result import Result

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Piece = str | Blob


def pieces(result: Result, takes: Container[str]) -> list[Piece]:
    """The result in order: text, and blobs of the MIME types in `takes`. Everything else is described as text.

    Never empty; a result without any text is one empty text.
    """
    if not result.ok or not has_parts(result.content):
        return [result.text]
    found: list[Piece] = []
    for part in result.content:
        if isinstance(part, Blob) and mime(part) in takes and len(part.data):
            found.append(part)
            continue
        text = Content([part], "parts").text
        if found and isinstance(found[-1], str):
            found[-1] += "\n" + text
        else:
            found.append(text)
    return found or [result.text]


def has_parts(content: Any) -> bool:
    """Whether a result is a list of parts rather than a JSON value."""
    return isinstance(content, list) and bool(content) and all(isinstance(part, (Text, Json, Blob)) for part in content)


def mime(blob: Blob) -> str:
    """The MIME type without parameters, as providers compare it."""
    kind = blob.mime.partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def encoded(blob: Blob) -> str:
    """The data in base64."""
    return base64.b64encode(blob.data).decode()


def data_url(blob: Blob) -> str:
    return f"data:{mime(blob)};base64,{encoded(blob)}"
