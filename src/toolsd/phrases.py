"""A JSON schema in a few words, for a model that has to correct its arguments.

Owns the wording. Must not know values, tools or where a schema came from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from toolsd.hints import Step

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_NAMES = {kind.__name__: word for kind, word in _KINDS.items()}
_FORMATS = {
    "date-time": "string with a date and time like 2024-05-31T09:30:00Z",
    "date": "string with a date like 2024-05-31",
    "time": "string with a time like 09:30:00",
    "duration": "string with a duration like PT1H30M",
    "uuid": "string with a UUID like 12345678-1234-5678-1234-567812345678",
}


def kind_of(value: Any) -> str:
    """The JSON type of a decoded value."""
    return _KINDS.get(type(value), "null")


def schema_at(schema: dict[str, Any], steps: Sequence[Step]) -> dict[str, Any]:
    """The part of `schema` that describes the value at `steps`; `{}` if it says nothing of it."""
    node: Any = schema
    for step in steps:
        node = _structure(schema, node)
        if step in node.get("properties", ()):
            node = node["properties"][step]
        elif isinstance(step, int):
            first = node.get("prefixItems", ())
            node = first[step] if step < len(first) else node.get("items", {})
        else:
            node = node.get("additionalProperties", {})
        if not isinstance(node, dict):
            return {}
    found: dict[str, Any] = node
    return found


def phrase(schema: dict[str, Any], node: dict[str, Any]) -> str:
    """What `node`, a part of `schema`, asks for."""
    if "anyOf" in node:
        return " or ".join(phrase(schema, choice) for choice in node["anyOf"])
    node = _resolved(schema, node)
    if "enum" in node:
        return "one of " + ", ".join(msgspec.json.encode(item).decode() for item in node["enum"])
    if "properties" in node:
        needed = node.get("required", ())
        return "object with " + ", ".join(name if name in needed else f"{name}?" for name in node["properties"])
    if isinstance(node.get("items"), dict):
        return f"array of {phrase(schema, node['items'])}"
    if node.get("contentEncoding") == "base64":
        return "string in base64"
    kind = str(node.get("type", "any value"))
    return _FORMATS.get(node.get("format", ""), kind)


def words(schema: dict[str, Any], steps: Sequence[Step], complaint: str) -> str:
    """What was expected at `steps`, from msgspec's complaint; in the schema's words where they say more."""
    expected = complaint.removeprefix("Expected ")
    if expected == complaint:
        return phrase(schema, schema_at(schema, steps))
    expected = re.sub(r", got [^,]*$", "", expected)
    if "`object" in expected or "object`" in expected:
        return phrase(schema, schema_at(schema, steps))
    return re.sub(r"`([^`]*)`", lambda found: " or ".join(_NAMES.get(w, w) for w in found[1].split(" | ")), expected)


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema.get("$defs", {}).get(node["$ref"].rpartition("/")[2], {})
    return node


def _structure(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """The definition behind a reference; of several alternatives the first one that has an inside."""
    node = _resolved(schema, node)
    for choice in node.get("anyOf", ()):
        inner = _structure(schema, choice)
        if inner.keys() & {"properties", "items", "prefixItems", "additionalProperties"}:
            return inner
    return node
