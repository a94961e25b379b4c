"""Anthropic's client through a whole loop of two rounds."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import toolsd

from .server import PICTURE, Chunk, Provider, accepted, sse
from .workshop.weather import PIXEL

anthropic = pytest.importorskip("anthropic")
types = pytest.importorskip("anthropic.types")


def start(**message: Any) -> dict[str, Any]:
    whole = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    return {"type": "message_start", "message": whole | message}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> list[Chunk]:
    events: list[Chunk] = [{"type": "content_block_start", "index": index, "content_block": content}]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [*events, {"type": "content_block_stop", "index": index}] if stop else events


def tool(index: int, id: str, name: str, *pieces: str, stop: bool = True) -> list[Chunk]:
    content = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return block(index, content, *({"type": "input_json_delta", "partial_json": p} for p in pieces), stop=stop)


def end(reason: str) -> list[Chunk]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}, {"type": "message_stop"}]


def text(index: int, *pieces: str) -> list[Chunk]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def two_rounds(client: toolsd.Client, provider: Provider, first: list[Chunk], *, helper: bool = False) -> list[Any]:
    """Stream, run, append, ask again: the messages of the second request, as the server got them."""
    provider.will_say(sse(first, named=True))
    provider.will_say(sse([start(), *text(0, "It is sunny."), *end("end_turn")], named=True))
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    tools = client.tools("anthropic")
    given: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": messages, "tools": tools}
    with anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as api:
        for _ in range(2):
            turn = client.turn()
            if helper:
                with api.messages.stream(**given) as stream:
                    for event in stream:
                        turn.feed(event)
            else:
                for event in api.messages.create(**given, stream=True):
                    turn.feed(event)
            turn.finish()
            messages += turn.messages()
    assert turn.messages() == []
    accepted(types.MessageParam, messages)
    accepted(types.ToolUnionParam, tools)
    assert [tool["name"] for tool in provider.requests[1].body["tools"]] == ["forecast", PICTURE, "note"]
    sent: list[Any] = provider.requests[1].body["messages"]
    assert sent == messages
    return sent


@pytest.mark.parametrize("helper", [False, True])
def test_two_rounds(client: toolsd.Client, provider: Provider, helper: bool) -> None:
    thinking = [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}]
    sent = two_rounds(
        client,
        provider,
        [
            start(),
            *block(0, {"type": "thinking", "thinking": "", "signature": ""}, *thinking),
            {"type": "ping"},
            *text(1, "Let me ", "look."),
            *tool(2, "toolu_a", "forecast", "", '{"city": "Os', 'lo", "days": 1}'),
            *tool(3, "toolu_b", PICTURE, '{"city": "Rome"}'),
            *tool(4, "toolu_c", "forecast", '{"city": "Rome", "days": 30}'),
            *end("tool_use"),
        ],
        helper=helper,
    )
    image = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PIXEL).decode()}
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_a", "name": "forecast", "input": {"city": "Oslo", "days": 1}},
                {"type": "tool_use", "id": "toolu_b", "name": PICTURE, "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "toolu_c", "name": "forecast", "input": {"city": "Rome", "days": 30}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": '{"city":"Oslo","sky":["sun"]}'},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_b",
                    "content": [{"type": "text", "text": "radar of Rome"}, {"type": "image", "source": image}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_c",
                    "content": "nobody knows the weather beyond 14 days",
                    "is_error": True,
                },
            ],
        },
    ]


def test_what_ran_at_the_provider_goes_back_in_its_place(client: toolsd.Client, provider: Provider) -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    sent = two_rounds(
        client,
        provider,
        [
            start(),
            *block(
                0,
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"query": "oslo"}'},
            ),
            *block(1, found),
            *tool(2, "toolu_a", "note", '{"input": "x"}'),
            *text(3, "And that."),
            *text(4, ""),
            *end("tool_use"),
        ],
    )
    kinds = [part["type"] for part in sent[1]["content"]]
    assert kinds == ["server_tool_use", "web_search_tool_result", "tool_use", "text"]
    assert sent[1]["content"][0]["input"] == {"query": "oslo"}
    assert sent[1]["content"][1] == found


def test_broken_streams(client: toolsd.Client, provider: Provider) -> None:
    """An id twice, input that is none, a block index used again: the next request is whole again."""
    sent = two_rounds(
        client,
        provider,
        [
            start(),
            *tool(0, "toolu_a", "note", '{"input": "x"}'),
            *tool(0, "toolu_a", "note", '{"input": "y"}'),
            *tool(1, "tool:b", "note", "{'input': x"),
            *end("tool_use"),
        ],
    )
    calls, results = sent[1]["content"], sent[2]["content"]
    ids = [call["id"] for call in calls]
    assert ids == [result["tool_use_id"] for result in results] and len(set(ids)) == 3
    assert ids[0] == "toolu_a" and ids[1].startswith("toolu_") and ids[2].startswith("toolu_")
    assert calls[2]["input"] == {"INVALID_JSON": "{'input': x"}
    assert [result.get("is_error", False) for result in results] == [False, True, True]
