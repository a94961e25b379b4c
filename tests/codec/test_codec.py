"""Frames: what is sent is what arrives, and no bytes from outside raise anything but the documented error."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd import codec, messages
from toolsd.core.instructions import BatchRecord
from toolsd.core.model import ToolSpec
from toolsd.errors import Evidence, Failure, LedgerEntry, LocalProtocolError, PeerProtocolError
from toolsd.messages import WireCall

ALL = {
    kind
    for group in (messages.FROM_CLIENT, messages.TO_CLIENT, messages.FROM_WORKER, messages.TO_WORKER)
    for kind in group
}

text = st.text(st.characters(codec="utf-8"), max_size=20)
number = st.integers(0, 2**40)
seconds = st.none() | st.floats(0, 1e6)
json_value = st.recursive(
    st.none() | st.booleans() | number | text, lambda inner: st.dictionaries(text, inner, max_size=3), max_leaves=5
)
specs = {
    WireCall: st.builds(WireCall, st.none() | text, text, text | number, st.none() | text),
    ToolSpec: st.builds(ToolSpec, text, text, st.none() | st.dictionaries(text, json_value, max_size=2)),
    BatchRecord: st.builds(
        BatchRecord, text, number, number, st.none() | number, st.lists(number).map(tuple), st.floats(0, 1e6)
    ),
    Failure: st.builds(
        Failure,
        text,
        text,
        evidence=st.none() | st.builds(Evidence, pid=st.none() | number, elapsed=seconds),
        ledger=st.lists(
            st.builds(LedgerEntry, number, st.none() | text, text, st.none() | text, st.just("started"))
        ).map(tuple),
    ),
}
fields: dict[str, st.SearchStrategy[Any]] = {
    "versions": st.lists(number).map(tuple),
    "names": st.lists(text).map(tuple),
    "defects": st.lists(text).map(tuple),
    "calls": st.lists(specs[WireCall]).map(tuple),
    "tools": st.lists(specs[ToolSpec]).map(tuple),
    "batches": st.lists(specs[BatchRecord]).map(tuple),
    "results": st.lists(st.tuples(number, st.binary(max_size=20) | number)).map(tuple),
    "failure": specs[Failure],
    "payload": st.binary(max_size=20) | number,
    "args": st.dictionaries(text, json_value, max_size=3),
    "body": st.binary(max_size=20) | number,
    "deadline": seconds,
    "turn": st.text(st.characters(codec="utf-8"), min_size=1, max_size=messages.TURN_ID_MAX),
    "outcome": st.sampled_from([None, "stopped", "killed", "finished_first"]),
    "on_defect": st.sampled_from(["refuse", "run"]),
    "on_crash": st.sampled_from([None, "fail_turn", "fail_calls"]),
    "stream": st.booleans(),
    "flush": st.booleans(),
    "reentrant": st.booleans(),
    **dict.fromkeys(("pid", "ask", "batch", "slot", "index", "region", "version"), number),
}


def messages_of(kind: type[messages.Message]) -> st.SearchStrategy[messages.Message]:
    return st.builds(kind, **{name: fields.get(name, text) for name in kind.__struct_fields__})


@pytest.mark.parametrize("kind", sorted(ALL, key=lambda kind: kind.__name__))
def test_every_message_comes_back_equal(kind: type[messages.Message]) -> None:
    @given(messages_of(kind))
    def round_trip(message: messages.Message) -> None:
        head, *rest = codec.encode(message)
        assert rest == []
        assert codec.Decoder([kind]).decode(head) == message

    round_trip()


def test_kinds_are_distinct_within_each_direction() -> None:
    for group in (messages.FROM_CLIENT, messages.TO_CLIENT, messages.FROM_WORKER, messages.TO_WORKER):
        assert len({kind.kind for kind in group}) == len(group)


decoders = [
    codec.Decoder(group)
    for group in (messages.FROM_CLIENT, messages.TO_CLIENT, messages.FROM_WORKER, messages.TO_WORKER)
]
kind_bytes = st.sampled_from(sorted({kind.kind for kind in ALL}))


@given(kind_bytes, st.binary(max_size=200))
def test_hostile_bytes_raise_only_the_documented_error(kind: bytes, body: bytes) -> None:
    for decoder in decoders:
        with contextlib.suppress(PeerProtocolError):
            decoder.decode(kind + body)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | text | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text | number, inner, max_size=4),
    max_leaves=10,
)
known_names = st.sampled_from(sorted({name for kind in ALL for name in kind.__struct_fields__}))


@given(kind_bytes, plain | st.dictionaries(known_names, plain, max_size=8))
def test_well_packed_nonsense_raises_only_the_documented_error(kind: bytes, body: Any) -> None:
    for decoder in decoders:
        with contextlib.suppress(PeerProtocolError):
            decoder.decode(kind + msgpack.packb(body))


@given(st.sampled_from(sorted(ALL, key=lambda kind: kind.__name__)).flatmap(messages_of), st.data())
def test_a_truncated_header_is_refused(message: messages.Message, data: st.DataObject) -> None:
    [head] = codec.encode(message)
    cut = data.draw(st.integers(0, len(head) - 1))
    with pytest.raises(PeerProtocolError):
        codec.Decoder([type(message)]).decode(head[:cut])


def test_unknown_kinds_and_keys_are_ignored() -> None:
    decoder = codec.Decoder(messages.FROM_CLIENT)
    assert decoder.decode(b"\xfeanything") is None
    head = b"C" + msgpack.packb({"turn": "t", "from_the_future": [1, 2]})
    assert decoder.decode(head) == messages.CancelTurn(turn="t")


@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 100_000 + b"\xc0",  # an array in an array in an array ...
        b"\x81\xa4turn" * 50_000 + b"\xc0",
        b"\xdd\xff\xff\xff\xff",  # an array of four thousand million
        b"\xdf\xff\xff\xff\xff",  # a map of as many
        b"\xc6\xff\xff\xff\xff",  # bytes of as many
        b"\xc9\xff\xff\xff\xff\x01",  # an extension of as many
        b"\x81\xa4turn\xa2\xff\xfe",  # not UTF-8
        b"\x81\xa4turn\xa3\xed\xa0\x80",  # a lone surrogate
        b"\x81\xa4turn\xc1",  # never used in msgpack
        b"\x80\x80",  # something after the end
        b"",
    ],
)
def test_hostile_lengths_and_depths_are_refused_at_once(body: bytes) -> None:
    with pytest.raises(PeerProtocolError, match="CancelTurn"):
        codec.Decoder(messages.FROM_CLIENT).decode(b"C" + body)


def test_a_misfit_names_its_path() -> None:
    body = {"turn": "t", "calls": [["id", "tool", "{}", None], ["id", 7, "{}"]]}
    with pytest.raises(PeerProtocolError, match=r"Run: .*str.*calls\[1\]\[1\]"):
        codec.Decoder(messages.FROM_CLIENT).decode(b"R" + msgpack.packb(body))


def test_headers_are_bounded_both_ways() -> None:
    with pytest.raises(LocalProtocolError, match="bytes of header"):
        codec.encode(messages.CancelTurn(turn="x" * codec.HEADER_MAX))
    with pytest.raises(PeerProtocolError, match="1 to"):
        codec.Decoder(messages.FROM_CLIENT).decode(b"C" + b"x" * codec.HEADER_MAX)
    with pytest.raises(PeerProtocolError, match="1 to"):
        codec.Decoder(messages.FROM_CLIENT).decode(b"")
    with pytest.raises(LocalProtocolError, match="frames"):
        codec.encode(messages.CancelTurn(turn="x"), [b""] * codec.FRAMES_MAX)


@given(
    st.lists(text | st.binary(max_size=30) | st.sampled_from([b"x" * 40_000, "y" * 40_000, "ä" * 9_000]), max_size=9)
)
def test_payloads_survive_wherever_they_travel(payloads: list[str | bytes]) -> None:
    frames = codec.Frames()
    placed = [frames.put(payload) for payload in payloads]
    for given_payload, value in zip(payloads, placed, strict=True):
        back = codec.payload(value, frames.frames)
        if isinstance(given_payload, str) and not isinstance(back, str):
            back = back.decode()
        assert back == given_payload


def test_many_payloads_never_outgrow_the_header() -> None:
    for payload in ("a" * 30_000, "ä" * 8_000, "\U0001f600" * 8_000, b"b" * 30_000):
        frames = codec.Frames()
        calls = tuple(WireCall(f"call_{i}", "tool", frames.put(payload)) for i in range(2_000))  # type: ignore[arg-type]
        head, *rest = codec.encode(messages.Run(turn="t", calls=calls), frames.frames)
        assert len(head) < codec.HEADER_MAX
        assert rest


@pytest.mark.parametrize("number", [-1, 1, 2**40])
def test_a_frame_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(PeerProtocolError, match="binary frame"):
        codec.payload(number, [b"only"])


@pytest.mark.parametrize("size", [1, 50_000])
def test_lone_surrogates_are_our_mistake_not_a_broken_link(size: int) -> None:
    with pytest.raises(LocalProtocolError):
        frames = codec.Frames()
        call = WireCall("id", "tool", frames.put("\ud800" * size))
        codec.encode(messages.Run(turn="t", calls=(call,)), frames.frames)


def test_a_payload_larger_than_a_frame_is_refused_before_it_is_sent() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return codec.FRAME_MAX + 1

    with pytest.raises(LocalProtocolError, match="are allowed"):
        codec.Frames().put(Huge())


@given(plain)
def test_packed_values_come_back(value: Any) -> None:
    back = codec.unpack(codec.pack(value))
    assert msgspec.msgpack.encode(back) == msgspec.msgpack.encode(value)


@given(st.binary(max_size=100))
def test_unpacking_hostile_bytes_raises_only_the_documented_error(data: bytes) -> None:
    try:
        codec.unpack(data)
        codec.unpack(data, dict[str, int])
    except PeerProtocolError:
        pass


def test_what_msgpack_cannot_carry_is_our_mistake() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (2**64, object(), {1: deep}, "\ud800"):
        with pytest.raises(LocalProtocolError):
            codec.pack(value)
    while deep:  # taken apart by hand: its own destructor would recurse as deep
        deep = deep[0]


def test_extension_types_are_refused() -> None:
    for data in (msgpack.packb(msgpack.ExtType(5, b"x")), struct.pack("!BBI", 0xD6, 0xFF, 1)):
        with pytest.raises(PeerProtocolError):
            codec.unpack(data, dict[str, int])


@pytest.mark.parametrize(
    "claim",
    [b"\x81\xa5calls\xdd\xff\xff\xff\xff", b"\x81\xa5calls" + b"\xdd\x00\xff\xff\xff" * 200, b"\xdf\xff\xff\xff\xff",
     b"\x81\xa4turn\xdb\xff\xff\xff\xff", b"\x81\xa4more\xc6\xff\xff\xff\xff"],
)  # fmt: skip
def test_a_claimed_length_takes_no_memory(claim: bytes) -> None:
    decoder = codec.Decoder(messages.FROM_CLIENT)
    tracemalloc.start()
    try:
        with pytest.raises(PeerProtocolError):
            decoder.decode(b"R" + claim)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
