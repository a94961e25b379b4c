"""`client.tools(format)` and `turn.messages()` where no SDK is needed: states of a turn, raw streams, names, async."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import toolsd
from toolsd import AsyncClient, UsageError
from toolsd.client import Tool

from .conftest import PATIENCE, Daemon


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(name: str, arguments: str, id: str | None = "call_1") -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": arguments}}]}


def test_tools_with_and_without_a_format(client: toolsd.Client) -> None:
    plain = client.tools()
    assert isinstance(plain[0], Tool)
    assert [tool["function"]["name"] for tool in client.tools("openai-chat")] == [tool.name for tool in plain]
    with pytest.raises(UsageError, match="unknown format"):
        client.tools("gpt")


def test_raw_bytes(client: toolsd.Client) -> None:
    turn = client.turn()
    for part in (chunk({"content": "Well: "}), chunk(call("echo", '{"text": "a"}')), chunk({}, "tool_calls")):
        turn.feed(b"data: " + json.dumps(part).encode() + b"\n\n")
    turn.finish()
    assert [(message["role"], message["content"]) for message in turn.messages()] == [
        ("assistant", "Well: "),
        ("tool", "a"),
    ]
    assert turn.messages() == turn.messages()


def test_another_format_than_the_stream(client: toolsd.Client) -> None:
    """What was said beside the calls is in the shape of the stream, so it stays with the host."""
    turn = client.turn()
    turn.feed([chunk({"content": "Well: "}), chunk(call("echo", '{"text": "a"}', "call:1")), chunk({}, "tool_calls")])
    turn.finish()
    said, answered = turn.messages("anthropic")
    (use,), (result,) = said["content"], answered["content"]
    assert use["input"] == {"text": "a"} and use["id"] == result["tool_use_id"] != "call:1"


def test_deltas_alone_and_finished_calls(client: toolsd.Client) -> None:
    turn = client.turn()
    turn.observe(call("echo", '{"text": "a"}')["tool_calls"])
    turn.finish()
    assert turn.messages()[0] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "echo", "arguments": '{"text": "a"}'}}
        ],
    }


def test_no_results_no_messages(client: toolsd.Client) -> None:
    turn = client.turn()
    turn.feed(chunk(call("echo", '{"text": "a"}')))
    with pytest.raises(UsageError, match="no results"):
        turn.messages()
    turn.feed(chunk({}, "length"))
    with pytest.raises(toolsd.CompletionDefective):
        turn.finish()
    with pytest.raises(UsageError, match="no results"):
        turn.messages()


def test_a_damaged_completion_that_is_run_all_the_same(client: toolsd.Client) -> None:
    turn = client.turn(on_defect="run")
    turn.feed([chunk(call("echo", '{"text": "a')), chunk({}, "length")])
    (result,) = turn.finish()
    said, answered = turn.messages()
    assert not result.ok and answered["content"] == result.text
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"INVALID_JSON": '{"text": "a'}


def test_async(daemon: Daemon) -> None:
    async def test() -> list[dict[str, Any]]:
        async with AsyncClient.connect(daemon.address) as client:
            assert await client.tools("anthropic")
            turn = client.turn()
            turn.feed([chunk(call("echo", '{"text": "a"}')), chunk({}, "tool_calls")])
            async for _ in turn:
                pass
            return turn.messages()

    assert asyncio.run(asyncio.wait_for(test(), PATIENCE))[1]["content"] == "a"
