"""Every provider format: conforming streams in any shape, and the ways in which providers break their own rules."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolsd.streams import FORMATS, CompletionAssembler


def assemble(chunks, format="auto", **options):
    assembler = CompletionAssembler(format, **options)
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


def calls(assembly):
    return [(call.id, call.name, call.parsed) for call in assembly.calls]


# --- conforming streams, written from calls ---------------------------------------------------------------------------


def pieces(text, width):
    return [text[at : at + width] for at in range(0, len(text), width)]


def chat(made, width):
    def chunk(delta, finish=None):
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "object": "chat.completion.chunk"}

    yield chunk({"role": "assistant", "content": ""})
    for index, (id_, name, args) in enumerate(made):
        head = {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        for piece in pieces(json.dumps(args), width):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if made else "stop")
    yield {"choices": [], "usage": {"total_tokens": 1}}


def mistral(made, width):
    for chunk in chat(made, width):
        yield {"data": chunk}


def responses(made, width):
    yield {"type": "response.created", "response": {"status": "in_progress", "output": []}}
    items = []
    for index, (id_, name, args) in enumerate(made):
        text = json.dumps(args)
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": id_, "name": name, "arguments": ""}
        where = {"output_index": index, "item_id": f"fc_{index}"}
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        for piece in pieces(text, width):
            yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **where, "arguments": text}
        items.append({**item, "arguments": text, "status": "completed"})
        yield {"type": "response.output_item.done", "output_index": index, "item": items[-1]}
    yield {"type": "response.completed", "response": {"status": "completed", "output": items}}


def anthropic(made, width):
    yield {"type": "message_start", "message": {"content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "ping"}
    yield {"type": "content_block_stop", "index": 0}
    for index, (id_, name, args) in enumerate(made, 1):
        block = {"type": "tool_use", "id": id_, "name": name, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in ["", *pieces(json.dumps(args), width)]:
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use" if made else "end_turn"}}
    yield {"type": "message_stop"}


def gemini(made, width):
    yield {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}, "index": 0}]}
    for id_, name, args in made:
        yield {"candidates": [{"content": {"parts": [{"functionCall": {"id": id_, "name": name, "args": args}}]}}]}
    yield {"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}]}


def gemini_partial(made, width):
    for id_, name, args in made:
        parts = [{"id": id_, "name": name, "willContinue": True}]
        for path, value in leaves("$", args):
            if isinstance(value, str):
                texts = [*pieces(value, width), ""]
                parts += [
                    {"partialArgs": [{"jsonPath": path, "stringValue": text, "willContinue": bool(text)}]}
                    for text in texts
                ]
            else:
                kind = "nullValue" if value is None else "boolValue" if isinstance(value, bool) else "numberValue"
                parts.append({"partialArgs": [{"jsonPath": path, kind: value}]})
        for part in parts:
            part["willContinue"] = True
            yield {"candidates": [{"content": {"parts": [{"functionCall": part}]}}]}
        yield {"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]}
    yield {"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}


def leaves(path, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(path + (f".{key}" if key.isalnum() else f"[{json.dumps(key)}]"), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(f"{path}[{index}]", inner)
    else:
        yield path, value


def interactions(made, width):
    yield {"event_type": "interaction.created", "interaction": {"status": "in_progress"}}
    yield {"event_type": "step.start", "index": 0, "step": {"type": "thought"}}
    yield {"event_type": "step.delta", "index": 0, "delta": {"type": "thought_signature", "signature": "c2ln"}}
    yield {"event_type": "step.stop", "index": 0}
    for index, (id_, name, args) in enumerate(made, 1):
        step = {"type": "function_call", "id": id_, "name": name, "arguments": {}}
        yield {"event_type": "step.start", "index": index, "step": step}
        for piece in pieces(json.dumps(args), width):
            delta = {"type": "arguments_delta", "arguments": piece}
            yield {"event_type": "step.delta", "index": index, "delta": delta}
        yield {"event_type": "step.stop", "index": index}
    status = "requires_action" if made else "completed"
    yield {"event_type": "interaction.completed", "interaction": {"status": status}}


def bedrock(made, width):
    yield {"messageStart": {"role": "assistant"}}
    yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "hm"}}}
    yield {"contentBlockStop": {"contentBlockIndex": 0}}
    for index, (id_, name, args) in enumerate(made, 1):
        where = {"contentBlockIndex": index}
        yield {"contentBlockStart": {**where, "start": {"toolUse": {"toolUseId": id_, "name": name}}}}
        for piece in pieces(json.dumps(args), width):
            yield {"contentBlockDelta": {**where, "delta": {"toolUse": {"input": piece}}}}
        yield {"contentBlockStop": where}
    yield {"messageStop": {"stopReason": "tool_use" if made else "end_turn"}}
    yield {"metadata": {"usage": {"totalTokens": 1}}}


def cohere(made, width):
    def event(kind, index, call=None):
        return {"type": kind, "index": index, **({"delta": {"message": {"tool_calls": call}}} if call else {})}

    yield {"type": "message-start", "delta": {"message": {"role": "assistant", "tool_calls": []}}}
    yield {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will"}}}
    for index, (id_, name, args) in enumerate(made):
        head = {"id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
        yield event("tool-call-start", index, head)
        for piece in pieces(json.dumps(args), width):
            yield event("tool-call-delta", index, {"function": {"arguments": piece}})
        yield event("tool-call-end", index)
    yield {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL" if made else "COMPLETE"}}


def ollama(made, width):
    for id_, name, args in made:
        message = {"role": "assistant", "tool_calls": [{"id": id_, "function": {"name": name, "arguments": args}}]}
        yield {"model": "m", "message": message, "done": False}
    yield {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}


WRITERS = {
    "openai-chat": [chat],
    "openai-responses": [responses],
    "anthropic": [anthropic],
    "gemini": [gemini, gemini_partial],
    "gemini-interactions": [interactions],
    "bedrock": [bedrock],
    "cohere": [cohere],
    "ollama": [ollama],
    "mistral": [mistral],
}
EACH = [(format, writer) for format, writers in WRITERS.items() for writer in writers]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.text(st.characters(codec="utf-8"), max_size=6),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2)
        | st.dictionaries(st.text("ab é'.", min_size=1, max_size=3), inner, min_size=1, max_size=2)
    ),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.text("abc_", min_size=1, max_size=3), VALUES, max_size=3)
MADE = st.lists(st.tuples(st.sampled_from(["f", "get_time", "ns.find"]), OBJECTS), max_size=3)


def test_every_format_has_a_writer():
    assert set(WRITERS) == set(FORMATS)


@pytest.mark.parametrize(("format", "writer"), EACH)
@given(made=MADE, width=st.integers(1, 30), data=st.data())
@settings(max_examples=40)
def test_conforming_streams(format, writer, made, width, data):
    made = [(f"call_{number}", name, args) for number, (name, args) in enumerate(made)]
    chunks = list(writer(made, width))
    lines = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    events = data.draw(st.booleans())
    raw = ("".join(f"data: {line}\n\n" for line in lines) if events else "\n".join(lines)).encode()
    size = data.draw(st.integers(1, len(raw)))
    for fed in (chunks, [raw[at : at + size] for at in range(0, len(raw), size)]):
        for named in ("auto", format):
            for strict in (False, True):
                got = assemble(fed, named, strict=strict)
                assert got.format == format
                assert calls(got) == made
                assert got.codes == ()
                assert got.dropped_deltas == 0


@pytest.mark.parametrize(("format", "writer"), EACH)
def test_names_are_known_before_the_end(format, writer):
    assembler = CompletionAssembler()
    seen = []
    for chunk in list(writer([("a", "f", {"x": 1}), ("b", "g", {})], 1))[:-1]:
        assembler.feed(chunk)
        seen += assembler.new_names()
    assert seen == ["f", "g"]
    assert not assembler.is_empty


@pytest.mark.parametrize(("format", "writer"), EACH)
def test_a_cut_stream_never_looks_whole(format, writer):
    chunks = list(writer([("a", "f", {"x": "abc"}), ("b", "g", {"y": "abc"})], 2))
    ends = {json.dumps(chunk) for chunk in chunks[-2:]}
    for cut in range(1, len(chunks)):
        got = assemble(chunks[:cut])
        if not any(json.dumps(chunk) in ends for chunk in chunks[:cut]):
            assert "finish_missing" in got.defects
        for call in got.calls:
            assert call.parsed in (None, {"x": "abc"}, {"y": "abc"}) or call.parsed == {}
            if call.parsed == {}:  # a head of which nothing else came: the turn as a whole says that it was cut
                assert got.defects


@pytest.mark.parametrize(("format", "writer"), EACH)
def test_an_explanation_names_every_call(format, writer):
    got = assemble(writer([("a", "f", {"x": 1}), ("b", "g", {"y": 2})], 3), explain=True)
    assert {step.call for step in got.steps} == {0, 1}


@pytest.mark.parametrize("format", FORMATS)
@given(chunks=st.data())
@settings(max_examples=60)
def test_any_chunk_of_any_shape_ends_in_defects(format, chunks):
    made = [
        chunk for writers in WRITERS.values() for writer in writers for chunk in writer([("a", "f", {"x": "y"})], 3)
    ]
    wild = []
    for _ in range(chunks.draw(st.integers(1, 6))):
        wild.append(mutated(chunks.draw, chunks.draw(st.sampled_from(made))))
    got = assemble(wild, format, explain=True)
    json.dumps(got.to_json(), ensure_ascii=False).encode()


ODD = st.sampled_from(
    [None, True, -1, 10**20, 1.5, "", "null", "x", [], {}, [[]], [None], {"a": {}}, "\ud83d", b"\xff"]
)


def mutated(draw, value):
    """`value` with one thing in it replaced, lost or doubled."""
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 9)) == 0:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: mutated(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        return [mutated(draw, value[0]), *value]
    return draw(ODD)
