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
from toolsd.streams import CompletionAssembler


def chunk(index: int, name: str) -> dict[str, Any]:
    call = {"index": index, "id": f"call_{index}", "function": {"name": name, "arguments": "{}"}}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}


CHUNKS = [chunk(0, "é"), chunk(1, "two"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]
CASE = {"id": "one", "format": "openai-chat", "chunks": CHUNKS}


def read(tmp_path: Path, data: str | bytes, case: str | None = None) -> list[Any]:
    file = tmp_path / "stream"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(chunks.read(str(file), case))


def names(pieces: list[Any]) -> list[str]:
    assembler = CompletionAssembler()
    for piece in pieces:
        assembler.feed(piece)
    assembly = assembler.finish()
    assert not assembly.defects
    return [call.name for call in assembly.calls]


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
        "\ufeff" + lines(CASE),
        json.dumps(CASE, indent=2),
        sse(*CHUNKS) + "data: [DONE]\n\n",
        sse(*CHUNKS, end="\r\n"),
        ": ping\n\nevent: message\nid: 3\n" + sse(*CHUNKS).rstrip("\n"),
    ],
    ids=["jsonl", "blanks", "bom", "array", "indented", "case", "bom-case", "indented-case", "sse", "crlf", "fields"],
)
def test_forms(tmp_path: Path, text: str) -> None:
    assert names(read(tmp_path, text)) == ["é", "two"]


def test_a_file_of_cases(tmp_path: Path) -> None:
    text = lines(CASE, {"id": "two", "chunks": CHUNKS[1:]})
    assert names(read(tmp_path, text, case="two")) == ["two"]
    with pytest.raises(UsageError, match=r"holds 2 recorded streams\n.*--case: one, two"):
        read(tmp_path, text)
    with pytest.raises(UsageError, match=r"no case 'tow'\n.*two"):
        read(tmp_path, text, case="tow")


@pytest.mark.parametrize(
    ("data", "case", "message"),
    [
        (b"", None, "is empty"),
        (b" \n\n", None, "is empty"),
        (b'{"a": 1}\n\xff\xfe\n', None, "line 2: not UTF-8"),
        (b'{"chunks": 5}', None, "are a list"),
        (b'{"a": 1}', "one", "nothing to choose from"),
    ],
)
def test_what_is_not_a_stream_says_so(tmp_path: Path, data: bytes, case: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, data, case)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("gone", "."):
        with pytest.raises(UsageError, match="cannot be read"):
            list(chunks.read(str(tmp_path / name)))


def test_pieces_come_as_soon_as_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def slowly() -> Iterator[bytes]:
        for number, value in enumerate(CHUNKS):
            taken.append(number)
            yield (json.dumps(value) + "\n").encode()

    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": slowly()}))
    reading = chunks.read("-")
    assert json.loads(next(reading)) == CHUNKS[0]
    assert taken == [0]


@given(st.binary(max_size=200))
def test_any_bytes_end_in_pieces_or_in_a_usage_error(data: bytes) -> None:
    stdin = type("Stdin", (), {"buffer": io.BytesIO(data)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        try:
            found = list(chunks.read("-"))
        except UsageError:
            return
    assert all(isinstance(piece, str) for piece in found)
