"""Mistral's client through a whole loop of two rounds."""

from __future__ import annotations

import re
from typing import Any

import pytest

import toolsd

from .server import PICTURE, Chunk, Provider, sse
from .test_openai_chat import call, chunk, said

sdk = pytest.importorskip("mistralai.client")


def two_rounds(client: toolsd.Client, provider: Provider, first: list[Chunk], format: str) -> list[Any]:
    """Stream, run, append, ask again: the messages of the second request, as the server got them."""
    provider.will_say(sse(first, done=True))
    provider.will_say(sse(said("It is sunny."), done=True))
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    tools = client.tools("mistral")
    with sdk.Mistral(api_key="k", server_url=provider.url) as api:
        for _ in range(2):
            turn = client.turn(format=format)
            with api.chat.stream(model="m", messages=messages, tools=tools) as stream:
                for event in stream:
                    turn.feed(event)
            turn.finish()
            messages += turn.messages("mistral")
    assert turn.messages("mistral") == []
    assert [tool["function"]["name"] for tool in provider.requests[1].body["tools"]] == ["forecast", PICTURE, "note"]
    sent: list[Any] = provider.requests[1].body["messages"]
    return sent


@pytest.mark.parametrize("format", ["auto", "mistral"])
def test_two_rounds(client: toolsd.Client, provider: Provider, format: str) -> None:
    """Whole calls in one chunk, ids of nine characters; one that OpenAI would take and Mistral does not."""
    calls = [
        call(0, "D681PevKs", "forecast", '{"city": "Oslo", "days": 1}'),
        call(1, "call_0123456789", PICTURE, '{"city": "Rome"}'),
        call(2, "null", "note", '{"input": "x"}'),
    ]
    sent = two_rounds(
        client,
        provider,
        [
            chunk({"role": "assistant", "content": "Let me look."}),
            chunk({"content": "", "tool_calls": calls}, "tool_calls"),
        ],
        format,
    )
    assistant, *results = sent[1:]
    assert assistant["content"] == "Let me look."
    ids = [entry["id"] for entry in assistant["tool_calls"]]
    assert ids[0] == "D681PevKs" and all(re.fullmatch(r"[a-zA-Z0-9]{9}", id) for id in ids) and len(set(ids)) == 3
    assert [result["tool_call_id"] for result in results] == ids
    assert [result["name"] for result in results] == ["forecast", PICTURE, "note"]
    assert [result["content"] for result in results[:2]] == [
        '{"city":"Oslo","sky":["sun"]}',
        "radar of Rome\n[image/png, 69 bytes]",
    ]
    assert "missing_id" in results[2]["content"]  # it was not run
