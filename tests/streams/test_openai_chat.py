"""Chat Completions chunks through the entry point."""

import json

import pytest

from toolsd.errors import UsageError
from toolsd.streams import CompletionAssembler


def chunk(*deltas, finish=None, index=0, **more):
    delta = {"tool_calls": list(deltas)} if deltas else {}
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def delta(index=0, id=None, name=None, arguments=None):
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


STREAM = [
    chunk(delta(0, "call_a", "search", ""), usage=None),
    chunk(delta(1, "call_b", "notes_add", '{"t')),
    chunk(delta(0, None, None, '{"q": "zürich 😀"}')),
    {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
    {"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}}], "object": ""},
    {"choices": [{"index": 0, "delta": {"tool_calls": None, "function_call": None, "content": "hi"}}]},
    chunk(delta(1, "", "", 'ext": "x"}')),
    chunk(finish="tool_calls"),
    {"choices": [], "usage": {"total_tokens": 3}},
]
EXPECTED = {
    "calls": [
        {
            "index": 0,
            "id": "call_a",
            "name": "search",
            "arguments": '{"q": "zürich 😀"}',
            "parsed": {"q": "zürich 😀"},
            "defects": [],
            "notes": [],
        },
        {
            "index": 1,
            "id": "call_b",
            "name": "notes_add",
            "arguments": '{"text": "x"}',
            "parsed": {"text": "x"},
            "defects": [],
            "notes": [],
        },
    ],
    "defects": [],
    "dropped_deltas": 0,
    "finish_reason": "tool_calls",
}


def assemble(chunks, **options):
    assembler = CompletionAssembler(**options)
    for one in chunks:
        assembler.feed(one)
    return assembler.finish()


@pytest.mark.parametrize("strict", [False, True])
def test_dicts(strict):
    finished = assemble(STREAM, strict=strict)
    assert finished.to_json() == EXPECTED
    assert finished.format == "openai-chat"


def test_sdk_objects():
    from openai.types.chat import ChatCompletionChunk

    objects = [ChatCompletionChunk.construct(**one) for one in STREAM]
    assert assemble(objects).to_json() == EXPECTED
    assembler = CompletionAssembler()
    for one in objects:
        for choice in one.choices:
            if choice.delta:
                assembler.observe(choice.delta.tool_calls)
    assert assembler.finish("tool_calls").to_json() == EXPECTED


EVENTS = "\ufeff: hello\r\n\r\n" + "".join(
    f"event: message\r\ndata: {json.dumps(one, ensure_ascii=False)}\r\n\r\n" for one in STREAM
)
LINES = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in STREAM)


@pytest.mark.parametrize("text", [EVENTS + "data: [DONE]\r\n\r\n", EVENTS.rstrip(), LINES, LINES.strip()])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10**6])
def test_raw_text_cut_anywhere(text, size):
    raw = text.encode()
    assert assemble([raw[at : at + size] for at in range(0, len(raw), size)]).to_json() == EXPECTED
    assert assemble([text[at : at + size] for at in range(0, len(text), size)]).to_json() == EXPECTED


def test_names_as_they_become_known():
    assembler = CompletionAssembler()
    seen = []
    for one in STREAM:
        assembler.feed(one)
        seen.append(assembler.new_names())
    assert seen[:2] == [("search",), ("notes_add",)]
    assert not any(seen[2:])


def test_choices_go_by_their_own_index():
    two = {
        "choices": [
            {"index": 1, "delta": {"tool_calls": [delta(0, "other", "g", "{}")]}, "finish_reason": "length"},
            {"index": 0, "delta": {"tool_calls": [delta(0, "call_a", "f", "{}")]}, "finish_reason": "tool_calls"},
        ]
    }
    finished = assemble([two])
    assert [call.id for call in finished.calls] == ["call_a"]
    assert finished.codes == ()


def test_a_finish_reason_ends_nothing():
    finished = assemble(
        [
            chunk(delta(0, "call_a", "f", "{"), finish="tool_calls"),
            chunk(finish="stop"),
            chunk(delta(0, None, None, "}")),
            chunk(finish=""),
        ]
    )
    assert finished.codes == ()
    assert finished.finish_reason == "stop"


def test_the_older_protocol():
    def legacy(**function):
        return {"choices": [{"index": 0, "delta": {"function_call": function}, "finish_reason": None}]}

    finished = assemble(
        [
            legacy(name="f", arguments=""),
            legacy(arguments='{"a":'),
            legacy(arguments="1}"),
            chunk(finish="function_call"),
        ]
    )
    assert finished.codes == ("note:missing_id@0",)
    assert finished.calls[0].parsed == {"a": 1}


def test_turns_that_must_not_run():
    assert assemble([chunk(delta(0, "a", "f", "{}"))]).defects == ("finish_missing",)
    assert assemble([chunk(delta(0, "a", "f", "{}")), {"error": {"message": "overloaded"}}]).defects == (
        "stream_error",
    )
    assert assemble([{"error": {"message": "no such model"}}]).defects == ("stream_error",)
    assert assemble(["data: {broken\n\n", *STREAM]).defects == ("dropped_deltas",)
    assert assemble([*STREAM[:3], '{"choices":[{"ind', *STREAM[3:]]).dropped_deltas == 1


def test_an_empty_turn_is_fine():
    assert CompletionAssembler().finish().codes == ()
    assert assemble([chunk(finish="stop")]).codes == ()
    assembler = CompletionAssembler()
    assembler.observe([])
    assert assembler.is_empty
    assert assembler.finish() == CompletionAssembler().finish()


def test_wrong_use():
    with pytest.raises(UsageError, match="openai-chat"):
        CompletionAssembler("openai-chatt")
