"""Messages <-> frames. The only module that knows msgpack, and the only one that decodes bytes from outside.

Messages go straight from bytes to the typed value and back (msgspec reads and writes msgpack). Hostile bytes cannot
make that allocate: msgspec grows what it reads with what is there, whatever length was claimed, and bounds nesting by
the interpreter's stack. Half of what decoding cost was the way over plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped]
import msgspec

from toolsd.errors import LocalProtocolError, PeerProtocolError
from toolsd.messages import Message

# A payload above this travels as a binary frame of its own, so it is never copied into or out of a header.
INLINE_MAX = 32 * 1024
# The sum of payloads that one header may carry before further ones get frames, whatever their size.
HEADER_BUDGET = 4 * 1024 * 1024
# What a header may measure at most: ten thousand calls with ids, names and small arguments stay far below.
HEADER_MAX = 16 * 1024 * 1024
# What one frame may measure at most; set on every socket (ZMQ_MAXMSGSIZE), where a larger one drops the connection.
FRAME_MAX = 256 * 1024 * 1024
FRAMES_MAX = 100_000

_encoder = msgspec.msgpack.Encoder()


def inline(payloads: Iterable[Any]) -> bool:
    """Whether all of these are small enough to stand in a header as they are. Spares most messages a `Frames`."""
    size = 0
    for payload in payloads:
        kind = type(payload)
        if kind is str:
            size += 4 * len(payload)  # what UTF-8 needs at most
        elif kind is bytes:
            size += len(payload)
        else:
            return False
    return size <= INLINE_MAX


class Frames:
    """Collects the large payloads of one message while its header is being built."""

    __slots__ = ("_left", "frames")

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self._left = HEADER_BUDGET

    def put(self, payload: Any) -> Any:
        """The payload itself, or the number of the binary frame it was put in.

        `payload` is str, bytes, or any object with a length and the buffer protocol (a received frame).

        Raises:
            LocalProtocolError: it is larger than a frame may be, or text that is not Unicode (lone surrogates).
        """
        size = len(payload)
        text = isinstance(payload, str)
        if text and not payload.isascii():
            size *= 4  # what UTF-8 needs at most
        if size <= INLINE_MAX and size <= self._left and (text or isinstance(payload, bytes)):
            self._left -= size
            return payload
        if text:
            try:
                payload = payload.encode()
            except UnicodeEncodeError as error:
                raise LocalProtocolError(f"a text cannot be encoded: {error}") from error
        if len(payload) > FRAME_MAX:
            raise LocalProtocolError(f"a payload has {len(payload)} bytes; {FRAME_MAX} are allowed")
        self.frames.append(payload)
        return len(self.frames) - 1


def encode(message: Message, frames: Sequence[Any] = ()) -> list[Any]:
    """`message` as frames to send.

    Raises:
        LocalProtocolError: the header is larger than `HEADER_MAX` or holds what msgpack cannot carry, or there are
            more than `FRAMES_MAX` frames.
    """
    try:
        head = message.kind + _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise LocalProtocolError(f"{type(message).__name__} cannot be encoded: {error}") from error
    if len(head) > HEADER_MAX:
        raise LocalProtocolError(
            f"{type(message).__name__} needs {len(head)} bytes of header; {HEADER_MAX} are allowed"
        )
    if len(frames) >= FRAMES_MAX:
        raise LocalProtocolError(f"{type(message).__name__} needs {len(frames)} frames; {FRAMES_MAX} are allowed")
    return [head, *frames]


class Decoder:
    """Decodes the messages of one direction of one link."""

    def __init__(self, accepted: Iterable[type[Message]]) -> None:
        self._decoders = {kind.kind[0]: (kind, msgspec.msgpack.Decoder(kind)) for kind in accepted}

    def decode(self, head: bytes) -> Message | None:
        """The message whose first frame is `head`, or `None` for a kind this version does not know.

        Raises:
            PeerProtocolError: empty, too large, too deep, truncated, or fields that do not fit; says which.
        """
        if not head or len(head) > HEADER_MAX:
            raise PeerProtocolError(f"a header has 1 to {HEADER_MAX} bytes, this one has {len(head)}")
        found = self._decoders.get(head[0])
        if found is None:
            return None
        kind, decoder = found
        try:
            return decoder.decode(memoryview(head)[1:])
        except msgspec.ValidationError as error:
            raise PeerProtocolError(f"{kind.__name__}: {error}") from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PeerProtocolError(f"{kind.__name__}: not a msgpack header ({error})") from error


def payload(value: Any, frames: Sequence[Any]) -> Any:
    """The payload that `value` stands for: itself, or the binary frame with that number.

    Raises:
        PeerProtocolError: there is no such frame.
    """
    if type(value) is not int:
        return value
    if not 0 <= value < len(frames):
        raise PeerProtocolError(f"the message names binary frame {value} and has {len(frames)}")
    return frames[value]


def pack(value: Any) -> bytes:
    """A plain value (dicts, lists, text, bytes, numbers) as msgpack bytes.

    Raises:
        LocalProtocolError: it holds what msgpack cannot carry.
    """
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise LocalProtocolError(f"cannot be encoded: {error}") from error


def unpack(data: Any, kind: Any = Any) -> Any:
    """The value that `pack` made, checked against `kind`.

    Raises:
        PeerProtocolError: the bytes are not that.
    """
    try:
        value = msgpack.unpackb(data, use_list=True, strict_map_key=False)
        return value if kind is Any else msgspec.convert(value, kind)
    except (
        ValueError,
        TypeError,
        RecursionError,
        msgspec.ValidationError,
        msgpack.exceptions.UnpackException,
    ) as error:
        raise PeerProtocolError(f"not a packed value ({str(error) or type(error).__name__})") from error
