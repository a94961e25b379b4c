"""Tools as providers take them: names that fit and come back, schemas without what is refused, and every cut told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolsd import UsageError, streams
from toolsd.client import Tool
from toolsd.conversation import FORMATS, Offer, offer

LEGAL = {
    "openai-chat": r"[a-zA-Z0-9_-]{1,64}",
    "openai-responses": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,64}",
    "mistral": r"[a-zA-Z0-9_-]{1,64}",
    "bedrock": r"[a-zA-Z0-9_-]{1,64}",
    "ollama": r"[a-zA-Z0-9_-]{1,64}",
    "cohere": r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}",
    "gemini-interactions": r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}",
    "mcp": r"[a-zA-Z0-9_.-]{1,128}",
}


def declared(made: Offer) -> list[tuple[str, Any]]:
    """(name, schema) of each tool in an offer, whatever its shape."""
    tools = made.tools[0]["functionDeclarations"] if made.format == "gemini" and made.tools else made.tools
    found = []
    for tool in tools:
        bare = tool.get("function") or tool.get("toolSpec") or tool
        schema = next((bare[key] for key in ("parameters", "input_schema", "inputSchema") if key in bare), None)
        found.append((bare["name"], schema["json"] if "toolSpec" in tool and schema else schema))
    return found


def one(format: str, schema: Any, name: str = "t") -> tuple[Any, list[str]]:
    """The schema of a single tool as `format` takes it, and what was cut."""
    made = offer([Tool(name, "s", "", schema)], format)
    found = declared(made)
    return (found[0][1] if found else None), [f"{cut.path}: {cut.what}" for cut in made.cuts]


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


names = st.text(st.sampled_from("abZ09_.-é "), min_size=1, max_size=128)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40)
@given(st.lists(names, unique=True, max_size=8))
def test_names_fit_and_come_back(format: str, tools: list[str]) -> None:
    made = offer([Tool(name, "s") for name in tools], format)
    there = [name for name, _ in declared(made)]
    assert all(re.fullmatch(LEGAL[format], name) for name in there)
    assert len(set(there)) == len(tools)
    assert [made.names.get(name, name) for name in there] == tools
    alone = [declared(offer([Tool(name, "s")], format))[0][0] for name in tools]
    assert there == alone, "what a name becomes depends on the other tools"


@pytest.mark.parametrize(("format", "name"), [("openai-chat", "a.b"), ("cohere", "3-d"), ("gemini", "x" * 128)])
def test_a_changed_name_avoids_one_that_is_there(format: str, name: str) -> None:
    (changed,) = offer([Tool(name, "s")], format).names
    made = offer([Tool(changed, "s"), Tool(name, "s")], format)
    there = [entry for entry, _ in declared(made)]
    assert there[0] == changed and there[1] != changed and made.names == {there[1]: name}


def test_every_stream_has_a_way_back() -> None:
    assert FORMATS.keys() == {*streams.FORMATS, "mcp"}


def test_the_shapes() -> None:
    tool = [Tool("t", "s", "Do it.", arguments(a={"type": "string"}))]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    strict = schema | {"additionalProperties": False}
    function = {"type": "function", "function": {"name": "t", "description": "Do it.", "parameters": strict}}
    capital = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]}
    bare = {"name": "t", "description": "Do it."}
    expected = {
        "openai-chat": function,
        "mistral": function,
        "cohere": function,
        "ollama": {"type": "function", "function": {**bare, "parameters": schema}},
        "openai-responses": {"type": "function", **bare, "parameters": strict, "strict": False},
        "anthropic": {**bare, "input_schema": strict},
        "gemini": {"functionDeclarations": [{**bare, "parameters": capital}]},
        "gemini-interactions": {"type": "function", **bare, "parameters": strict},
        "bedrock": {"toolSpec": {**bare, "inputSchema": {"json": schema}}},
        "mcp": {**bare, "inputSchema": strict},
    }
    assert {format: offer(tool, format).tools for format in FORMATS} == {
        format: [shape] for format, shape in expected.items()
    }
    assert not any(offer(tool, format).cuts for format in FORMATS)
    assert offer([], "gemini").tools == []
    with pytest.raises(UsageError, match="unknown format 'gpt'"):
        offer(tool, "gpt")


def test_no_union_at_the_top() -> None:
    branches = [
        {"type": "object", "properties": {"a": {"type": "string"}, "c": {"type": "null"}}, "required": ["a", "c"]},
        {"$ref": "#/$defs/B"},
    ]
    other = {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}}, "required": ["b", "c"]}
    for format in FORMATS:
        schema, cuts = one(format, {"oneOf": branches, "$defs": {"B": other}})
        assert schema["type"].lower() == "object" and schema["properties"].keys() == {"a", "b", "c"}
        assert schema["required"] == ["c"]
        assert not {"oneOf", "anyOf", "allOf"} & schema.keys()
        assert "$: oneOf is left out: the arguments of all its branches are offered together" in cuts
    schema, cuts = one(
        "anthropic", {"type": "object", "allOf": [branches[0], {"$ref": "#/$defs/B"}], "$defs": {"B": other}}
    )
    assert schema["required"] == ["a", "c", "b"] and not cuts


def test_nothing_but_objects() -> None:
    for format in FORMATS:
        for odd in ({}, None, True, {"type": "string"}, {"enum": [1]}, {"type": "object", "properties": None}):
            schema, _ = one(format, odd)
            if format == "gemini":
                assert schema is None, "an object without properties is refused"
            else:
                assert schema["type"] == "object" and schema["properties"] == {}


def test_references_are_inlined_where_they_are_not_followed() -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}}
    whole = arguments(p={"$ref": "#/$defs/P"}, q={"$ref": "#/$defs/P", "description": "q"}, t={"$ref": "#/$defs/Tree"})
    whole["$defs"] = {"P": point, "Tree": tree}
    for format in ("openai-chat", "anthropic", "mcp", "cohere"):
        schema, cuts = one(format, whole)
        assert (
            schema["properties"]["p"] == {"$ref": "#/$defs/P"} and schema["$defs"].keys() == {"P", "Tree"} and not cuts
        )
    for format in ("bedrock", "ollama", "gemini"):
        schema, cuts = one(format, whole)
        text = json.dumps(schema).lower()
        assert "$ref" not in text and "$defs" not in text
        assert schema["properties"]["q"]["description"] == "q"
        assert schema["properties"]["q"]["properties"]["x"]["type"].lower() == "integer"
        assert any("repeats itself and ends here" in cut for cut in cuts)


def test_definitions_that_double_end() -> None:
    defs: dict[str, Any] = {"D0": {"type": "string"}}
    for at in range(40):
        step = {"$ref": f"#/$defs/D{at}"}
        defs[f"D{at + 1}"] = arguments(left=step, right=step)
    schema, cuts = one("gemini", arguments(a={"$ref": "#/$defs/D40"}) | {"$defs": defs})
    assert len(json.dumps(schema)) < 2_000_000 and any("too large" in cut for cut in cuts)
    deep: Any = {"type": "string"}
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    schema, cuts = one("anthropic", arguments(a=deep))
    assert schema is None and cuts == ["$: the tool is left out: its schema is nested too deeply"]


def test_gemini() -> None:
    schema, cuts = one(
        "gemini",
        arguments(
            maybe={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            either={"type": ["string", "number", "null"]},
            kind={"const": "a"},
            level={"enum": [1, 2, None], "description": "The level."},
            day={"type": "string", "format": "date"},
            when={"type": "string", "format": "date-time"},
            above={"type": "integer", "exclusiveMinimum": 0},
            pair={"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            free={},
            table={"type": "object", "additionalProperties": {"type": "integer"}},
        ),
    )
    assert schema["properties"] == {
        "maybe": {"type": "INTEGER", "nullable": True, "default": None},
        "either": {"anyOf": [{"type": "STRING"}, {"type": "NUMBER"}], "nullable": True},
        "kind": {"type": "STRING", "enum": ["a"]},
        "level": {"type": "INTEGER", "nullable": True, "description": "The level. One of: 1, 2."},
        "day": {"type": "STRING"},
        "when": {"type": "STRING", "format": "date-time"},
        "above": {"type": "INTEGER", "minimum": 1},
        "pair": {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}},
        "free": {"anyOf": [{"type": "STRING"}, {"type": "NUMBER"}, {"type": "BOOLEAN"}]},
        "table": {"type": "OBJECT"},
    }
    assert cuts == [
        "$.level: enum is told in the description: only values that are text can be listed",
        "$.day: format 'date' is left out",
        "$.pair: prefixItems is left out: its places are offered as one type of item",
        "$.free: a value of any type is offered as text, number or boolean",
        "$.table: additionalProperties is left out",
    ]


def test_ollama_reads_lists_of_types() -> None:
    maybe = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    schema, cuts = one("ollama", arguments(a=maybe, b={"type": "string", "pattern": "x"}))
    assert schema["properties"] == {"a": {"type": ["integer", "null"]}, "b": {"type": "string"}}
    assert cuts == ["$.b: pattern is left out"]


def test_cohere() -> None:
    schema, cuts = one("cohere", arguments(a={"oneOf": [{"type": "string", "minLength": 1}, {"type": "null"}]}))
    assert schema["properties"] == {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    assert cuts == ["$.a.anyOf[0]: minLength is left out"]


@pytest.mark.parametrize("format", ["anthropic", "bedrock"])
def test_arguments_that_cannot_be_named(format: str) -> None:
    odd = {"type": "object", "properties": {"größe": {"type": "string"}, "a": {"type": "string"}}}
    schema, cuts = one(format, odd)
    assert schema["properties"].keys() == {"a"}
    assert cuts == ["$.größe: the argument is left out: the provider takes no such name"]
    schema, (cut,) = one(format, odd | {"required": ["größe"]})
    assert schema is None and cut.startswith("$: the tool is left out: its argument 'größe' must be given")


def test_long_descriptions() -> None:
    made = offer([Tool("t", "s", "x" * 2000)], "openai-chat")
    assert len(made.tools[0]["function"]["description"]) == 1024
    assert [cut.what for cut in made.cuts] == ["the description is cut to 1024 characters"]
    assert not offer([Tool("t", "s", "x" * 2000)], "anthropic").cuts


texts = st.sampled_from(["string", "integer", "object", "array", "null", "odd", ""])
keywords = st.sampled_from(
    [
        "type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "enum", "const", "format", "$ref",
        "$defs", "additionalProperties", "prefixItems", "minimum", "exclusiveMinimum", "default", "description", "not",
    ]
)  # fmt: skip
schemas: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | texts | st.just("#/$defs/a") | st.just("#"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords | st.just("a"), inner, max_size=5),
    max_leaves=25,
)
GEMINI = {
    "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties",
    "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "default", "anyOf", "minimum",
    "maximum",
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40)
@given(schemas)
def test_any_schema_at_all(format: str, schema: Any) -> None:
    before = json.dumps(schema)
    trimmed, _ = one(format, schema)
    assert json.dumps(schema) == before, "the tool's own schema was changed"
    if trimmed is None:
        return
    assert trimmed["type"].lower() == "object"
    assert not {"anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref"} & trimmed.keys()
    json.dumps(trimmed)
    if format == "gemini":
        _check_gemini(trimmed)


def _check_gemini(schema: Any) -> None:
    assert set(schema) <= GEMINI
    assert schema.get("type") in {"STRING", "INTEGER", "NUMBER", "BOOLEAN", "ARRAY", "OBJECT", None}
    assert ("type" in schema) != ("anyOf" in schema)
    for inner in (*(schema.get("properties") or {}).values(), *schema.get("anyOf", ())):
        _check_gemini(inner)
    assert set(schema.get("required", ())) <= set(schema.get("properties") or ())
    if "items" in schema:
        _check_gemini(schema["items"])
