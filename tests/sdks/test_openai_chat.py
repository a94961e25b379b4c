"""OpenAI's client, and others that speak Chat Completions, through a whole loop of two rounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

import toolsd

from .server import PICTURE, Chunk, Provider, accepted, sse

openai = pytest.importorskip("openai")
types = pytest.importorskip("openai.types.chat")


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def call(index: int, id: str | None, name: str | None, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function, **({"id": id, "type": "function"} if id else {}), **more}


def said(text: str) -> list[Chunk]:
    return [chunk({"role": "assistant", "content": text}), chunk({}, "stop")]


def two_rounds(client: toolsd.Client, provider: Provider, first: list[Chunk], **options: Any) -> list[dict[str, Any]]:
    """Stream, run, append, ask again: the messages of the second request, as the server got them."""
    provider.will_say(sse(first, done=True))
    provider.will_say(sse(said("It is sunny."), done=True))
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    tools = client.tools("openai-chat")
    with openai.OpenAI(base_url=provider.url, api_key="k", max_retries=0) as api:
        for _ in range(2):
            turn = client.turn(**options)
            for piece in api.chat.completions.create(model="m", messages=messages, tools=tools, stream=True):
                turn.feed(piece)
            turn.finish()
            messages += turn.messages()
    assert turn.messages() == []
    for request in provider.requests:
        assert [tool["function"]["name"] for tool in request.body["tools"]] == [
            "forecast",
            PICTURE,
            "note",
        ]
    accepted(types.ChatCompletionMessageParam, messages)
    accepted(types.ChatCompletionToolUnionParam, tools)
    sent: list[dict[str, Any]] = provider.requests[1].body["messages"]
    assert sent == messages
    return sent


def test_two_rounds(client: toolsd.Client, provider: Provider) -> None:
    sent = two_rounds(
        client,
        provider,
        [
            chunk({"role": "assistant", "content": "Let me "}),
            chunk({"content": "look.", "reasoning_content": "hm"}),
            chunk({"tool_calls": [call(0, "call_a", "forecast", "")]}),
            chunk({"tool_calls": [call(1, "call_b", PICTURE, '{"city"')]}),
            chunk({"tool_calls": [call(0, None, None, '{"city": "Oslo", "days": 1}')]}),
            chunk({"tool_calls": [call(1, None, None, ': "Rome"}')]}),
            chunk({"tool_calls": [call(2, "call_c", "forecast", '{"city": "Rome", "days": 30}')]}),
            chunk({}, "tool_calls"),
        ],
    )
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "forecast", "arguments": '{"city": "Oslo", "days": 1}'},
                },
                {
                    "id": "call_b",
                    "type": "function",
                    "function": {"name": PICTURE, "arguments": '{"city": "Rome"}'},
                },
                {
                    "id": "call_c",
                    "type": "function",
                    "function": {"name": "forecast", "arguments": '{"city": "Rome", "days": 30}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": '{"city":"Oslo","sky":["sun"]}'},
        {"role": "tool", "tool_call_id": "call_b", "content": "radar of Rome\n[image/png, 69 bytes]"},
        {"role": "tool", "tool_call_id": "call_c", "content": "nobody knows the weather beyond 14 days"},
    ]


def test_broken_streams(client: toolsd.Client, provider: Provider) -> None:
    """No id, an id twice, arguments that are none, a name that no provider takes: the next request is whole again."""
    sent = two_rounds(
        client,
        provider,
        [
            b": a comment\r\n\r\n",
            chunk({"tool_calls": [call(0, "same", "forecast", '{"city": "Oslo", "days": 1}')]}),
            chunk({"tool_calls": [call(1, "same", "note", '{"input": "x"}')]}),
            chunk({"tool_calls": [call(2, None, "note", "")]}),
            chunk({"tool_calls": [call(2, None, None, "{'input': x")]}),
            chunk({"tool_calls": [call(3, "odd", "no<|such|>tool", "{}")]}),
            chunk({}, "tool_calls"),
        ],
    )
    assistant, *results = sent[1:]
    ids = [entry["id"] for entry in assistant["tool_calls"]]
    assert ids == [result["tool_call_id"] for result in results] and len(set(ids)) == 4
    assert ids[0] == "same" and ids[3] == "odd" and all(ids)
    assert assistant["tool_calls"][2]["function"]["arguments"] == json.dumps({"INVALID_JSON": "{'input': x"})
    assert assistant["tool_calls"][3]["function"]["name"].startswith("no_such_tool_")
    assert "JSON" in results[2]["content"]
