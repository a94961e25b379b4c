"""What fills a slot, as bytes: a tool's result or its error, and the reports a running call sends.

Owns the format of outcomes and which Python values they can hold. Made in the worker, read in the client, moved
unread by everything between. Must not know messages, sources or schemas.

An outcome is one byte that says the kind, then the data: `t` UTF-8 text, `j` one JSON value, `e` a `SlotError` as
JSON, `p` parts: the length of a header (4 bytes, big-endian), the header (a JSON array with `[kind, mime, size]` for
each part, kind one of text, json, blob, image), then the data of the parts, end to end.
"""

from __future__ import annotations

import io
import re
from typing import Any, Literal

import msgspec

from toolsd.errors import PeerProtocolError, ResultInvalid, SlotError
from toolsd.plain import encode_json

# Text above this is encoded piece by piece into its outcome, so that no second copy of it exists on the way.
_PIECEWISE = 1024 * 1024

_MIME = re.compile(r"[\w.+*-]+/[\w.+*-]+(\s*;.*)?", re.ASCII)

Buffer = bytes | bytearray | memoryview
PartKind = Literal["text", "json", "blob", "image"]

_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class Text(msgspec.Struct, frozen=True):
    """Text as one part of several. Inside a list of parts a plain `str` means the same."""

    text: str


class Json(msgspec.Struct, frozen=True):
    """A JSON value as one part of several. Inside a list of parts any other plain value means the same."""

    value: Any


class Blob(msgspec.Struct, frozen=True):
    """Bytes with a MIME type.

    Raises:
        TypeError, ValueError: the data is no bytes, the MIME type is none.
    """

    data: Buffer
    mime: str = "application/octet-stream"

    def __post_init__(self) -> None:
        if not isinstance(self.data, Buffer):
            raise TypeError(f"the data of a {type(self).__name__} is bytes, not {type(self.data).__name__}")
        if not isinstance(self.mime, str) or not _MIME.fullmatch(self.mime):
            raise ValueError(f"{self.mime!r} is no MIME type; one looks like image/png")


class Image(Blob, frozen=True):
    """A picture. Without `mime` the type is read from the data (PNG, JPEG, GIF, WebP).

    Raises:
        ValueError: no `mime` was given and the data is none of these.
    """

    mime: str = ""

    def __post_init__(self) -> None:
        if not self.mime and isinstance(self.data, Buffer):
            msgspec.structs.force_setattr(self, "mime", _picture_type(bytes(self.data[:12])))
        Blob.__post_init__(self)


Part = Text | Json | Blob
_PARTS = (Text, Json, Blob)


class Content(msgspec.Struct, frozen=True):
    """A tool's result. `value` is text, a JSON value, or a list of parts (`Text`, `Json`, `Blob`, `Image`)."""

    value: Any
    kind: Literal["text", "json", "parts"]

    @property
    def text(self) -> str:
        """What the model should read: text as it is, JSON compactly, bytes and images as a note of type and size."""
        if self.kind == "parts":
            return "\n".join(_part_text(part) for part in self.value)
        return self.value if self.kind == "text" else _json_text(self.value)


# --- outcomes -------------------------------------------------------------------------------------------------------


def encode_result(value: Any) -> bytes:
    """The outcome for what a tool returned.

    `str` is text; `bytes`, `Blob`, `Image`, or a list with at least one part in it, are parts; everything else is one
    JSON value (`toolsd.plain` says which Python values have one), or text if its JSON form is a string.

    Raises:
        ResultInvalid: there is no JSON for it; names the path.
    """
    kind = type(value)
    if kind is str:
        return _encode_text(value)
    if kind is dict or value is None:
        return b"j" + encode_json(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _encode_parts((Blob(value),))
    if isinstance(value, _PARTS):
        return _encode_parts((value,))
    if isinstance(value, (list, tuple)) and any(issubclass(item, _PARTS) for item in set(map(type, value))):
        return _encode_parts(value)
    written = encode_json(value)
    # A date, an enum of text, a path: a model reads it as text, without quotes.
    return b"t" + msgspec.json.decode(written, type=str).encode() if written[:1] == b'"' else b"j" + written


def encode_error(error: SlotError) -> bytes:
    """The outcome for an error in a slot. Never fails: what cannot be sent of it is replaced or left out."""
    try:
        return b"e" + msgspec.json.encode(error)
    except (TypeError, ValueError, RecursionError, OverflowError):
        readable = error.message.encode("utf-8", "replace").decode()
        return b"e" + msgspec.json.encode(SlotError(error.code, readable))


def size_of(outcome: bytes) -> int:
    """How many bytes of an outcome are the result itself: text, JSON, or the data of its parts."""
    if outcome.startswith(b"p"):
        return len(outcome) - 5 - int.from_bytes(outcome[1:5], "big")
    return len(outcome) - 1


def decode(outcome: Any) -> SlotError | Content:
    """What an outcome says. `outcome` is bytes or any object with the buffer protocol (a received frame).

    Never raises: bytes that are no outcome come from a broken worker and are told as `result_invalid`.
    """
    view = outcome if type(outcome) is bytes else memoryview(outcome).cast("B")
    kind, data = bytes(view[:1]), view[1:]
    try:
        if kind == b"t":
            return Content(str(data, "utf-8"), "text")
        if kind == b"j":
            return Content(msgspec.json.decode(data), "json")
        if kind == b"p":
            return Content(_decode_parts(memoryview(data)), "parts")
        if kind == b"e":
            return msgspec.json.decode(data, type=SlotError)
        problem = f"its kind is {kind!r}"
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        problem = str(error)
    return SlotError("result_invalid", f"The worker sent a result that cannot be read: {problem}.")


def _encode_text(text: str) -> bytes:
    try:
        if len(text) < _PIECEWISE:
            return b"t" + text.encode()
        out = io.BytesIO()
        out.write(b"t")
        for at in range(0, len(text), _PIECEWISE):
            out.write(text[at : at + _PIECEWISE].encode())
        return out.getvalue()
    except UnicodeEncodeError as error:
        at = text.find(error.object[error.start])
        raise ResultInvalid(f"the text has a lone surrogate at position {at}, which no UTF-8 text can hold") from None


def _encode_parts(parts: Any) -> bytes:
    head: list[tuple[PartKind, str | None, int]] = []
    body: list[Buffer] = []
    for at, part in enumerate(parts):
        kind, mime, data = _encode_part(part, f"$[{at}]")
        head.append((kind, mime, len(data)))
        body.append(data)
    header = msgspec.json.encode(head)
    return b"".join((b"p", len(header).to_bytes(4, "big"), header, *body))


def _encode_part(part: Any, path: str) -> tuple[PartKind, str | None, Buffer]:
    if isinstance(part, (bytes, bytearray, memoryview)):
        part = Blob(part)
    if isinstance(part, Blob):
        data = part.data if isinstance(part.data, (bytes, bytearray)) else memoryview(part.data).cast("B")
        return ("image" if isinstance(part, Image) else "blob"), part.mime, data
    if isinstance(part, Text):
        part = part.text
    if isinstance(part, str):
        try:
            return "text", None, part.encode()
        except UnicodeEncodeError as error:
            raise ResultInvalid(f"the text has a lone surrogate at position {error.start}", path) from None
    return "json", None, encode_json(part.value if isinstance(part, Json) else part, path)


def _decode_parts(data: memoryview) -> list[Part]:
    size = int.from_bytes(data[:4], "big")
    head = msgspec.json.decode(data[4 : 4 + size], type=list[tuple[PartKind, str | None, int]])
    at, parts = 4 + size, list[Part]()
    for kind, mime, length in head:
        chunk = data[at : at + length]
        if length < 0 or len(chunk) != length:
            raise ValueError(f"a {kind} part of {length} bytes is cut")
        at += length
        if kind == "text":
            parts.append(Text(str(chunk, "utf-8")))
        elif kind == "json":
            parts.append(Json(msgspec.json.decode(chunk)))
        else:
            parts.append((Image if kind == "image" else Blob)(bytes(chunk), mime or "application/octet-stream"))
    return parts


def _part_text(part: Part) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Json):
        return part.value if isinstance(part.value, str) else _json_text(part.value)
    return f"[{part.mime}, {len(part.data)} bytes]"


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _picture_type(start: bytes) -> str:
    for magic, mime in _MAGIC:
        if start.startswith(magic):
            return mime
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError("this is no PNG, JPEG, GIF or WebP; say what it is with Image(data, mime='image/...')")


# --- reports of a running call --------------------------------------------------------------------------------------

LogLevel = Literal["debug", "info", "warning", "error"]


class Progress(msgspec.Struct, frozen=True, tag="progress", omit_defaults=True):
    """How far a call is: `done` of `total` (`None`: not known), in whatever unit the tool counts."""

    done: float
    total: float | None = None
    message: str | None = None


class LogRecord(msgspec.Struct, frozen=True, tag="log", omit_defaults=True):
    """A line of log from a running call, with the fields the tool gave beside it."""

    level: LogLevel
    message: str
    fields: dict[str, Any] = {}


class Output(msgspec.Struct, frozen=True, tag="output", omit_defaults=True):
    """Partial output: the next piece of text of a call that is still running. Not part of its result."""

    text: str


Report = Progress | LogRecord | Output
_report_decoder = msgspec.json.Decoder(Report)


def pack_report(report: Report) -> bytes:
    """A report as the payload of a progress message.

    Raises:
        ResultInvalid: a text, a number or a field in it cannot be sent; names it.
    """
    payload = encode_json(msgspec.structs.asdict(report) | {"type": report.__struct_config__.tag})
    try:
        _report_decoder.decode(payload)  # what was made with wrong types must fail here, not at the client
    except msgspec.ValidationError as error:
        raise ResultInvalid(f"this {type(report).__name__} is none: {error}") from None
    return payload


def unpack_report(payload: Any) -> Report:
    """The report that `pack_report` made.

    Raises:
        PeerProtocolError: the bytes are not that.
    """
    try:
        return _report_decoder.decode(payload)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise PeerProtocolError(f"not a report of a running call: {error}") from error
