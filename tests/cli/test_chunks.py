"""Recorded streams: every form a person may have one in, and what is not one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd.cli import chunks
from toolsd.errors import UsageError

CHUNKS = [{"choices": [{"delta": {"content": f"é{number}"}}]} for number in range(3)]
CASE = {"id": "one", "format": "openai-chat", "chunks": CHUNKS}


def read(tmp_path: Path, data: str | bytes, case: str | None = None) -> list[Any]:
    file = tmp_path / "stream"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(chunks.read(str(file), case))


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def sse(*values: Any, end: str = "\n") -> str:
    return "".join(f"data: {json.dumps(value)}{end}{end}" for value in values)


@pytest.mark.parametrize(
    "text",
    [
        lines(*CHUNKS),
        "\n\n" + "\n".join(lines(*CHUNKS).splitlines()),
        "\ufeff" + lines(*CHUNKS),
        json.dumps(CHUNKS),
        json.dumps(CHUNKS, indent=2),
        lines(CASE),
        json.dumps(CASE, indent=2),
        sse(*CHUNKS) + "data: [DONE]\n\n",
        sse(*CHUNKS, end="\r\n"),
        ": ping\n\nevent: message\nid: 3\n" + sse(*CHUNKS).rstrip("\n"),
        sse(*CHUNKS) + "data: [DONE]\n\n" + sse({"after": "the end"}),
    ],
    ids=[
        "jsonl",
        "blank-lines",
        "bom",
        "array",
        "indented-array",
        "case",
        "indented-case",
        "sse",
        "crlf",
        "fields",
        "done",
    ],
)
def test_forms(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == CHUNKS


def test_an_event_over_several_data_lines_is_one_chunk(tmp_path: Path) -> None:
    assert read(tmp_path, 'data: {"a":\ndata:  1}\n\n') == [{"a": 1}]


def test_a_damaged_event_is_kept_as_damage(tmp_path: Path) -> None:
    found = read(tmp_path, 'data: {"a": 1}\n\ndata: {"b": \n\ndata: 5\n\n')
    assert found == [{"a": 1}, chunks.Undecodable('{"b": '), chunks.Undecodable("5")]


def test_a_file_of_cases(tmp_path: Path) -> None:
    text = lines(CASE, {"id": "two", "chunks": CHUNKS[:1]})
    assert read(tmp_path, text, case="two") == CHUNKS[:1]
    with pytest.raises(UsageError, match=r"holds 2 recorded streams\n.*--case: one, two"):
        read(tmp_path, text)
    with pytest.raises(UsageError, match=r"no case 'tow'\n.*two"):
        read(tmp_path, text, case="tow")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b'{"a": 1}\n\xff\xfe\n', "line 2: not UTF-8"),
        (b'{"a": 1}\n{"b": \n', "line 2: not JSON"),
        (b'{"a": 1}\n[1]\n', "line 2: a chunk is a JSON object"),
        (b"[1, 2]", "chunk 1: a chunk is a JSON object"),
        (b'{"chunks": 5}', "are a list"),
        (b"hello", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1}\n' + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_a_stream_says_where(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, data)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("gone", "."):
        with pytest.raises(UsageError, match="cannot be read"):
            list(chunks.read(str(tmp_path / name)))


def test_chunks_come_as_soon_as_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def slowly() -> Iterator[bytes]:
        for number, chunk in enumerate(CHUNKS):
            taken.append(number)
            yield (json.dumps(chunk) + "\n").encode()

    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": slowly()}))
    reading = chunks.read("-")
    assert next(reading) == CHUNKS[0]
    assert taken == [0]


@given(st.binary(max_size=200))
def test_any_bytes_end_in_chunks_or_in_a_usage_error(data: bytes) -> None:
    stdin = type("Stdin", (), {"buffer": io.BytesIO(data)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        try:
            found = list(chunks.read("-"))
        except UsageError:
            return
    assert all(isinstance(chunk, (dict, chunks.Undecodable)) for chunk in found)
