"""Outcomes: what goes in comes out, and what cannot go in is told with its path."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import pathlib
import tracemalloc
import uuid
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd import Blob, Image, Json, LogRecord, Output, PeerProtocolError, Progress, ResultInvalid, SlotError, Text
from toolsd.content import Content, decode, encode_error, encode_result, pack_report, unpack_report

PNG = b"\x89PNG\r\n\x1a\n rest"
text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=20,
)
parts = st.one_of(
    text.map(Text),
    json_values.map(Json),
    st.builds(Blob, st.binary(max_size=50), st.just("a/b")),
    st.builds(Image, st.binary(max_size=50), st.just("image/x")),
)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    more: Any = None


class Row(msgspec.Struct, tag=True, omit_defaults=True):
    value: Any
    count: int = 0


class Model(pydantic.BaseModel):
    when: datetime.date = datetime.date(2024, 5, 31)


@given(json_values)
def test_json_values_and_text_come_back_equal(value: Any) -> None:
    content = decode(encode_result(value))
    assert isinstance(content, Content)
    assert content.value == value
    assert type(content.value) is type(value)
    assert content.kind == ("text" if isinstance(value, str) else "json")
    if content.kind == "json":
        assert json.loads(content.text) == value


@given(st.lists(parts, min_size=1))
def test_parts_come_back_equal(value: list[Any]) -> None:
    content = decode(encode_result(value))
    assert isinstance(content, Content)
    assert content.value == value


def test_lists_may_mix_parts_with_plain_values() -> None:
    content = decode(encode_result(["a", {"b": 1}, Blob(bytearray(b"c"), "d/e"), Image(memoryview(PNG)), b"f"]))
    assert isinstance(content, Content)
    assert content.value == [
        Text("a"),
        Json({"b": 1}),
        Blob(b"c", "d/e"),
        Image(PNG, "image/png"),
        Blob(b"f", "application/octet-stream"),
    ]
    lines = ["a", '{"b":1}', "[d/e, 1 bytes]", "[image/png, 13 bytes]", "[application/octet-stream, 1 bytes]"]
    assert content.text.splitlines() == lines


@pytest.mark.parametrize(
    ("start", "mime"),
    [(PNG, "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF1234WEBP", "image/webp")],
)
def test_an_image_says_its_own_type(start: bytes, mime: str) -> None:
    assert Image(start).mime == mime


def test_an_image_of_no_known_type_must_name_it() -> None:
    with pytest.raises(ValueError, match="Image\\(data, mime="):
        Image(b"BM")
    assert Image(b"BM", "image/bmp").mime == "image/bmp"


@pytest.mark.parametrize(
    "make", [lambda: Blob("text"), lambda: Blob(b"", "png"), lambda: Image(5), lambda: Blob(b"", 5)]
)
def test_a_part_that_could_not_be_sent_cannot_be_made(make: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"bytes|MIME"):
        make()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1, [Colour.RED]), {"x": 1, "more": ["red"]}),
        (Point(1, Model()), {"x": 1, "more": {"when": "2024-05-31"}}),
        (Row(2), {"type": "Row", "value": 2}),
        (Row(Model()), {"type": "Row", "value": {"when": "2024-05-31"}}),
        ([Model()], [{"when": "2024-05-31"}]),
        ({Colour.RED: (1, 2)}, {"red": [1, 2]}),
        ({"when": datetime.datetime(2024, 5, 31, 9)}, {"when": "2024-05-31T09:00:00"}),
        ([datetime.timedelta(days=1), uuid.UUID(int=1), Decimal("1.50")], ["P1D", str(uuid.UUID(int=1)), "1.50"]),
        ({"path": pathlib.PurePosixPath("/a/b")}, {"path": "/a/b"}),
        ({3}, [3]),
        (range(3), [0, 1, 2]),
        (2**4000, 2**4000),
        (Colour.RED, "red"),
        (datetime.date(2024, 5, 31), "2024-05-31"),
    ],
)
def test_python_values_become_the_json_one_expects(value: Any, expected: Any) -> None:
    content = decode(encode_result(value))
    assert isinstance(content, Content)
    assert content.value == expected


def _endless() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["a"] = [loop]
    return loop


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        (float("nan"), "$", "nan"),
        ({"a": [1, float("-inf")]}, "$.a[1]", "-inf"),
        (Point(1, float("nan")), "$.more", "nan"),
        ({"a": {1: 2}}, "$.a", "str()"),
        ({("x", "y"): 1}, "$", "tuple"),
        (_endless(), "$.a[0]", "contains itself"),
        (_deep(100_000), "$", "too deeply"),
        ("a\ud800", "$", "position 1"),
        ({"a b": ["\udfff"]}, "$['a b'][0]", "surrogate"),
        ([Text("ok"), "\ud800"], "$[1]", "surrogate"),
        ([Text("ok"), {"x": float("nan")}], "$[1].x", "nan"),
        ({"x": object()}, "$.x", "object"),
        ([b"x"], "$[0]", "toolsd.Blob"),
        ({"picture": Image(PNG)}, "$.picture", "in a list"),
        ((i for i in "ab"), "$", "list("),
        (Row(Point), "$.value", "Point"),
        ([10**5000], "$[0]", "digits"),
    ],
)
def test_what_has_no_json_form_is_refused_with_its_path(value: Any, path: str, words: str) -> None:
    with pytest.raises(ResultInvalid) as refused:
        encode_result(value)
    assert refused.value.path == path
    assert words in str(refused.value)


@pytest.mark.parametrize("big", [b"x" * 2**24, "x" * 2**24, "ß" * 2**23])
def test_large_results_are_copied_once(big: bytes | str) -> None:
    size = 2**24
    tracemalloc.start()
    try:
        outcome = encode_result(big)
        assert size < len(outcome) < size + 100
        assert tracemalloc.get_traced_memory()[1] < 1.6 * size  # a growing buffer is somewhat larger than its content
    finally:
        tracemalloc.stop()
    content = decode(memoryview(outcome))
    assert isinstance(content, Content)
    assert (content.value[0].data if isinstance(big, bytes) else content.value) == big


@given(st.text(), text)
def test_errors_come_back_and_never_fail(message: str, code: str) -> None:
    error = decode(encode_error(SlotError(code, message)))
    assert isinstance(error, SlotError)
    assert error.code == code
    assert error.message == message.encode("utf-8", "replace").decode()


def test_details_that_cannot_be_sent_are_left_out() -> None:
    assert decode(encode_error(SlotError("tool_error", "m", {"x": object()}))) == SlotError("tool_error", "m")


@given(st.binary(max_size=60))
def test_bytes_that_are_no_outcome_are_an_error_not_an_exception(junk: bytes) -> None:
    for outcome in (junk, b"t" + junk, b"j" + junk, b"p" + junk, b"p\0\0\0\x02[]" + junk, b"e" + junk):
        assert isinstance(decode(outcome), (Content, SlotError))


@pytest.mark.parametrize(
    "report",
    [
        Progress(1, 2, "half"),
        Progress(0.5),
        Output("text"),
        LogRecord("warning", "m", {"a": [1]}),
        LogRecord("info", ""),
    ],
)
def test_reports_come_back_equal(report: Any) -> None:
    assert unpack_report(pack_report(report)) == report


UNTYPED: Any = "5"
REFUSED = [
    Progress(float("nan")),
    Output("\ud800"),
    LogRecord("info", "m", {"x": object()}),
    Progress(UNTYPED),
    Output(5),  # type: ignore[arg-type]
    LogRecord("warn", "m"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("report", REFUSED)
def test_reports_that_cannot_be_sent_are_refused(report: Any) -> None:
    with pytest.raises(ResultInvalid):
        pack_report(report)


@pytest.mark.parametrize("junk", [b"", b"{}", b'{"type":"other"}', b"\xff"])
def test_bytes_that_are_no_report_are_a_peer_error(junk: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        unpack_report(junk)
