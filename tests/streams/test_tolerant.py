"""What the tolerant accumulator does with streams that break the protocol, and that it leaves the others alone."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_data import JSON

from toolsd.streams import CompletionAssembler, TolerantAccumulator, ToolCallAccumulator

FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}


def delta(index=None, id=None, name=None, arguments=None, **more):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    made = {"index": index, "id": id, "function": function or None, **more}
    return {key: value for key, value in made.items() if value is not None}


def finished(*deltas, **options):
    assembler = CompletionAssembler("openai-chat", **options)
    for one in deltas:
        assembler.feed({"choices": [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": None}]})
    assembler.feed(FINISH)
    return assembler.finish()


def calls(assembly):
    return [(call.id, call.name, call.parsed) for call in assembly.calls]


# --- which call does a delta belong to --------------------------------------------------------------------------------


def test_whole_calls_that_all_claim_index_zero():
    result = finished(
        delta(0, "a", "look", '{"n":1}'), delta(0, "b", "look", '{"n":2}'), delta(0, "c", "find", '{"n":3}')
    )
    assert calls(result) == [("a", "look", {"n": 1}), ("b", "look", {"n": 2}), ("c", "find", {"n": 3})]
    assert result.codes == ()


def test_fragmented_calls_that_all_claim_index_zero():
    result = finished(
        delta(0, "a", "look", ""),
        delta(0, None, None, '{"n"'),
        delta(0, None, None, ":1}"),
        delta(0, "b", "look", ""),
        delta(0, None, None, '{"n":'),
        delta(0, None, None, "2}"),
    )
    assert calls(result) == [("a", "look", {"n": 1}), ("b", "look", {"n": 2})]
    assert result.codes == ()


def test_two_calls_without_arguments_on_one_index():
    assert calls(finished(delta(0, "a", "up", ""), delta(0, "b", "up", ""))) == [("a", "up", {}), ("b", "up", {})]


def test_calls_on_one_index_without_ids():
    result = finished(delta(0, None, "look", '{"n":1}'), delta(0, None, "look", '{"n":2}'))
    assert calls(result) == [(None, "look", {"n": 1}), (None, "look", {"n": 2})]
    assert result.codes == ("missing_id@0", "missing_id@1")


def test_an_exact_resend_is_one_call():
    result = finished(delta(0, "a", "look", '{"n":1}'), delta(0, None, "look", '{"n":1}'))
    assert calls(result) == [("a", "look", {"n": 1})]
    assert set(result.codes) == {"note:name_repeated@0", "note:repeated_arguments@0"}


def test_parallel_calls_without_index():
    result = finished(
        delta(None, "a", "look", '{"n":'),
        delta(None, None, None, "1}"),
        delta(None, "b", "find", ""),
        delta(None, None, None, '{"n":2}'),
        delta(None, "a", None, " "),
    )
    assert calls(result) == [("a", "look", {"n": 1}), ("b", "find", {"n": 2})]


def test_a_head_with_an_index_and_tails_without():
    result = finished(delta(1, "a", "look", ""), delta(None, None, None, '{"n":1}'), delta(2, "b", "find", "{}"))
    assert calls(result) == [("a", "look", {"n": 1}), ("b", "find", {})]


def test_ids_minted_anew_for_every_fragment():
    result = finished(delta(0, "a", "look", '{"n"'), delta(0, "b", None, ":1"), delta(0, "c", "look", "}"))
    assert calls(result) == [("a", "look", {"n": 1})]
    assert set(result.codes) == {"note:id_changed@0", "note:name_repeated@0"}


def test_an_index_that_counts_fragments():
    result = finished(delta(0, "a", "look", '{"n"'), delta(1, "a", "look", ":1"), delta(2, "a", None, "}"))
    assert calls(result) == [("a", "look", {"n": 1})]
    assert "note:index_changed@0" in result.codes


def test_one_id_for_two_calls_is_reported_and_not_merged():
    result = finished(delta(0, "a", "look", '{"n":1}'), delta(1, "a", "look", '{"n":2}'))
    assert calls(result) == [("a", "look", {"n": 1}), ("a", "look", {"n": 2})]
    assert result.codes == ("duplicate_id@1",)


def test_a_tail_that_drifts_is_put_back_at_the_end():
    heads = delta(0, "a", "look", '{"n":1}'), delta(0, "b", "find", "")
    result = finished(*heads, delta(1, None, None, '{"n"'), delta(1, None, None, ":2}"))
    assert calls(result) == [("a", "look", {"n": 1}), ("b", "find", {"n": 2})]
    assert result.codes == ("note:tail_reattached@1",)


def test_a_tail_is_not_put_back_where_it_makes_no_object():
    result = finished(delta(0, "a", "look", '{"n":1}'), delta(1, None, None, '{"n":2}'))
    assert result.codes == ("empty_name@1", "missing_id@1")
    assert result.calls[1].parsed is None


def test_an_id_and_a_name_that_come_last():
    result = finished(delta(0, "a", "look", "{}"), delta(1, None, None, '{"n":'), delta(1, None, None, "2}"))
    late = finished(delta(0, "a", "look", "{}"), delta(1, None, None, '{"n":2}'), delta(1, "b"), delta(1, None, "find"))
    assert "empty_name@1" in result.codes
    assert calls(late) == [("a", "look", {}), ("b", "find", {"n": 2})]


def test_entries_without_anything_are_no_calls():
    result = finished(delta(7), delta(0, "a", "look", "{}"), delta(1, "", "", ""), {"index": 2, "function": None}, {})
    assert calls(result) == [("a", "look", {})]
    assert result.codes == ()


def test_order_is_by_index_then_by_arrival():
    result = finished(delta(3, "d", "f", "{}"), delta(1, "b", "f", "{}"), delta(3, "e", "f", "{}"), delta(0, "a", "f"))
    assert [call.id for call in result.calls] == ["a", "b", "d", "e"]
    assert [call.index for call in result.calls] == [0, 1, 2, 3]


# --- ids and names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", ["", "null", None, False, 1.5, [], {}])
def test_ids_that_are_none(nothing):
    late = {"index": 0, "id": nothing, "function": {"name": "f", "arguments": "{}"}}
    assert calls(finished(late, delta(0, "real"))) == [("real", "f", {})]
    assert finished(late).codes == ("missing_id@0",)


def test_an_integer_is_an_id():
    assert calls(finished(delta(0, 7, "f", "{}"), delta(1, 0, "f", "{}"))) == [("7", "f", {}), ("0", "f", {})]


@pytest.mark.parametrize(
    ("pieces", "name", "codes"),
    [
        (["get_time", "get_time"], "get_time", ("note:name_repeated@0",)),
        (["get_", "time"], "get_time", ()),
        (["get", "get_time"], "get_time", ("note:cumulative_name@0",)),
        (["get_", "time", "get_time"], "get_time", ("note:name_repeated@0",)),
        ([" get_time", "\n"], "get_time", ()),
    ],
)
def test_names_before_arguments(pieces, name, codes):
    result = finished(*(delta(0, "a", piece, "") for piece in pieces), delta(0, None, None, "{}"))
    assert (result.calls[0].name, result.codes) == (name, codes)


def test_a_name_is_closed_by_the_first_argument_byte():
    result = finished(delta(0, "a", "look", '{"n"'), delta(0, None, "lookup", ":1}"))
    assert calls(result) == [("a", "look", {"n": 1})]
    assert result.codes == ("note:name_changed@0",)
    assert calls(finished(delta(0, "a", None, "{}"), delta(0, None, "lo"), delta(0, None, "ok"))) == [("a", "look", {})]


@pytest.mark.parametrize("name", ["f<|channel|>commentary", "a b", "f\x00", "f\ud800", "{}", "x" * 257, "f()"])
def test_names_that_are_none(name):
    result = finished(delta(0, "a", name, "{}"))
    assert result.codes == ("illegal_name@0",)
    assert result.calls[0].parsed is None
    json.dumps(result.to_json(), ensure_ascii=False).encode()


# --- settlement -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fragments", "parsed", "codes"),
    [
        (['{"a"', '{"a":1', '{"a":1}'], {"a": 1}, ("note:cumulative_arguments@0",)),
        (['{"a":', '{"a":1}', '{"a":1}'], {"a": 1}, ("note:cumulative_arguments@0",)),
        (['{"a":', '{"a":1}}'], {"a": {"a": 1}}, ()),
        (['{"a":', "1}", '{"a": 1}'], {"a": 1}, ("note:repeated_arguments@0",)),
        (['{"a":1}'] * 3, {"a": 1}, ("note:repeated_arguments@0",)),
        (["{}", '{"a":', "1}"], {"a": 1}, ("note:leading_empty_object@0",)),
        (["{}", "{}"], {}, ("note:repeated_arguments@0",)),
        (["{}", '{"a":1}', '{"b":1}'], None, ("concatenated_arguments@0",)),
        (['{"a":1}', "{}"], None, ("concatenated_arguments@0",)),
        (['{"a":1}', '{"a":true}'], None, ("concatenated_arguments@0",)),
        (['{"a":1}{"b":2}'], None, ("concatenated_arguments@0",)),
        (["```json\n", '{"a":1}', "\n```"], {"a": 1}, ("note:code_fence@0",)),
        (['~~~\n{"a":1}\n~~~\n'], {"a": 1}, ("note:code_fence@0",)),
        (['```{"a":1}```'], {"a": 1}, ("note:code_fence@0",)),
        (['```json\n{"a":1\n```'], None, ("unparseable_arguments@0",)),
        (['text ```json\n{"a":1}\n```'], None, ("unparseable_arguments@0",)),
        (['{"a":"x\ny\t"}'], {"a": "x\ny\t"}, ("note:control_characters@0",)),
        ([json.dumps('{"a":1}')], {"a": 1}, ("note:double_encoded@0",)),
        (["null"], {}, ("note:null_arguments@0",)),
        (["true"], None, ("non_object_arguments@0",)),
        (['{"a":"\ud83d', '\ude00"}'], {"a": "😀"}, ()),
        (['{"a":"\ud83d', '"}'], None, ("lone_surrogate@0",)),
        ([{"a": 1}], {"a": 1}, ()),
        ([{}], {}, ()),
        ([{"a": 1}, {"b": 2}], {"a": 1, "b": 2}, ()),
        ([{"a": "x"}, {"a": "xy"}, {"a": "xyz", "b": 1}], {"a": "xyz", "b": 1}, ("note:cumulative_arguments@0",)),
        ([{"a": 1}, {"a": 1}], {"a": 1}, ("note:repeated_arguments@0",)),
        ([{"a": 1}, {"a": 2}], None, ("concatenated_arguments@0",)),
        (["", {"a": 1}], {"a": 1}, ()),
        ([{}, '{"a":', "1}"], {"a": 1}, ("note:leading_empty_object@0",)),
        ([[1]], None, ("non_object_arguments@0",)),
        ([float("nan")], None, ("non_object_arguments@0",)),
        ([{"a": float("nan")}], None, ("non_finite_number@0",)),
        ([{"a": object()}], None, ("unparseable_arguments@0",)),
        (['{"a": 1'], None, ("unparseable_arguments@0",)),
        (['{"a": 1} thanks'], None, ("unparseable_arguments@0",)),
        (["{'a': None}"], None, ("unparseable_arguments@0",)),
    ],
)
def test_arguments_are_settled_once(fragments, parsed, codes):
    result = finished(delta(0, "a", "f"), *(delta(0, None, None, fragment) for fragment in fragments))
    if codes == ("non_object_arguments@0",) and result.codes != codes:
        assert result.codes == ("non_finite_number@0",)
    else:
        assert result.codes == codes
    assert result.calls[0].parsed == parsed
    assert finished(delta(0, "a", "f", "{}")).codes == ()
    json.dumps(result.to_json(), ensure_ascii=False).encode()


def test_strict_repairs_nothing():
    result = finished(delta(0, "a", "f", "```json\n{}\n```"), strict=True)
    assert result.codes == ("unparseable_arguments@0",)


def test_the_text_handed_on_is_the_text_that_parses():
    for fragments in (['{"a"', '{"a":1}'], ['{"a":1}'] * 2, ["```\n", '{"a":1}```'], [json.dumps('{"a":1}')]):
        result = finished(delta(0, "a", "f"), *(delta(0, None, None, fragment) for fragment in fragments))
        assert result.calls[0].arguments == '{"a":1}'


# --- the rest of a delta ----------------------------------------------------------------------------------------------


def test_custom_tools_take_free_text():
    head = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    result = finished(head, {"index": 0, "custom": {"input": " {docs"}})
    assert result.codes == ()
    assert (result.calls[0].parsed, result.calls[0].arguments, result.calls[0].custom) == ("ls {docs", "ls {docs", True)
    accumulator = TolerantAccumulator()
    accumulator.observe([head])
    assert accumulator.assembled() == [{"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls"}}]


def test_keys_of_the_provider_stay_with_their_call():
    signed = delta(0, "a", "f", "{}", extra_content={"google": {"thought_signature": "c2ln"}}, note=None)
    assert finished(signed).calls[0].extra == {"extra_content": {"google": {"thought_signature": "c2ln"}}}


def test_extras_of_sdk_objects():
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

    made = ChoiceDeltaToolCall.construct(**delta(0, "a", "f", "{}", extra_content={"x": 1}))
    assembler = CompletionAssembler()
    assembler.observe([made])
    assert assembler.finish().calls[0].extra == {"extra_content": {"x": 1}}


def test_an_explanation_says_where_every_fragment_went():
    result = finished(
        delta(0, "a", "look", '{"n":1}'),
        delta(0, "b", "find", '{"n":'),
        delta(1, None, None, "2}"),
        delta(-1, "c", "look", "{}"),
        explain=True,
    )
    assert [(step.chunk, step.call) for step in result.steps] == [(0, 0), (1, 1), (2, 1), (3, None)]
    assert "new call on a used index" in result.steps[1].why
    assert "put back" in result.steps[2].why
    assert "dropped" in result.steps[3].why
    assert finished(delta(0, "a", "look", "{}")).steps == ()


# --- properties -------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.text("abcdefg_", min_size=1, max_size=6), min_size=1, max_size=3).filter(
    lambda pieces: (
        not any(
            piece == "".join(pieces[:at]) or piece.startswith("".join(pieces[:at]))
            for at, piece in enumerate(pieces)
            if at
        )
    )
)
OBJECTS = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=8), max_size=3)


@st.composite
def conforming(draw):
    """A stream that keeps to the protocol, as one list of deltas."""
    indices = draw(st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4))
    single = len(indices) == 1 and draw(st.booleans())
    queues = []
    for number, index in enumerate(indices):
        arguments = draw(st.just("") | OBJECTS.map(json.dumps))
        cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=3)))
        pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        names = draw(NAMES)
        late_id = draw(st.booleans())
        where = None if single else index
        queue = [delta(where, None if late_id or at else f"call_{number}", name) for at, name in enumerate(names)]
        queue += [delta(where, None, None, piece) for piece in pieces]
        if late_id:
            queue.insert(draw(st.integers(0, len(queue))), delta(where, f"call_{number}"))
        queues.append(queue)
    order = [number for number, queue in enumerate(queues) for _ in queue]
    random.Random(draw(st.integers(0, 999))).shuffle(order)
    return [queues[number].pop(0) for number in order]


@given(conforming(), st.data())
@settings(max_examples=200)
def test_a_conforming_stream_comes_out_as_from_the_strict_one(stream, data):
    tolerant, strict = TolerantAccumulator(), ToolCallAccumulator()
    at = 0
    while at < len(stream):  # deltas of one chunk are merged into one, or spread over several
        width = data.draw(st.integers(1, 4))
        tolerant.observe(stream[at : at + width])
        at += width
    for one in stream:
        strict.observe([one])
    assert tolerant.assembled() == strict.assembled()
    assert tolerant.dropped_deltas == strict.dropped_deltas == 0
    assert finished(*stream) == finished(*stream, strict=True)
    assert not any(code.startswith("note:") for code in finished(*stream).codes)


def resliced(draw, stream):
    """The same stream with argument fragments cut further, and neighbours of one call joined into one delta."""
    sliced = []
    for one in stream:
        function = one.get("function", {})
        text = function.get("arguments", "")
        cut = draw(st.integers(0, len(text))) if text else 0
        if 0 < cut < len(text):
            sliced.append({**one, "function": {**function, "arguments": text[:cut]}})
            rest = {"index": one["index"]} if "index" in one else {}
            sliced.append({**rest, "function": {"arguments": text[cut:]}})
            continue
        last = sliced[-1] if sliced else {}
        same = last.get("index") == one.get("index") and not one.get("id") and "name" not in function
        if last and same and text and draw(st.booleans()):
            before = last.get("function", {})
            sliced[-1] = {**last, "function": {**before, "arguments": before.get("arguments", "") + text}}
        else:
            sliced.append(one)
    return sliced


@given(conforming(), st.data())
@settings(max_examples=200)
def test_how_a_conforming_stream_is_sliced_makes_no_difference(stream, data):
    other = resliced(data.draw, stream)
    strict = ToolCallAccumulator()
    strict.observe(stream)
    tolerant = TolerantAccumulator()
    for one in other:
        tolerant.observe([one])
    assert tolerant.assembled() == strict.assembled()
    assert finished(*other) == finished(*stream, strict=True)
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": None}]} for one in other]
    raw = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, FINISH]).encode()
    assembler = CompletionAssembler()
    size = data.draw(st.integers(1, len(raw)))
    for at in range(0, len(raw), size):
        assembler.feed(raw[at : at + size])
    assert assembler.finish() == finished(*stream, strict=True)


SCALAR = st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "a", "b", "null", "f", "g", "f_g"])
PIECE = (
    st.sampled_from(["{", "}", "{}", '{"a":', "1}", '{"a":1}', '"', "\\", "```", "null", " ", "\n", "\ud83d"])
    | st.text()
)
WILD = st.fixed_dictionaries(
    {},
    optional={
        "index": SCALAR,
        "id": SCALAR,
        "type": SCALAR,
        "function": SCALAR
        | st.fixed_dictionaries({}, optional={"name": SCALAR | st.text(), "arguments": PIECE | JSON}),
        "custom": SCALAR | st.fixed_dictionaries({}, optional={"name": SCALAR, "input": PIECE}),
        "extra_content": JSON,
    },
)


@given(st.lists(WILD | JSON, max_size=8), st.booleans())
def test_anything_at_all_ends_in_calls_and_defects(deltas, strict):
    result = finished(*deltas, strict=strict, explain=True)
    json.dumps(result.to_json(), ensure_ascii=False).encode()
    for call in result.calls:
        assert call.parsed is None or isinstance(call.parsed, (dict, str))
        assert call.parsed is not None or call.defects
    accumulator = TolerantAccumulator()
    for one in deltas:
        accumulator.observe(one)
    accumulator.assembled()
