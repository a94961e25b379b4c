"""Every kind of argument text has one named answer."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd.streams import ArgumentsMalformed, parse_tool_call_arguments


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (" \n\t", {}),
        (None, {}),
        ("{}", {}),
        (b'{"a": 1}', {"a": 1}),
        (' {"a": [1, 2.5, null, true, "x"]} ', {"a": [1, 2.5, None, True, "x"]}),
        (json.dumps('{"a": 1}'), {"a": 1}),
        ('{"a": "{\\"b\\": 1}"}', {"a": '{"b": 1}'}),
        ('{"n": 1234567890123456789012345678901234567890}', {"n": 1234567890123456789012345678901234567890}),
        ('{"a": "\ud83d\ude00"}', {"a": "😀"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": ' * 128 + "1" + "}" * 128, None),
        ('{"a": "' + "{[" * 5000 + '"}', {"a": "{[" * 5000}),
    ],
)
def test_accepted(text, value):
    parsed = parse_tool_call_arguments(text)
    assert value is None or parsed == value


@pytest.mark.parametrize(
    ("text", "defect"),
    [
        ('{"a": "lon', "unparseable_arguments"),
        ('{"a": 1', "unparseable_arguments"),
        ('{"a": 1,}', "unparseable_arguments"),
        ("{'a': 1}", "unparseable_arguments"),
        ('{"a": 1} and more', "unparseable_arguments"),
        ('{"a": "x\ny"}', "unparseable_arguments"),
        ('{"a": "x\x00y"}', "unparseable_arguments"),
        ("\ufeff{}", "unparseable_arguments"),
        (b"\xff{}", "unparseable_arguments"),
        ('{"a": 1}{"a": 2}', "concatenated_arguments"),
        ('{"a": 1} [2] 3', "concatenated_arguments"),
        ("[1]", "non_object_arguments"),
        ("7", "non_object_arguments"),
        ("null", "non_object_arguments"),
        ('"text"', "non_object_arguments"),
        ('""', "non_object_arguments"),
        (json.dumps(json.dumps("{}")), "non_object_arguments"),
        (7, "non_object_arguments"),
        ('{"a": NaN}', "non_finite_number"),
        ('{"a": [-Infinity]}', "non_finite_number"),
        ('{"a": 1e999}', "non_finite_number"),
        ('{"a": ' + "9" * 5000 + "}", "huge_number"),
        ('{"a": -' + "9" * 5000 + "}", "huge_number"),
        ('{"a": 1, "a": 2}', "duplicate_key"),
        ('{"x": {"a": 1, "\\u0061": 1}}', "duplicate_key"),
        ('{"a": ' * 129 + "1" + "}" * 129, "excess_depth"),
        ("[" * 1_000_000, "excess_depth"),
        ('{"a": "\ud83d"}', "lone_surrogate"),
        ('{"a": "\\ud83d"}', "lone_surrogate"),
        ('{"\\udc00": 1}', "lone_surrogate"),
    ],
)
def test_refused(text, defect):
    with pytest.raises(ArgumentsMalformed) as caught:
        parse_tool_call_arguments(text)
    assert caught.value.defect == defect
    assert caught.value.detail


def test_the_digit_limit_of_the_interpreter_changes_no_answer_above_it():
    before = sys.get_int_max_str_digits()
    try:
        for limit in (640, 0):
            sys.set_int_max_str_digits(limit)
            with pytest.raises(ArgumentsMalformed) as caught:
                parse_tool_call_arguments('{"a": ' + "9" * 4301 + "}")
            assert caught.value.defect == "huge_number"
    finally:
        sys.set_int_max_str_digits(before)


def test_depth_is_the_callers_choice():
    assert parse_tool_call_arguments('{"a": {}}', max_depth=2) == {"a": {}}
    with pytest.raises(ArgumentsMalformed):
        parse_tool_call_arguments('{"a": {}}', max_depth=1)


def test_near_the_recursion_limit_of_the_caller():
    text = '{"a": ' * 100 + "1" + "}" * 100

    def descend(levels):
        return descend(levels - 1) if levels else parse_tool_call_arguments(text)

    for levels in range(0, sys.getrecursionlimit(), 50):
        try:
            descend(levels)
        except ArgumentsMalformed as error:
            assert error.defect == "excess_depth"
        except RecursionError:
            break  # our own frames, not the parser


UTF8 = st.text(st.characters(codec="utf-8"), max_size=8)
OBJECTS = st.dictionaries(
    UTF8,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | UTF8,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(UTF8, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@given(OBJECTS, st.booleans())
def test_round_trip(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_tool_call_arguments(text) == value
    assert parse_tool_call_arguments(json.dumps(text)) == value


@given(OBJECTS.filter(bool), st.data())
def test_a_truncated_object_never_parses(value, data):
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(ArgumentsMalformed):
        parse_tool_call_arguments(text[:cut])


@given(st.text() | st.text('{}[]",:\\ aue0123456789dDnN-.') | st.binary())
def test_nothing_else_is_raised(text):
    try:
        assert isinstance(parse_tool_call_arguments(text), dict)
    except ArgumentsMalformed as error:
        assert error.defect
