"""Recorded completion streams: a file or stdin as provider chunks, one at a time, as soon as each can be read.

Understands JSONL (a chunk a line), a JSON array of chunks, a recorded case (an object with `chunks`), a file of such
cases, and raw server-sent events. Knows nothing of what a chunk means.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from toolsd.errors import UsageError

_SSE_FIELDS = ("data:", "event:", "id:", "retry:", ":")


class Undecodable(NamedTuple):
    """An event whose data is not JSON: the stream was damaged on its way. `text` is the data."""

    text: str


def read(file: str, case: str | None = None) -> Iterator[Any]:
    """The chunks in `file` (`-` is stdin); a server-sent event that does not decode is an `Undecodable`.

    Raises:
        UsageError: nothing in it, not UTF-8, not JSON, not chunks, or no such case; names the line.
    """
    name = "stdin" if file == "-" else file
    if file == "-":
        yield from _chunks(sys.stdin.buffer, name, case)
        return
    try:
        with open(file, "rb") as stream:
            yield from _chunks(stream, name, case)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _chunks(stream: BinaryIO, name: str, case: str | None) -> Iterator[Any]:
    lines = _lines(stream, name)
    first = next(((number, line) for number, line in lines if line.strip()), None)
    if first is None:
        hint = "pipe a recorded stream into it, or name a file" if name == "stdin" else None
        raise UsageError(f"{name} is empty", hint=hint)
    lines = chain([first], lines)
    start = first[1].lstrip()
    if start.startswith(_SSE_FIELDS):
        return _events(line for _, line in lines)
    if start.startswith("[") or (start.startswith("{") and not _is_json(start)):
        return _document("".join(line for _, line in lines), name)
    return _objects(lines, name, case)


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(stream, 1):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{name}, line {number}: not UTF-8 text (byte 0x{line[error.start]:02x})") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _load(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UsageError(f"{where}: nested too deeply") from error
    except ValueError as error:
        hint = "expected JSON lines, a JSON array of chunks, a recorded case, or server-sent events"
        raise UsageError(f"{where}: not JSON ({error})", hint=hint) from error


def _document(text: str, name: str) -> Iterator[Any]:
    value = _load(text, name)
    if isinstance(value, dict) and "chunks" in value:
        value = value["chunks"]
    chunks = value if isinstance(value, list) else [value]
    for number, chunk in enumerate(chunks, 1):
        yield _object(chunk, f"{name}, chunk {number}")


def _objects(lines: Iterator[tuple[int, str]], name: str, case: str | None) -> Iterator[Any]:
    objects = (
        _object(_load(line, f"{name}, line {number}"), f"{name}, line {number}")
        for number, line in lines
        if line.strip()
    )
    first = next(objects)
    if "chunks" not in first:
        return chain([first], objects)
    return iter(_pick([first, *objects], name, case))


def _pick(cases: list[Any], name: str, wanted: str | None) -> list[Any]:
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
    return [_object(chunk, f"{name}, chunk {number}") for number, chunk in enumerate(chunks, 1)]


def _object(value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: a chunk is a JSON object, this is {type(value).__name__}")
    return value


def _events(lines: Iterator[str]) -> Iterator[Any]:
    """Server-sent events (WHATWG HTML, "Interpreting an event stream"); the data of each is one chunk."""
    data: list[str] = []
    for line in chain((line.rstrip("\r\n") for line in lines), [""]):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text = "\n".join(data)
            data.clear()
            if text.strip() == "[DONE]":
                return
            try:
                chunk = json.loads(text)
            except (ValueError, RecursionError):
                chunk = None
            yield chunk if isinstance(chunk, dict) else Undecodable(text)
