"""OpenAI's client for the Responses API through a whole loop of two rounds."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import toolsd

from .server import PICTURE, Chunk, Provider, accepted, sse
from .workshop.weather import PIXEL

openai = pytest.importorskip("openai")
types = pytest.importorskip("openai.types.responses")


def response(status: str, output: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m", "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **more,
    }  # fmt: skip


def reasoning(**more: Any) -> dict[str, Any]:
    return {"id": "rs_1", "type": "reasoning", "summary": [], **more}


def message(text: str) -> dict[str, Any]:
    content = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [content]}


def call(id: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
        "arguments": arguments,
    }  # fmt: skip


def stream(*items: dict[str, Any], **more: Any) -> list[Chunk]:
    """What the service sends for an answer of these items."""
    events: list[Chunk] = [{"type": "response.created", "response": response("in_progress", [], **more)}]
    for place, item in enumerate(items):
        where = {"output_index": place, "item_id": item["id"]}
        key = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
        events.append(
            {"type": "response.output_item.added", "output_index": place, "item": item | ({key: ""} if key else {})}
        )
        if key:
            kind = "response.function_call_arguments" if key == "arguments" else "response.custom_tool_call_input"
            events += [{"type": f"{kind}.delta", "delta": piece, **where} for piece in (item[key][:7], item[key][7:])]
            events.append({"type": f"{kind}.done", key: item[key], "name": item["name"], **where})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": response("completed", list(items), **more)})
    return [event | {"sequence_number": at} for at, event in enumerate(events) if isinstance(event, dict)]


def two_rounds(client: toolsd.Client, provider: Provider, first: list[Chunk]) -> list[Any]:
    """Stream, run, append, ask again: the input of the second request, as the server got it."""
    provider.will_say(sse(first, named=True))
    provider.will_say(sse(stream(message("It is sunny.")), named=True))
    conversation: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    tools = client.tools("openai-responses")
    with openai.OpenAI(base_url=provider.url, api_key="k", max_retries=0) as api:
        for _ in range(2):
            turn = client.turn()
            for event in api.responses.create(model="m", input=conversation, tools=tools, stream=True):
                turn.feed(event)
            turn.finish()
            conversation += turn.messages()
    assert turn.messages() == []
    accepted(types.ResponseInputItemParam, conversation)
    accepted(types.ToolParam, tools)
    assert [tool["name"] for tool in provider.requests[1].body["tools"]] == ["forecast", PICTURE, "note"]
    sent: list[Any] = provider.requests[1].body["input"]
    assert sent == conversation
    return sent


def test_two_rounds(client: toolsd.Client, provider: Provider) -> None:
    calls = [
        call("fc_1", "call_a", "forecast", '{"city": "Oslo", "days": 1}'),
        call("fc_2", "call_b", PICTURE, '{"city": "Rome"}'),
        {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_c", "name": "note", "input": "as it *is*\n"},
    ]
    sent = two_rounds(client, provider, stream(reasoning(), message("Let me look."), *calls))
    assert sent[1:3] == [reasoning(), message("Let me look.")]
    assert sent[3:6] == [{key: value for key, value in item.items() if key != "status"} for item in calls]
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    assert sent[6:] == [
        {"type": "function_call_output", "call_id": "call_a", "output": '{"city":"Oslo","sky":["sun"]}'},
        {
            "type": "function_call_output",
            "call_id": "call_b",
            "output": [
                {"type": "input_text", "text": "radar of Rome"},
                {"type": "input_image", "image_url": url, "detail": "auto"},
            ],
        },
        {"type": "custom_tool_call_output", "call_id": "call_c", "output": "noted: as it *is*\n"},
    ]


@pytest.mark.parametrize(("kept", "more"), [(False, {}), (True, {"encrypted_content": "gAAA"})])
def test_reasoning_that_the_service_forgot_stays_away(
    client: toolsd.Client, provider: Provider, kept: bool, more: dict[str, Any]
) -> None:
    item = call("fc_1", "call_a", "note", '{"input": "x"}')
    sent = two_rounds(client, provider, stream(reasoning(**more), item, store=False))
    assert [entry.get("type") for entry in sent[1:]] == [*["reasoning"] * kept, "function_call", "function_call_output"]
    assert ("id" in sent[-2]) is kept


def test_broken_streams(client: toolsd.Client, provider: Provider) -> None:
    """An id twice, arguments that are none: the next request is whole again."""
    items = [call("fc_1", "call_a", "note", "{'input': x"), call("fc_2", "call_b", "note", '{"input": "y"}')]
    first = stream(*items)
    sent = two_rounds(client, provider, [b": a comment\n\n", *first])
    assert sent[1]["arguments"] == '{"INVALID_JSON": "{\'input\': x"}'
    assert [entry["call_id"] for entry in sent[1:]] == ["call_a", "call_b", "call_a", "call_b"]
    assert "JSON" in sent[3]["output"] and sent[4]["output"] == "noted: y"
