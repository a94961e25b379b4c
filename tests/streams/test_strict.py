"""The five rules of the strict accumulator."""

import random
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from stream_data import JSON

from toolsd.streams import ToolCallAccumulator


def delta(index=None, id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    made = {"index": index, "id": id, "function": function}
    return {key: value for key, value in made.items() if value is not None}


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assembled(*deltas):
    accumulator = ToolCallAccumulator()
    for one in deltas:
        accumulator.observe([one])
    return accumulator.assembled()


def test_keyed_by_index_and_ordered_by_index():
    assert assembled(
        delta(5, "b", "g", "{"), delta(0, "a", "f", "["), delta(5, None, None, "}"), delta(0, None, None, "]")
    ) == [call("a", "f", "[]"), call("b", "g", "{}")]


def test_id_may_come_late_and_the_first_one_stays():
    assert assembled(delta(0, None, "f", "{"), delta(0, "late", None, "}"), delta(0, "later")) == [
        call("late", "f", "{}")
    ]


def test_name_is_concatenated_and_type_is_not_read():
    head = {**delta(0, "a", "get_"), "type": "custom"}
    assert assembled(head, delta(0, None, "time")) == [call("a", "get_time", "")]


def test_deltas_without_index_are_one_call_and_wrong_ones_are_counted():
    accumulator = ToolCallAccumulator()
    accumulator.observe([delta(None, "a", "f", "{"), {"index": None, "function": {"arguments": "}"}}])
    assert accumulator.assembled() == [call("a", "f", "{}")]
    accumulator.observe([delta(wrong, "x", "f", "{}") for wrong in (-1, "0", 1.5, 1.0, True, [], {})])
    accumulator.observe([None, "text", 7])
    assert (accumulator.dropped_deltas, accumulator.assembled()) == (10, [call("a", "f", "{}")])


def test_nothing_is_nothing():
    accumulator = ToolCallAccumulator()
    for empty in ([], None, ()):
        accumulator.observe(empty)
    assert accumulator.is_empty
    assert accumulator.assembled() == []
    accumulator.observe([delta(0)])
    assert not accumulator.is_empty


def test_assembled_is_fresh_mid_stream_and_does_not_end_anything():
    accumulator = ToolCallAccumulator()
    accumulator.observe([delta(0, "a", "f", "{")])
    first = accumulator.assembled()
    first[0]["function"]["arguments"] = "spoilt"
    first.clear()
    accumulator.observe([delta(0, None, None, "}")])
    assert accumulator.assembled() == [call("a", "f", "{}")]


def test_objects_do_as_well_as_dicts():
    function = SimpleNamespace(name="f", arguments="{}")
    accumulator = ToolCallAccumulator()
    accumulator.observe([SimpleNamespace(index=0, id="a", type="function", function=function)])
    assert accumulator.assembled() == [call("a", "f", "{}")]


def test_a_huge_index_costs_one_slot():
    assert assembled(delta(10**30, "a", "f", "{}"), delta(3, "b", "g")) == [call("b", "g", ""), call("a", "f", "{}")]


@given(st.data())
def test_any_interleaving_gives_the_same_calls(data):
    calls = data.draw(st.dictionaries(st.integers(0, 50), st.tuples(st.text(min_size=1), st.text(), st.text())))
    queues = []
    for index, (id_, name, arguments) in calls.items():
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        queues.append([delta(index, id_, name, ""), *(delta(index, None, None, piece) for piece in pieces)])
    order = [number for number, queue in enumerate(queues) for _ in queue]
    random.Random(data.draw(st.integers())).shuffle(order)
    expected = [call(id_, name, arguments) for _, (id_, name, arguments) in sorted(calls.items())]
    assert assembled(*(queues[number].pop(0) for number in order)) == expected


@given(st.lists(JSON, max_size=5))
def test_garbage_never_raises(chunks):
    accumulator = ToolCallAccumulator()
    for chunk in chunks:
        accumulator.observe(chunk)
    accumulator.assembled()
