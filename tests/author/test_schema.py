"""From a signature to the schema a model sees, and from what a model sends to arguments or a misfit it can correct."""

from __future__ import annotations

import datetime
import enum
import functools
import pathlib
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, Required, TypedDict, Union

import annotated_types
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolsd import Context, SlotError, UsageError
from toolsd.misfits import BadArguments, bind_slowly
from toolsd.schema import Parameters


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Node:
    size: int
    child: Node | None = None


@dataclass
class Leaf:
    name: str


@dataclass
class File:
    path: pathlib.Path


class Options(TypedDict, total=False):
    depth: Required[int]
    note: str


class Kind(msgspec.Struct):
    kind: Literal["a", "b"]


class Model(pydantic.BaseModel):
    x: int
    children: list[Model] = []


class Named(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)


UserId = NewType("UserId", int)


def takes(hint: Any, default: Any = ...) -> Parameters:
    def tool(v: Any = default) -> None: ...

    if default is ...:

        def tool(v: Any) -> None: ...

    tool.__annotations__ = {"v": hint}
    return Parameters(tool)


def bound(hint: Any, value: Any) -> Any:
    return takes(hint).bind(msgspec.json.encode({"v": value}).decode())["v"]


def misfit(parameters: Parameters, text: str) -> SlotError:
    with pytest.raises(BadArguments) as refused:
        parameters.bind(text)
    return refused.value.error


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - both spellings
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string", "format": "path"}),
        (UserId, {"type": "integer"}),
        (Annotated[int, msgspec.Meta(ge=1), "how many"], {"type": "integer", "minimum": 1, "description": "how many"}),
        (Annotated[str, annotated_types.Len(1, 3)], {"type": "string", "minLength": 1, "maxLength": 3}),
        (Annotated[int, annotated_types.Gt(1)], {"type": "integer", "exclusiveMinimum": 1}),
        (Annotated[int, pydantic.Field(ge=1, description="n")], {"type": "integer", "minimum": 1, "description": "n"}),
        (
            list[Annotated[str, "a word"]],
            {"type": "array", "items": {"type": "string", "description": "a word"}},
        ),
        (
            str | datetime.datetime,
            {"anyOf": [{"type": "string"}, {"type": "string", "format": "date-time"}]},
        ),
    ],
)
def test_each_hint_has_its_schema(hint: Any, schema: Any) -> None:
    assert takes(hint).schema == {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "additionalProperties": False,
    }


def test_shared_types_are_definitions() -> None:
    def tool(node: Node, nodes: list[Node], colour: Colour, model: Model | Named | None = None) -> None: ...

    schema = Parameters(tool).schema
    assert schema["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert schema["properties"]["nodes"] == {"type": "array", "items": {"$ref": "#/$defs/Node"}}
    assert schema["$defs"]["Colour"] == {"title": "Colour", "type": "string", "enum": ["blue", "red"]}
    assert {"Node", "Colour", "Model"} <= schema["$defs"].keys()
    assert schema["required"] == ["node", "nodes", "colour"]


@pytest.mark.parametrize(
    ("hint", "sent", "value"),
    [
        (Node, {"size": 1, "child": {"size": 2}}, Node(1, Node(2))),
        (Options, {"depth": 1}, {"depth": 1}),
        (Kind, {"kind": "a"}, Kind("a")),
        (Model, {"x": 1, "children": [{"x": 2}]}, Model(x=1, children=[Model(x=2)])),
        (list[Model], [{"x": 1}], [Model(x=1)]),
        (dict[str, Model | None], {"a": None, "b": {"x": 1}}, {"a": None, "b": Model(x=1)}),
        (Model | Named, {"name": "ab"}, Named(name="ab")),
        (Model | str, "a", "a"),
        (Node | Leaf, {"name": "a"}, Leaf("a")),
        (str | datetime.date, "2024-05-31", datetime.date(2024, 5, 31)),
        (str | datetime.date, "soon", "soon"),
        (list[str | datetime.date], ["soon"], ["soon"]),
        (set[int], [1, 1], {1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Colour, "red", Colour.RED),
        (Colour | str, "green", "green"),
        (Decimal, "1.50", Decimal("1.50")),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (File, {"path": "a/b"}, File(pathlib.Path("a/b"))),
        (pathlib.Path | int, "a/b", pathlib.Path("a/b")),
        (pathlib.Path | None, None, None),
        (float, 1, 1.0),
        (int, 12345678901234567890123, 12345678901234567890123),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Annotated[int, pydantic.Field(ge=1)], 1, 1),
    ],
)
def test_arguments_arrive_typed(hint: Any, sent: Any, value: Any) -> None:
    assert bound(hint, sent) == value
    assert type(bound(hint, sent)) is type(value)


@pytest.mark.parametrize(
    ("hint", "sent", "path", "line"),
    [
        (int, "5", "$.v", 'expected integer, got string "5"; write 5 without quotes'),
        (list[int], "[1]", "$.v", 'expected array, got string "[1]"; write [1] without quotes'),
        (int, 1.5, "$.v", "expected integer, got number 1.5"),
        (int, True, "$.v", "expected integer, got boolean true"),
        (int, None, "$.v", "expected integer, got null"),
        (str, 5, "$.v", "expected string, got integer 5"),
        (File, {"path": 5}, "$.v.path", "expected string with a path, got integer 5"),
        (Literal["a", "b"], "c", "$.v", 'expected one of "a", "b", got string "c"'),
        (Colour | None, "green", "$.v", 'expected one of "blue", "red" or null, got string "green"'),
        (Node, {"size": 1, "child": {"size": "x"}}, "$.v.child.size", 'expected integer, got string "x"'),
        (Node, {"child": None}, "$.v.size", "expected integer, got nothing; it is required"),
        (Node, 5, "$.v", "expected object with size, child?, got integer 5"),
        (
            dict[str, dict[str, int]],
            {"a": {}, "b c": {"d": 1, "e": []}},
            '$.v["b c"].e',
            "expected integer, got array []",
        ),
        (dict[int, str], {"a": "b"}, "$.v", 'expected integer keys, got object {"a":"b"}'),
        (datetime.date, "x", "$.v", 'expected string with a date like 2024-05-31, got string "x"'),
        (bytes, "?", "$.v", 'expected string in base64, got string "?"'),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "$.v", "expected integer >= 1, got integer 0"),
        (Annotated[int, pydantic.Field(ge=1)], "1", "$.v", "expected a valid integer, got string"),
        (Model, {"x": 1, "children": [{"x": "z"}]}, "$.v.children[0].x", "expected a valid integer"),
        (Node | Leaf, {}, "$.v", "expected object with size, child? or object with name, got object {}"),
        (tuple[int, str], [1], "$.v", "expected array of length 2, got array [1]"),
        (int, "x" * 500, "$.v", "…"),
    ],
)
def test_a_misfit_says_path_expectation_and_what_came(hint: Any, sent: Any, path: str, line: str) -> None:
    error = misfit(takes(hint), msgspec.json.encode({"v": sent}).decode())
    assert error.code == "arguments_invalid"
    assert error.details is not None
    assert error.details["path"] == path
    assert f"- {path}: " in error.message
    assert line in error.message


def test_everything_wrong_is_told_at_once() -> None:
    def search(query: str, limit: int = 10, sort: Literal["date", "size"] = "date") -> None: ...

    error = misfit(Parameters(search), '{"qury": "x", "limit": "5", "sort": "name"}')
    assert error.message.splitlines()[1:] == [
        "- $.qury: no such argument; did you mean query?",
        "- $.query: expected string, got nothing; it is required",
        '- $.limit: expected integer, got string "5"; write 5 without quotes',
        '- $.sort: expected one of "date", "size", got string "name"',
    ]
    assert "leave it out for the default" in misfit(Parameters(search), '{"query": "x", "limit": null}').message


def test_the_words_of_the_authors_own_checks_are_told() -> None:
    @dataclass
    class Span:
        start: int
        end: int

        def __post_init__(self) -> None:
            if self.end < self.start:
                raise ValueError("end is before start")

    error = misfit(takes(list[Span]), '{"v": [{"start": 2, "end": 1}]}')
    assert '- $.v[0]: expected object with start, end (end is before start), got object {"start"' in error.message


def test_pydantic_dataclasses_are_checked_by_pydantic() -> None:
    @pydantic.dataclasses.dataclass
    class Bounded:
        size: int = pydantic.Field(ge=1)

    assert takes(Bounded).bind('{"v": {"size": 1}}') == {"v": Bounded(1)}
    assert "$.v.size: expected greater than" in misfit(takes(Bounded), '{"v": {"size": 0}}').message


def test_a_flood_of_misfits_is_cut() -> None:
    names = ", ".join(f'"{"x" * i}": 1' for i in range(1, 300))
    error = misfit(takes(list[int] | None, None), f'{{{names}, "v": ["{"y" * 10_000}"]}}')
    assert len(error.message) < 5000
    assert error.message.splitlines()[-1] == "- and 1 more"


def test_types_of_the_same_name_are_told_apart() -> None:
    def other() -> type:
        @dataclass
        class Node:
            other: str

        return Node

    def tool(a: Node, b: Any) -> None: ...

    tool.__annotations__["b"] = other()
    schema = Parameters(tool).schema
    refs = [schema["properties"][name]["$ref"].rpartition("/")[2] for name in "ab"]
    assert [list(schema["$defs"][ref]["properties"]) for ref in refs] == [["size", "child"], ["other"]]


def test_unknown_names_are_refused() -> None:
    def none() -> None: ...
    def two(first: int, second: int) -> None: ...

    assert "takes none" in misfit(Parameters(none), '{"x": 1}').message
    assert "there are first, second" in misfit(Parameters(two), '{"first": 1, "second": 2, "zzz": 3}').message


@pytest.mark.parametrize("text", ["", "  \n", "{}", '"{}"'])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    def tool(a: int = 1, b: list[int] = [2]) -> None: ...  # noqa: B006 - what authors write

    assert Parameters(tool).bind(text) == {"a": 1, "b": [2]}


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "5", "null", '{"v": NaN}', '{"v": 1} {"v": 2}', "[" * 100_000, '{"v": "\ud800"}', '{"v": "\\ud800"}'],
)
def test_text_that_is_no_object_is_malformed(text: str) -> None:
    assert misfit(takes(Any), text).code == "arguments_malformed"


def test_halves_of_a_character_are_put_together() -> None:
    assert takes(str).bind('{"v": "\ud83d\ude00"}') == {"v": "😀"}


@given(st.text())
def test_any_text_binds_or_is_told(text: str) -> None:
    try:
        takes(dict[str, Node | list[int]]).bind(text)
    except BadArguments as refused:
        assert refused.error.message


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("ab\n\"'`é"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["v", "size", "a.b", "`"]), inner),
    max_leaves=8,
)
HINTS = [int, str | None, list[Node], dict[str, list[int]], Node | Leaf, Model, Colour, Options, tuple[int, str]]
PARAMETERS = [takes(hint) for hint in HINTS]


@given(st.sampled_from(PARAMETERS), anything)
def test_any_value_binds_or_is_told_with_a_path(parameters: Parameters, value: Any) -> None:
    """The two ways agree: what the quick one refuses the slow one explains, what it binds the slow one binds alike."""
    text = msgspec.json.encode({"v": value}).decode()
    try:
        assert parameters.bind(text) == bind_slowly(parameters, text)
    except BadArguments as refused:
        assert refused.error.code == "arguments_invalid"
        assert refused.error.details is not None
        assert refused.error.details["path"].startswith("$.v")


# --- declarations ---------------------------------------------------------------------------------------------------


def test_docstrings_describe_tool_and_parameters() -> None:
    def google(a: int, b: Annotated[int, "own words"], c: int = 3) -> None:
        """Do a thing.

        More of it.

        Args:
            a: The first
                number.
            b: not used
            c: The last.

        Returns:
            Nothing.
        """

    def numpy(a: int) -> None:
        """Do a thing.

        Parameters
        ----------
        a : int
            The first.
        """

    def sphinx(a: int) -> None:
        """Do a thing.

        :param a: The first.
        """

    def plain(a: int) -> None:
        """Note: this

        stays as it is."""

    made = Parameters(google)
    assert made.description == "Do a thing.\n\nMore of it."
    said = {name: schema.get("description") for name, schema in made.schema["properties"].items()}
    assert said == {"a": "The first number.", "b": "own words", "c": "The last."}
    for function in (numpy, sphinx):
        assert Parameters(function).description == "Do a thing."
        assert Parameters(function).schema["properties"]["a"]["description"] == "The first."
    assert Parameters(plain).description == "Note: this\n\nstays as it is."


def test_defaults_are_shown_and_kept() -> None:
    marker = object()

    def tool(  # noqa: PLR0917
        a: int = 1,
        b: list[int] = [1],  # noqa: B006 - what authors write
        c: Colour = Colour.RED,
        d: int = None,  # type: ignore[assignment]  # noqa: RUF013
        e: Any = marker,
        f=2.5,  # type: ignore[no-untyped-def]
        g: int = pydantic.Field(7, ge=1),
        *,
        h: Annotated[list[int], pydantic.Field(default_factory=list)],
    ) -> None: ...

    made = Parameters(tool)
    shown = {name: schema.get("default", "none") for name, schema in made.schema["properties"].items()}
    assert shown == {"a": 1, "b": [1], "c": "red", "d": None, "e": "none", "f": 2.5, "g": 7, "h": []}
    assert made.bind("{}") == {"a": 1, "b": [1], "c": Colour.RED, "d": None, "e": marker, "f": 2.5, "g": 7, "h": []}
    assert made.bind('{"d": null}')["d"] is None
    assert made.bind("{}")["h"] is not made.bind("{}")["h"]
    assert "required" not in made.schema


@pytest.mark.parametrize("name", ["self_", "type", "keys", "_private", "__dunder__", "schema", "naïve", "args"])
def test_any_name_of_a_parameter_will_do(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def tool({name}: int, other: str = 'x'): return {name}", scope)
    assert Parameters(scope["tool"]).bind(f'{{"{name}": 1}}') == {name: 1, "other": "x"}


def test_the_context_is_not_shown() -> None:
    def tool(a: int, ctx: Context) -> None: ...
    def maybe(a: int, ctx: Context | None = None) -> None: ...

    for function in (tool, maybe):
        made = Parameters(function)
        assert made.context == "ctx"
        assert list(made.schema["properties"]) == ["a"]


def test_positional_and_keyword_only_parameters() -> None:
    def tool(a: int, /, b: int, *, c: int) -> None: ...

    made = Parameters(tool)
    assert made.positional == ("a",)
    assert made.bind('{"a": 1, "b": 2, "c": 3}') == {"a": 1, "b": 2, "c": 3}


def test_types_defined_beside_the_function_are_found() -> None:
    class Local(msgspec.Struct):
        x: int

    def tool(v: Local) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821 - what it returns is not asked

    assert Parameters(tool, locals()).bind('{"v": {"x": 1}}') == {"v": Local(1)}


def test_methods_and_wrapped_functions_can_be_tools() -> None:
    class Shop:
        def buy(self, what: str) -> None: ...

        def __call__(self, count: int) -> None: ...

    def wrapper(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    @wrapper
    def wrapped(v: int) -> None: ...

    def add(a: int, b: int) -> None: ...

    assert list(Parameters(Shop().buy).schema["properties"]) == ["what"]
    assert list(Parameters(Shop()).schema["properties"]) == ["count"]
    assert list(Parameters(wrapped).schema["properties"]) == ["v"]
    assert Parameters(functools.partial(add, b=1)).bind('{"a": 2}') == {"a": 2, "b": 1}


def _star(*args: int) -> None: ...
def _stars(**kwargs: int) -> None: ...
def _bare(a) -> None: ...  # type: ignore[no-untyped-def]
def _method(self, a: int) -> None: ...  # type: ignore[no-untyped-def]
def _none(a=None) -> None: ...  # type: ignore[no-untyped-def]
def _complex(a: complex) -> None: ...
def _callable(a: list[Callable[[], int]]) -> None: ...
def _contexts(a: Context, b: Context) -> None: ...
def _first(a: Context, /) -> None: ...
def _constraint(a: Annotated[int, annotated_types.MultipleOf(2), annotated_types.Predicate(bool)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_star, "*args"),
        (_stars, "**kwargs"),
        (_bare, "parameter a has no type hint"),
        (_method, "source.tool(thing.method)"),
        (_none, "parameter a has no type hint"),
        (_complex, "parameter a: complex cannot"),
        (_callable, "Callable has no JSON form"),
        (_contexts, "a and b are both a Context"),
        (_first, "positional-only"),
        (_constraint, "Predicate"),
    ],
)
def test_what_no_model_could_be_told_is_refused_at_declaration(function: Any, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        Parameters(function)
    assert words in str(refused.value)
    assert f"{function.__name__} ({__file__}:" in str(refused.value)
