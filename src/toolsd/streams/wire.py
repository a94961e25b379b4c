"""Text off the wire into JSON values: server-sent events, NDJSON, JSONL, or one JSON document, cut anywhere.

Owns framing only; it knows no provider. Whether a stream is events or lines shows in its first line that is not
blank. Lines are split as bytes and decoded whole, so a character cut in two by a read needs no care. (The decoders of
httpx-sse and of the SDKs start from whole lines and cost an HTTP client; the framing is less than what they need.)

Rules: WHATWG HTML section 9.2 for events, with two differences: an event that the end of the stream cut off before
its blank line is still read if its data is whole, and a line that starts with `{` is data, because some servers change
from events to plain JSON when they report an error.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_BOM = b"\xef\xbb\xbf"
_FIELD = re.compile(rb"(data|event|id|retry)[ \t]*:|:|(?:data|event)$")
_OUTSIDE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')
_SPACE = re.compile(r"[ \t\r\n]*")
_JSON = json.JSONDecoder()
# How a line begins, where a client that splits lines has taken their ends away.
_BEGINS = re.compile(rb"(?:data|event|id|retry):|:|\{")
_DONE = (b"", b"[DONE]")


class Item(NamedTuple):
    """One decoded piece: a JSON value with the name of its event, or a line that does not decode."""

    value: Any
    event: str | None = None
    undecodable: str | None = None


class WireDecoder:
    """Incremental; one per stream. `feed` text or bytes as they come, then `flush` once at the end."""

    __slots__ = ("_data", "_document", "_event", "_joinable", "_mode", "_pending", "_skip_newline", "_started")

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._joinable = True
        self._skip_newline = False
        self._started = False
        self._mode: str | None = None  # "events" | "lines" | "document"
        self._event: str | None = None
        self._data: list[bytes] = []
        self._document: _Document | None = None

    def feed(self, piece: str | bytes | bytearray | memoryview) -> list[Item]:
        """The items that are complete now."""
        data = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else bytes(piece)
        if self._skip_newline and data:
            self._skip_newline = False
            if data[:1] == b"\n":  # the second half of a CRLF that a read cut in two
                data = data[1:]
        if self._document is not None:
            return self._document.feed(data)
        if self._pending and self._joinable and _BEGINS.match(data):
            data = self._ended(data)
        if b"\n" not in data and b"\r" not in data:
            if data:
                self._pending.append(data)
            return []
        self._joinable = True
        self._skip_newline = data.endswith(b"\r")
        self._pending.append(data)
        lines = b"".join(self._pending).splitlines(keepends=True)
        self._pending = []
        if not lines[-1].endswith((b"\n", b"\r")):
            self._pending.append(lines.pop())
        return self._lines(lines)

    def _ended(self, data: bytes) -> bytes:
        """`data`, with the line end that is missing before it if what is pending is a whole line and cannot go on.

        Clients that iterate over lines hand them out without their ends. JSON that is whole does not continue with
        what begins a line, so a stream that is merely cut is never taken apart.
        """
        line = b"".join(self._pending).removeprefix(_BOM)
        self._pending = [line]
        if line.startswith((b"event:", b"id:", b"retry:", b":")):
            return b"\n" + data
        body = line.removeprefix(b"data:").strip()
        whole = body == b"[DONE]" or (body.endswith(b"}") and decode(body, None)[0].undecodable is None)
        # One look at an unfinished line is enough: many would cost its length each.
        self._joinable = whole
        return (b"\n\n" if line.startswith(b"data:") else b"\n") + data if whole else data

    def flush(self) -> list[Item]:
        """What is left when nothing more comes. The decoder is as new afterwards."""
        items: list[Item] = []
        if self._pending:
            rest = b"".join(self._pending)
            self._pending = []
            items += self._lines([rest])
        if self._document is not None:
            items += self._document.flush()
        elif self._mode == "events":
            items += self._dispatch()
        self.__init__()  # type: ignore[misc]  # back to the start: what follows is another piece of text
        return items

    def _lines(self, lines: list[bytes]) -> list[Item]:
        items: list[Item] = []
        for at, raw in enumerate(lines):
            line = raw.rstrip(b"\r\n")
            if not self._started:
                self._started = True
                line = line.removeprefix(_BOM)
            if self._mode is None and line.strip() not in _DONE:
                self._mode = _mode(line)
                if self._mode == "document":
                    self._document = _Document()
                    rest = b"".join([line + b"\n", *lines[at + 1 :], *self._pending])
                    self._pending = []
                    return items + self._document.feed(rest)
            if self._mode == "events":
                items += self._event_line(line)
            elif line.strip() not in _DONE:
                if _FIELD.match(line):  # a body of JSON lines that turns out to be events
                    self._mode = "events"
                    items += self._event_line(line)
                else:
                    items += decode(line, None)
        return items

    def _event_line(self, line: bytes) -> list[Item]:
        if not line:
            return self._dispatch()
        if line.startswith(b"{"):
            return [*self._dispatch(), *decode(line, None)]
        field, _, value = line.partition(b":")
        field, value = field.strip(), value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.strip().decode("utf-8", "replace")
        return []

    def _dispatch(self) -> list[Item]:
        event, data = self._event, self._data
        self._event, self._data = None, []
        if not data:
            return []
        text = b"\n".join(data)
        if text.strip() in _DONE:
            return []
        return decode(text, event)


class _Document:
    """Objects out of one JSON document that spans lines: a pretty-printed body, or an array that streams its elements.

    Every object outside of all objects is an item as soon as it ends. One look at each byte, whatever the cuts.
    """

    __slots__ = ("_depth", "_escaped", "_found", "_in_string", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # of the object that is open
        self._depth = 0  # brackets open inside of that object, its own included
        self._in_string = False
        self._escaped = False
        self._found = False

    def feed(self, data: bytes) -> list[Item]:
        items: list[Item] = []
        at = start = 0
        while at < len(data):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(data, at)
            if match is None:
                break
            at = match.end()
            token = match[0]
            if token == b'"':
                self._in_string = not self._in_string
            elif token == b"\\":
                self._escaped = True
            elif token in b"{[":
                if self._depth or token == b"{":
                    if not self._depth:
                        start = match.start()
                    self._depth += 1
            elif self._depth:
                self._depth -= 1
                if not self._depth:
                    self._parts.append(data[start:at])
                    items += decode(b"".join(self._parts), None)
                    self._parts = []
                    self._found = True
        if self._depth:
            self._parts.append(data[start:])
        return items

    def flush(self) -> list[Item]:
        if self._depth or not self._found:
            return [Item(None, None, b"".join(self._parts)[:200].decode("utf-8", "replace"))]
        return []


def _mode(line: bytes) -> str:
    if _FIELD.match(line):
        return "events"
    bare = line.strip()
    if bare.startswith(b"[") or bare == b"{":
        return "document"
    return "lines"


def decode(line: bytes, event: str | None) -> list[Item]:
    """The JSON value of a line, or all of them where several stand one after another; one lost item otherwise."""
    try:
        text = line.decode()
        return [Item(json.loads(text), event)]
    except json.JSONDecodeError as error:
        # Servers that forget the line ends between events send whole values side by side.
        found = _values(text) if error.msg == "Extra data" else None
    except (ValueError, RecursionError):  # not UTF-8, an integer of thousands of digits, a nesting without end
        found = None
    if found is None:
        return [Item(None, event, line[:200].decode("utf-8", "replace"))]
    return [Item(value, event) for value in found]


def _values(text: str) -> list[Any] | None:
    found: list[Any] = []
    at = 0
    try:
        while at < len(text):
            if text.startswith("[DONE]", at):
                at += len("[DONE]")
                continue
            value, at = _JSON.raw_decode(text, at)
            found.append(value)
            at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    except (ValueError, RecursionError):
        return None
    return found
