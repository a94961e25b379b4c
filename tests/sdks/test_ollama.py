"""Ollama's client through a whole loop of two rounds."""

from __future__ import annotations

from typing import Any

import pytest

import toolsd

from .server import PICTURE, Provider, ndjson

ollama = pytest.importorskip("ollama")


def chunk(done: bool = False, **message: Any) -> dict[str, Any]:
    whole = {
        "model": "m",
        "created_at": "2025-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": ""} | message,
    }
    return whole | ({"done": True, "done_reason": "stop"} if done else {"done": False})


def call(name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def two_rounds(client: toolsd.Client, provider: Provider, first: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Stream, run, append, ask again: what was appended, and the same as the server got it in the second request."""
    provider.will_say(ndjson(first), "application/x-ndjson")
    provider.will_say(ndjson([chunk(content="It is "), chunk(content="sunny.", done=True)]), "application/x-ndjson")
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    tools = client.tools("ollama")
    api = ollama.Client(host=provider.url)
    for _ in range(2):
        turn = client.turn()
        for piece in api.chat(model="m", messages=messages, tools=tools, stream=True):
            turn.feed(piece)
        turn.finish()
        messages += turn.messages()
    assert turn.messages() == []
    declared = provider.requests[1].body["tools"]
    assert [tool["function"]["name"] for tool in declared] == ["forecast", PICTURE, "note"]
    assert declared[0]["function"]["parameters"]["required"] == ["city"]
    return messages[1:], provider.requests[1].body["messages"][1:]


def test_two_rounds(client: toolsd.Client, provider: Provider) -> None:
    calls = [call("forecast", {"city": "Oslo", "days": 1}), call(PICTURE, {"city": "Rome"})]
    appended, sent = two_rounds(
        client,
        provider,
        [
            chunk(thinking="hm"),
            chunk(content="Let me "),
            chunk(content="look.", tool_calls=[calls[0]]),
            chunk(tool_calls=[calls[1]], done=True),
        ],
    )
    assert appended == [
        {"role": "assistant", "thinking": "hm", "content": "Let me look.", "tool_calls": calls},
        {"role": "tool", "tool_name": "forecast", "content": '{"city":"Oslo","sky":["sun"]}'},
        {"role": "tool", "tool_name": PICTURE, "content": "radar of Rome\n[image/png, 69 bytes]"},
    ]
    assert sent == appended


def test_ids_are_kept_where_there_are_some(client: toolsd.Client, provider: Provider) -> None:
    """Newer servers send ids; the client of this version knows none and drops them on both sides."""
    calls = [call("note", {"input": "x"}, id="call_1"), call("note", {"input": "y"}, id="call_1"), call("nothing", {})]
    appended, sent = two_rounds(client, provider, [chunk(tool_calls=calls), chunk(done=True)])
    assert [message.get("content") for message in sent[1:]] == [message["content"] for message in appended[1:]]
    assert [entry["function"] for entry in sent[0]["tool_calls"]] == [entry["function"] for entry in calls]
    assert "there is no tool" in sent[3]["content"].lower() or "nothing" in sent[3]["content"]
