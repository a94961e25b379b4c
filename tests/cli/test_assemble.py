"""`toolsd assemble`: its JSON is a promise, its text is for people, its status says whether the calls would run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolsd_workers.python import examples

from .conftest import Toolsd

FIVE = Path(examples.__file__).with_name("five_calls.jsonl")


def stream(*deltas: dict[str, Any], finish: str | None = "tool_calls") -> str:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None}]} for delta in deltas]
    if finish is not None:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return "".join(json.dumps(chunk) + "\n" for chunk in chunks)


def test_json_has_exactly_these_keys(toolsd: Toolsd) -> None:
    shown = toolsd("assemble", str(FIVE), "--json")
    assert shown.status == 0 and shown.out.count("\n") == 1
    document = json.loads(shown.out)
    assert [call["name"] for call in document["calls"]] == [
        "find_files", "save_note", "search_text", "read_note", "send_email",
    ]  # fmt: skip
    assert document["calls"][0] == {
        "index": 0,
        "id": "call_find",
        "name": "find_files",
        "arguments": '{"pattern": "*.py"}',
        "parsed": {"pattern": "*.py"},
        "defects": [],
        "notes": [],
    }
    del document["calls"]
    assert document == {"defects": [], "dropped_deltas": 0, "finish_reason": "tool_calls"}


def test_text_names_calls_in_order(toolsd: Toolsd) -> None:
    shown = toolsd("assemble", str(FIVE))
    assert [line.split() for line in shown.out.splitlines() if line[0].isdigit()] == [
        ["0", "find_files", "call_find"],
        ["1", "save_note", "call_note"],
        ["2", "search_text", "call_grep"],
        ["3", "read_note", "call_read"],
        ["4", "send_email", "call_mail"],
    ]
    assert "\x1b" not in shown.out


def test_a_defective_call_and_a_defective_completion_have_status_1(toolsd: Toolsd) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": '}}
    shown = toolsd("assemble", "-", "--json", stdin=stream(call))
    assert shown.status == 1
    assert json.loads(shown.out)["calls"][0]["defects"] == ["unparseable_arguments"]
    shown = toolsd("assemble", "-", "--json", stdin=stream(call, finish="length"))
    assert shown.status == 1
    assert json.loads(shown.out)["defects"] == ["finish_length"]


def test_a_model_cannot_steer_the_terminal(toolsd: Toolsd) -> None:
    arguments = '{"x": "\x1b[2J\x07"}'
    shown = toolsd(
        "assemble", "-", stdin=stream({"index": 0, "id": "\x9b", "function": {"name": "f", "arguments": arguments}})
    )
    assert "\x1b" not in shown.out and "\\x1b[2J" in shown.out and "\x9b" not in shown.out


def test_a_lone_surrogate_is_printed_as_an_escape(toolsd: Toolsd) -> None:
    text = stream({"index": 0, "id": "a\ud800", "function": {"name": "f", "arguments": "{}"}})
    assert json.loads(toolsd("assemble", "-", "--json", stdin=text).out)["calls"][0]["id"].startswith("a")
    assert toolsd("assemble", "-", stdin=text).status in (0, 1)


@pytest.mark.parametrize("text", ["hello", '{"a": 1}', "[1, 2]", "[" * 100_000, "5"])
def test_what_is_not_a_stream_is_usage(toolsd: Toolsd, text: str) -> None:
    shown = toolsd("assemble", "-", stdin=text)
    assert (shown.status, shown.out) == (2, "")
    assert "holds no completion stream" in shown.err


def test_an_empty_stdin_says_what_to_do(toolsd: Toolsd) -> None:
    shown = toolsd("assemble", "-")
    assert shown.status == 2 and "stdin is empty" in shown.err and "pipe a recorded stream" in shown.err
