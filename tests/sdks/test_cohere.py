"""Cohere's client (API v2) through a whole loop of two rounds."""

from __future__ import annotations

from typing import Any

import pytest

import toolsd

from .server import PICTURE, Chunk, Provider, sse

cohere = pytest.importorskip("cohere")


def call(index: int, id: str, name: str, *pieces: str, end: bool = True) -> list[Chunk]:
    head = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    events: list[Chunk] = [{"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": head}}}]
    for piece in pieces:
        delta = {"message": {"tool_calls": {"function": {"arguments": piece}}}}
        events.append({"type": "tool-call-delta", "index": index, "delta": delta})
    return [*events, {"type": "tool-call-end", "index": index}] if end else events


def plan(*pieces: str) -> list[Chunk]:
    return [{"type": "tool-plan-delta", "delta": {"message": {"tool_plan": piece}}} for piece in pieces]


def answer(*events: Chunk, finish: str) -> list[Chunk]:
    start = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    return [
        {"id": "c1", "type": "message-start", "delta": {"message": start}},
        *events,
        {"type": "message-end", "delta": {"finish_reason": finish}},
    ]


def text(*pieces: str) -> list[Chunk]:
    start: Chunk = {
        "type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}},
    }  # fmt: skip
    deltas: list[Chunk] = [
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": piece}}}} for piece in pieces
    ]
    return [start, *deltas, {"type": "content-end", "index": 0}]


def two_rounds(client: toolsd.Client, provider: Provider, first: list[Chunk]) -> list[Any]:
    """Stream, run, append, ask again: the messages of the second request, as the server got them."""
    provider.will_say(sse(first, named=True))
    provider.will_say(sse(answer(*text("It is ", "sunny."), finish="COMPLETE"), named=True))
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    tools = client.tools("cohere")
    api = cohere.ClientV2(api_key="k", base_url=provider.url)
    for _ in range(2):
        turn = client.turn()
        for event in api.chat_stream(model="m", messages=messages, tools=tools):
            turn.feed(event)
        turn.finish()
        messages += turn.messages()
    assert turn.messages() == []
    assert [tool["function"]["name"] for tool in provider.requests[1].body["tools"]] == ["forecast", PICTURE, "note"]
    sent: list[Any] = provider.requests[1].body["messages"]
    assert sent == messages
    return sent


def test_two_rounds(client: toolsd.Client, provider: Provider) -> None:
    calls = [
        *call(0, "forecast_1", "forecast", '{"city": ', '"Oslo", "days": 1}'),
        *call(1, "radar_2", PICTURE, '{"city": "Rome"}'),
    ]
    sent = two_rounds(client, provider, answer(*plan("I will ", "look."), *calls, finish="TOOL_CALL"))
    assert sent[1:] == [
        {
            "role": "assistant",
            "tool_plan": "I will look.",
            "tool_calls": [
                {
                    "id": "forecast_1",
                    "type": "function",
                    "function": {"name": "forecast", "arguments": '{"city": "Oslo", "days": 1}'},
                },
                {
                    "id": "radar_2",
                    "type": "function",
                    "function": {"name": PICTURE, "arguments": '{"city": "Rome"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "forecast_1", "content": '{"city":"Oslo","sky":["sun"]}'},
        {"role": "tool", "tool_call_id": "radar_2", "content": "radar of Rome\n[image/png, 69 bytes]"},
    ]


def test_broken_streams(client: toolsd.Client, provider: Provider) -> None:
    """An id twice, a call that is cut off before another: the next request is whole again."""
    calls = [*call(0, "same", "note", '{"input": "x"', end=False), *call(1, "same", "note", '{"input": "y"}')]
    sent = two_rounds(client, provider, answer(*calls, finish="TOOL_CALL"))
    ids = [entry["id"] for entry in sent[1]["tool_calls"]]
    assert ids == [result["tool_call_id"] for result in sent[2:]] and len(set(ids)) == 2
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"INVALID_JSON": "{\\"input\\": \\"x\\""}'
