"""The asynchronous clients of OpenAI and Anthropic, and streams that break off under them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import toolsd

from . import test_anthropic, test_openai_chat
from .conftest import WORKSHOP
from .server import PATIENCE, Provider, sse

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")


async def openai_loop(url: str, messages: list[Any], client: toolsd.AsyncClient) -> None:
    tools = await client.tools("openai-chat")
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as api:
        while True:
            turn = client.turn()
            async for chunk in await api.chat.completions.create(
                model="m", messages=messages, tools=tools, stream=True
            ):
                turn.feed(chunk)
            if not await turn.finish():
                return
            messages += turn.messages()


async def anthropic_loop(url: str, messages: list[Any], client: toolsd.AsyncClient) -> None:
    tools = await client.tools("anthropic")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as api:
        while True:
            turn = client.turn()
            async with api.messages.stream(model="m", max_tokens=9, messages=messages, tools=tools) as stream:
                async for event in stream:
                    turn.feed(event)
            if not await turn.finish():
                return
            messages += turn.messages()


def run(loop: Any, provider: Provider) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]

    async def test() -> None:
        async with toolsd.AsyncClient.local(WORKSHOP / "toolsd.toml") as client:
            await loop(provider.url, messages, client)

    asyncio.run(asyncio.wait_for(test(), PATIENCE))
    return messages


def test_openai(provider: Provider) -> None:
    make = test_openai_chat
    first = [make.chunk({"tool_calls": [make.call(0, "a", "note", '{"input": "x"}')]}), make.chunk({}, "tool_calls")]
    provider.will_say(sse(first, done=True))
    provider.will_say(sse(make.said("Noted."), done=True))
    assert run(openai_loop, provider)[2] == {"role": "tool", "tool_call_id": "a", "content": "noted: x"}


def test_anthropic_(provider: Provider) -> None:
    make = test_anthropic
    first = [make.start(), *make.tool(0, "a", "note", '{"input":', ' "x"}'), *make.end("tool_use")]
    provider.will_say(sse(first, named=True))
    provider.will_say(sse([make.start(), *make.text(0, "Noted."), *make.end("end_turn")], named=True))
    (result,) = run(anthropic_loop, provider)[2]["content"]
    assert result == {"type": "tool_result", "tool_use_id": "a", "content": "noted: x"}


def test_a_stream_that_breaks_off_runs_nothing(client: toolsd.Client, provider: Provider) -> None:
    """The SDKs end such a stream as if it were whole; the turn does not."""
    chat, events = test_openai_chat, test_anthropic
    provider.will_say(sse([chat.chunk({"tool_calls": [chat.call(0, "a", "note", '{"input": "x')]})]))
    provider.will_say(sse([events.start(), *events.tool(0, "a", "note", '{"input": "x', stop=False)], named=True))
    asked: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    with openai.OpenAI(base_url=provider.url, api_key="k", max_retries=0) as api:
        turn = client.turn()
        for chunk in api.chat.completions.create(model="m", messages=asked, stream=True):
            turn.feed(chunk)
        with pytest.raises(toolsd.CompletionDefective):
            turn.finish()
    with anthropic.Anthropic(base_url=provider.url, api_key="k", max_retries=0) as api:
        turn = client.turn()
        for event in api.messages.create(model="m", max_tokens=9, messages=asked, stream=True):
            turn.feed(event)
        with pytest.raises(toolsd.CompletionDefective):
            turn.finish()
    with pytest.raises(toolsd.UsageError, match="no results"):
        turn.messages()
