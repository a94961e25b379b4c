"""Recorded completion streams: a file or stdin as what `CompletionAssembler.feed` takes, as soon as it can be read.

Raw text (server-sent events, JSONL, a JSON document) is passed on line by line. A recorded case, an object with its
stream under `chunks`, is unpacked here. Knows nothing of what a chunk means.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from toolsd.errors import UsageError


def read(file: str, case: str | None = None) -> Iterator[Any]:
    """The stream in `file` (`-` is stdin), as text in pieces or as chunks. `case` chooses one of several recorded.

    Raises:
        UsageError: nothing in it, not UTF-8, or no such case.
    """
    name = "stdin" if file == "-" else file
    if file == "-":
        yield from _pieces(sys.stdin.buffer, name, case)
        return
    try:
        with open(file, "rb") as stream:
            yield from _pieces(stream, name, case)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _pieces(stream: BinaryIO, name: str, case: str | None) -> Iterator[Any]:
    lines = _lines(stream, name)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        hint = "pipe a recorded stream into it, or name a file" if name == "stdin" else None
        raise UsageError(f"{name} is empty", hint=hint)
    text = first
    if first.lstrip().startswith("{") and _parsed(first) is None:
        text = "".join([first, *lines])  # one object over several lines, or damaged; either way it must be whole
    if "chunks" in (_parsed(text) or {}):
        yield from _pick([text, *lines], name, case)
        return
    if case is not None:
        raise UsageError(f"{name} is one stream, not a file of recorded cases; --case has nothing to choose from")
    yield text
    yield from lines


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{name}, line {number}: not UTF-8 text (byte 0x{line[error.start]:02x})") from error


def _parsed(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, if it is one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _pick(texts: list[str], name: str, wanted: str | None) -> list[Any]:
    cases = [case for text in texts if text.strip() and (case := _parsed(text)) is not None]
    ids = [str(case.get("id")) for case in cases]
    if wanted is None and len(cases) > 1:
        shown = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
        raise UsageError(f"{name} holds {len(cases)} recorded streams", hint=f"choose one with --case: {shown}")
    if wanted is not None and wanted not in ids:
        near = difflib.get_close_matches(wanted, ids, n=3)
        raise UsageError(f"{name} has no case {wanted!r}", hint=f"near: {', '.join(near)}" if near else None)
    chunks = cases[0 if wanted is None else ids.index(wanted)].get("chunks")
    if not isinstance(chunks, list):
        raise UsageError(f"{name}: the chunks of a recorded case are a list")
    return chunks
