"""Defects of turns and of calls, asked of finished calls alone."""

import pytest

from toolsd.streams import detect_completion_defect


def call(id="a", name="f", arguments="{}"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("reason", "codes"),
    [
        ("tool_calls", ()),
        ("stop", ()),
        ("end_turn", ()),
        ("length", ("finish_length",)),
        ("MAX_TOKENS", ("finish_length",)),
        ("content_filter", ("finish_content_filter",)),
        ("SAFETY", ("finish_content_filter",)),
        ("MALFORMED_FUNCTION_CALL", ("malformed_function_call",)),
        ("IMAGE_RECITATION", ("finish_content_filter",)),
        ("max-tokens", ("finish_length",)),
        ("error", ("stream_error",)),
        ("steered", ("stream_error",)),
        (None, ("finish_missing",)),
        (["tool_calls", "length"], ("finish_length",)),
    ],
)
def test_finish_reasons(reason, codes):
    assert detect_completion_defect([call()], reason).turn == codes


def test_calls_that_were_promised():
    assert detect_completion_defect([], "tool_calls").turn == ("finish_tool_calls_without_calls",)
    assert detect_completion_defect([], "tool_use").turn == ("finish_tool_calls_without_calls",)
    assert not detect_completion_defect([], "stop")


def test_what_was_lost():
    assert detect_completion_defect([call()], "stop", dropped_deltas=1).turn == ("dropped_deltas",)
    assert detect_completion_defect([call()], None, stream_error=True).turn == ("stream_error",)


def test_calls():
    found = detect_completion_defect(
        [
            call(),
            call("b", "", "{"),
            call("a", "f g", "[1]"),
            call(None),
            call("c", "x" * 300),
            call("d", "ns.tool:3/v-1"),
            call("e", "f", None),
            {},
            None,
        ],
        "tool_calls",
    )
    assert found.turn == ()
    assert found.calls == (
        (),
        ("unparseable_arguments", "empty_name"),
        ("non_object_arguments", "illegal_name", "duplicate_id"),
        ("missing_id",),
        ("illegal_name",),
        (),
        (),
        ("empty_name", "missing_id"),
        ("empty_name", "missing_id"),
    )
    assert found
    assert not detect_completion_defect([call()], "stop")
    custom = {"id": "a", "type": "custom", "custom": {"name": "shell", "input": "ls {"}}
    assert not detect_completion_defect([custom], "tool_calls")
