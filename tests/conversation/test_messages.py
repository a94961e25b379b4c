"""Turns as messages, without any SDK: pairs of ids, whatever the calls were; shapes that the SDK tests do not reach."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolsd
from toolsd import Blob, Image, Json, Result, SlotError, UsageError
from toolsd.conversation import FORMATS, Listener, messages
from toolsd.streams import AssembledCall, CompletionAssembler

PNG = Image(b"\x89PNG\r\n\x1a\n" + b"0" * 8)
STREAMED = [name for name in FORMATS if name != "mcp"]


def call(id: str | None, arguments: str = "{}", name: str = "f", **more: Any) -> AssembledCall:
    return AssembledCall(0, id, name, arguments, None, **more)


def result(content: Any, id: str | None = None) -> Result:
    text = content if isinstance(content, str) else json.dumps(content, default=str)
    return Result(id, "f", True, content, text)


def pairs(made: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The ids of calls and of results, in any shape."""
    calls: list[Any] = []
    results: list[Any] = []
    for message in made:
        if message.get("role") == "tool":
            results.append(message.get("tool_call_id"))
        elif message.get("type") in ("function_call", "custom_tool_call"):
            calls.append(message.get("call_id", message.get("id")))
        elif message.get("type", "").endswith(("_output", "function_result")):
            results.append(message["call_id"])
        calls += [entry.get("id") for entry in message.get("tool_calls", ())]
        for part in message.get("parts", message.get("content")) or ():
            if part in (None, "") or isinstance(part, str):
                continue
            if "functionCall" in part or "functionResponse" in part:
                (calls if "functionCall" in part else results).append(next(iter(part.values())).get("id"))
            elif "toolUse" in part or "toolResult" in part:
                (calls if "toolUse" in part else results).append(next(iter(part.values()))["toolUseId"])
            elif part.get("type") in ("tool_use", "tool_result"):
                (calls if part["type"] == "tool_use" else results).append(part.get("id", part.get("tool_use_id")))
    return calls, results


ids = st.none() | st.sampled_from(["a", "b", "", " ", "call:1", "ü", "x" * 70, "D681PevKs", "tool_1"])


@pytest.mark.parametrize("format", STREAMED)
@settings(max_examples=40)
@given(st.lists(st.tuples(ids, st.text(max_size=9), st.text(max_size=5)), min_size=1, max_size=6))
def test_every_result_has_its_call(format: str, given_: list[tuple[str | None, str, str]]) -> None:
    calls = [call(id, arguments, name) for id, arguments, name in given_]
    made = messages(format, calls, [result("x") for _ in calls], seed="turn")
    assert made == messages(format, calls, [result("x") for _ in calls], seed="turn")
    said, answered = pairs(made)
    assert said == answered and len(said) == len(calls)
    shape = FORMATS[format]
    known = [id for id in said if id is not None]
    assert len(set(known)) == len(known) and all(shape.takes_id(id) for id in known)
    if shape.needs_ids:
        assert len(known) == len(calls)
    for id, kept in zip([entry.id for entry in calls], said, strict=True):
        if id is not None and shape.takes_id(id) and [entry.id for entry in calls].count(id) == 1:
            assert kept == id
    assert json.loads(json.dumps(made)) == made


@pytest.mark.parametrize("format", STREAMED)
def test_names_are_ones_the_provider_takes(format: str) -> None:
    calls = [call("a", name=name) for name in ("", "no<|such|>tool", "fs.read", "ok")]
    made = json.dumps(messages(format, calls, [result("x")] * 4))
    found = [name for name in re.findall(r'"name": "([^"]*)"', made) if name]
    assert found and all(FORMATS[format].names.allows(name) for name in found)
    assert found[3] == "ok" or "ok" in found


def test_no_calls_no_messages() -> None:
    assert messages("openai-chat", [], []) == [] and messages(None, [], []) == []


def test_what_cannot_be() -> None:
    for format, why in ((None, "was not streamed"), ("gpt", "unknown format"), ("mcp", "no messages")):
        with pytest.raises(UsageError, match=why):
            messages(format, [call("a")], [result("x")])


@pytest.mark.parametrize(
    ("arguments", "kept", "parsed"),
    [
        ('{"a" : 1}', '{"a" : 1}', {"a": 1}),
        ("", "{}", {}),
        ('"{\\"a\\": 1}"', '{"a": 1}', {"a": 1}),
        ("[1]", '{"INVALID_JSON": "[1]"}', {"INVALID_JSON": "[1]"}),
        ('{"a": 1', '{"INVALID_JSON": "{\\"a\\": 1"}', {"INVALID_JSON": '{"a": 1'}),
    ],
)
def test_arguments(arguments: str, kept: str, parsed: Any) -> None:
    calls = [call("a", arguments)]
    assert messages("openai-chat", calls, [result("x")])[0]["tool_calls"][0]["function"]["arguments"] == kept
    assert messages("anthropic", calls, [result("x")])[0]["content"][0]["input"] == parsed


def test_custom_tools() -> None:
    calls = [call("a", "free *text*", custom=True)]
    assert messages("openai-chat", calls, [result("x")]) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "free *text*"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    assert messages("openai-responses", calls, [result("x")]) == [
        {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "free *text*"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "x"},
    ]
    assert messages("gemini", calls, [result("x")])[0]["parts"][0]["functionCall"]["args"] == {"input": "free *text*"}


def test_parts_of_all_kinds() -> None:
    content = [PNG, toolsd.Text("one"), Json({"two": 2}), Blob(b"123", "application/x-thing"), PNG]
    answer = [result(content)]
    note = 'one\n{"two":2}\n[application/x-thing, 3 bytes]'
    told = messages("anthropic", [call("a")], answer)[1]["content"][0]["content"]
    assert [block["type"] for block in told] == ["image", "text", "image"] and told[1]["text"] == note
    told = messages("openai-responses", [call("a")], answer)[1]["output"]
    assert [block["type"] for block in told] == ["input_image", "input_text", "input_image"]
    told = messages("bedrock", [call("a")], answer)[1]["content"][0]["toolResult"]["content"]
    assert told[0] == {"image": {"format": "png", "source": {"bytes": PNG.data}}} and told[1] == {"text": note}
    told = messages("gemini", [call("a")], answer)[1]["parts"][0]["functionResponse"]
    assert told["response"] == {"output": note} and len(told["parts"]) == 2
    told = messages("gemini-interactions", [call("a")], answer)[1]["result"]
    assert [block["type"] for block in told] == ["image", "text", "image"]


def test_a_list_of_json_is_no_list_of_parts() -> None:
    told = messages("gemini", [call("a")], [result([1, {"a": None}])])[1]["parts"][0]["functionResponse"]
    assert told["response"] == {"output": [1, {"a": None}]}


def test_errors_are_marked_where_they_can_be() -> None:
    failed = [Result("a", "f", False, None, "no such city", SlotError("tool_error", "no such city"))]
    made = {format: messages(format, [call("a")], failed) for format in STREAMED}
    assert made["anthropic"][1]["content"][0]["is_error"] is True
    assert made["bedrock"][1]["content"][0]["toolResult"]["status"] == "error"
    assert made["gemini"][1]["parts"][0]["functionResponse"]["response"] == {"error": "no such city"}
    assert made["gemini-interactions"][1]["is_error"] is True
    assert all("no such city" in json.dumps(one) for one in made.values())


def test_empty_results() -> None:
    for format in STREAMED:
        made = messages(format, [call("a")], [result("")])
        assert '{"text": ""}' not in json.dumps(made), "blank text is refused"


def test_extra_keys_of_a_call_go_back() -> None:
    google = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    assert (
        messages("openai-chat", [call("a", extra=google)], [result("x")])[0]["tool_calls"][0]["extra_content"]
        == (google["extra_content"])
    )


def test_only_the_choice_that_is_the_turn_speaks() -> None:
    listener = Listener()
    assembler = CompletionAssembler(listen=listener)
    deltas = [{"function": {"name": "f", "arguments": "{}"}, "index": 0, "id": "a"}]
    assembler.feed({"choices": [{"index": 1, "delta": {"content": "other"}}]})
    assembler.feed({"choices": [{"index": 0, "delta": {"tool_calls": deltas}}]})
    assert messages("openai-chat", assembler.finish().calls, [result("x")], said=listener.parts())[0]["content"] is None


def test_interactions_go_back_step_by_step() -> None:
    listener = Listener()
    assembler = CompletionAssembler(listen=listener)
    for event in (
        {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "thought_signature", "signature": "c2ln"}},
        {"event_type": "step.stop", "index": 0},
        {"event_type": "step.start", "index": 1, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 1, "delta": {"type": "text", "text": "Let me "}},
        {"event_type": "step.delta", "index": 1, "delta": {"type": "text", "text": "look."}},
        {"event_type": "step.stop", "index": 1},
        {"event_type": "step.start", "index": 2, "step": {"type": "function_call", "id": "c1", "name": "f"}},
        {"event_type": "step.delta", "index": 2, "delta": {"type": "arguments_delta", "arguments": '{"a": 1}'}},
        {"event_type": "step.stop", "index": 2},
    ):
        assembler.feed(event)
    assembly = assembler.finish()
    assert messages("gemini-interactions", assembly.calls, [result("x")], said=listener.parts()) == [
        {"type": "thought", "signature": "c2ln"},
        {"type": "model_output", "content": [{"type": "text", "text": "Let me look."}]},
        {"type": "function_call", "id": "c1", "name": "f", "arguments": {"a": 1}},
        {"type": "function_result", "call_id": "c1", "name": "f", "result": "x"},
    ]


junk: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "text", "tool_use", "thinking", "x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                "type", "index", "delta", "content", "content_block", "message", "parts", "text", "candidates", "item",
                "output_index", "response", "output", "contentBlockDelta", "contentBlockStart", "contentBlockIndex",
                "start", "toolUse", "choices", "reasoning_content", "event_type", "step", "thinking", "functionCall",
                "reasoningContent", "tool_plan", "signature", "partial_json", "citation",
            ]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
kinds = st.sampled_from(
    [
        "content_block_start", "content_block_delta", "message_start", "message", "response.output_item.done",
        "response.created", "response.completed", "step.start", "step.delta", "content-delta", "tool-plan-delta",
        "contentBlockDelta", "contentBlockStart", "output",
    ]
)  # fmt: skip


@pytest.mark.parametrize("format", STREAMED)
@settings(max_examples=40)
@given(st.lists(st.tuples(kinds, junk), max_size=6))
def test_any_chunk_at_all(format: str, chunks: list[tuple[str, Any]]) -> None:
    """Whatever a provider sends, listening to it raises nothing, and the messages are whole."""
    listener = Listener()
    for kind, body in chunks:
        chunk = body if isinstance(body, dict) else {"delta": body, "index": 0}
        listener(format, {"type": kind, "event_type": kind} | chunk)
    made = messages(format, [call("a")], [result("x")], said=listener.parts())
    assert pairs(made) == (["a"], ["a"]) or format in ("mistral", "ollama", "gemini", "anthropic", "openai-responses")
