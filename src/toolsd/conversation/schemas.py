"""JSON schemas cut down to what a provider accepts, with an account of everything that was lost.

Owns the walk over a schema and the rewritings that mean the same in fewer keywords (`const` as `enum`, `oneOf` as
`anyOf`, `allOf` merged, references inlined). Which keywords a provider takes is the format's to say. What is cut is
still checked when the tool is called, so a cut costs the model guidance, never safety.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Schema = dict[str, Any]

# Inlined schemas may grow without end (every definition used twice by the next one); this ends it.
_NODES = 5_000
_BRANCHES = 200
_UNIONS = ("anyOf", "oneOf", "allOf")


class Rules(msgspec.Struct, frozen=True):
    """What a provider takes.

    `keywords` are those it knows below the top (None: all), `top` those at the top (None: as below). `unwanted` are
    keywords it refuses below the top. `references` says whether it follows `$ref`. `property_name` is what the
    name of an argument must look like (None: anything).
    """

    keywords: frozenset[str] | None = None
    top: frozenset[str] | None = None
    unwanted: frozenset[str] = frozenset()
    references: bool = True
    property_name: re.Pattern[str] | None = None

    def takes(self, keyword: str) -> bool:
        return keyword not in self.unwanted and (self.keywords is None or keyword in self.keywords)


class Unofferable(Exception):
    """The provider cannot be told of this tool at all; the message says why."""


class Trimmer:
    """Trims the schema of one tool. `cuts` is what was lost: a path into the schema, and what is not there any more."""

    def __init__(self, rules: Rules, schema: Any) -> None:
        self.rules = rules
        self.cuts: list[tuple[str, str]] = []
        self._root = sound(schema)
        self._stack: list[str] = []
        self._nodes = 0

    def whole(self) -> Schema:
        """The schema of the tool's arguments, an object in any case.

        Raises:
            Unofferable: an argument that must be given cannot be named.
        """
        top = self._plain_top(self._root)
        trimmed = self.node(top, "$")
        allowed = self.rules.top
        for keyword in list(trimmed) if allowed is not None else ():
            if keyword not in (allowed or ()):
                value = trimmed.pop(keyword)
                if not _is_silent(keyword, value) and keyword != "description":
                    self.cut("$", f"{keyword} is left out")
        return {"type": trimmed.pop("type", "object"), "properties": trimmed.pop("properties", {})} | trimmed

    def cut(self, path: str, what: str) -> None:
        if (path, what) not in self.cuts:
            self.cuts.append((path, what))

    # --- the walk ---------------------------------------------------------------------------------------------------

    def node(self, schema: Any, path: str) -> Schema:
        """One schema and everything below it."""
        self._nodes += 1
        schema = schema if isinstance(schema, dict) else {}  # `true` is a schema too; it says nothing
        if self._nodes > _NODES:
            self.cut(path, "everything below is left out: the schema is too large once its references are inlined")
            return {key: schema[key] for key in ("type", "description") if isinstance(schema.get(key), str)}
        if not self.rules.references and isinstance(schema.get("$ref"), str):
            return self._inlined(schema, path)
        schema = self.rewritten(sound(schema), path)
        kept: Schema = {}
        for keyword, value in schema.items():
            if path == "$" and self.rules.top is not None and keyword in self.rules.top and keyword not in _BELOW:
                kept[keyword] = value
            elif not self.rules.takes(keyword):
                if not _is_silent(keyword, value):
                    self.cut(path, f"{keyword} is left out")
            else:
                kept[keyword] = self._value(keyword, value, path)
        self._properties(kept, path)
        return self.finished(kept, path)

    def rewritten(self, schema: Schema, path: str) -> Schema:
        """The schema of one node in keywords that the provider takes, as far as they say the same."""
        takes = self.rules.takes
        if "const" in schema and not takes("const"):
            schema.setdefault("enum", [schema.pop("const")])
        if "allOf" in schema and not takes("allOf"):
            schema = self._merged(schema, path)
        if "oneOf" in schema and not takes("oneOf") and takes("anyOf") and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("oneOf")
        return schema

    def finished(self, schema: Schema, path: str) -> Schema:
        """The last word on one node, when everything below it is done."""
        if schema.get("type") == "array" and "items" not in schema:
            schema["items"] = {}  # OpenAI and Gemini refuse an array without it
        return schema

    def _value(self, keyword: str, value: Any, path: str) -> Any:
        if keyword in _SCHEMAS_BY_NAME and isinstance(value, dict):
            return {name: self.node(one, f"{path}.{name}") for name, one in value.items()}
        if keyword in _SCHEMA_LISTS and isinstance(value, list):
            return [self.node(one, f"{path}.{keyword}[{at}]") for at, one in enumerate(value)]
        if keyword in _SCHEMAS and isinstance(value, dict):
            return self.node(value, f"{path}[]" if keyword == "items" else f"{path}.{keyword}")
        return value

    def _properties(self, schema: Schema, path: str) -> None:
        """Leave out arguments whose names the provider refuses."""
        pattern, properties = self.rules.property_name, schema.get("properties")
        if pattern is None or not isinstance(properties, dict):
            return
        required = schema.get("required", ())
        for name in [name for name in properties if not pattern.fullmatch(name)]:
            if name in required:
                raise Unofferable(f"its argument {name!r} must be given, and the provider takes no such name")
            del properties[name]
            self.cut(f"{path}.{name}", "the argument is left out: the provider takes no such name")

    # --- references and unions --------------------------------------------------------------------------------------

    def target(self, reference: str) -> Any:
        """What a `$ref` inside of this schema points to; None for anything else."""
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].strip("/").split("/") if reference != "#" else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    def _inlined(self, schema: Schema, path: str) -> Schema:
        reference = schema["$ref"]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        found = self.target(reference)
        if not isinstance(found, dict) or reference in self._stack:
            why = "is not resolved" if not isinstance(found, dict) else "repeats itself and ends here"
            self.cut(path, f"the reference {reference} {why}")
            kind = found.get("type") if isinstance(found, dict) else None
            return self.node({"type": kind} | beside if isinstance(kind, str) else beside, path)
        self._stack.append(reference)
        try:
            return self.node(found | beside, path)
        finally:
            self._stack.pop()

    def _resolved(self, schema: Any) -> Schema:
        for _ in range(20):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                break
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            found = self.target(schema["$ref"])
            schema = (found if isinstance(found, dict) else {}) | beside
        return sound(schema)

    def _plain_top(self, schema: Schema) -> Schema:
        """The top without a union: no provider takes one there."""
        top = dict(self._resolved(schema))
        for keyword in ("$defs", "definitions"):
            if keyword in schema:
                top.setdefault(keyword, schema[keyword])
        for keyword in _UNIONS:
            branches = [self._resolved(branch) for branch in top.pop(keyword, ())]
            if branches:
                self._fold(top, branches, every=keyword == "allOf")
                if keyword != "allOf":
                    self.cut("$", f"{keyword} is left out: the arguments of all its branches are offered together")
        for keyword in ("enum", "const", "not", "if", "then", "else", "$ref"):
            if keyword in top:
                del top[keyword]
                self.cut("$", f"{keyword} is left out")
        if top.get("type") != "object":
            if "type" in top:
                self.cut("$", f"type {top['type']!r} is left out: arguments are an object")
            top["type"] = "object"
        return top

    def _merged(self, schema: Schema, path: str) -> Schema:
        """`allOf` as one schema."""
        branches = list(reversed(schema.pop("allOf")))
        for _ in range(_BRANCHES):
            if not branches:
                break
            branch = self._resolved(branches.pop())
            branches += reversed(branch.get("allOf", ()))
            if "properties" in branch or "required" in branch:
                self._fold(schema, [branch], every=True)
            for keyword, value in branch.items():
                if keyword not in ("properties", "required", "allOf") and schema.setdefault(keyword, value) != value:
                    self.cut(path, f"{keyword} of an allOf is left out: two of its branches differ")
        if branches:
            self.cut(path, "the rest of an allOf is left out: it has no end")
        return schema

    @staticmethod
    def _fold(into: Schema, branches: list[Schema], *, every: bool) -> None:
        """Add the properties of branches. What is required of all is required, of `every` branch what any requires."""
        properties = dict(into.get("properties", {}))
        required = list(into.get("required", ()))
        for branch in branches:
            for name, schema in branch.get("properties", {}).items():
                known = properties.setdefault(name, schema)
                if known != schema:
                    options = known["anyOf"] if isinstance(known, dict) and set(known) == {"anyOf"} else [known]
                    properties[name] = {"anyOf": options if schema in options else [*options, schema]}
        sets = [{name for name in branch.get("required", ()) if name in properties} for branch in branches]
        common = set().union(*sets) if every else set.intersection(*sets)
        into["properties"] = properties
        names = [*required, *(name for name in properties if name in common and name not in required)]
        if names:
            into["required"] = names


def _is_silent(keyword: str, value: Any) -> bool:
    """Whether nothing is lost without a keyword. Arguments that are not named are refused in any case."""
    return keyword in _SILENT or (keyword == "additionalProperties" and value is False)


def sound(schema: Any) -> Schema:
    """A copy of `schema` without the keywords whose values are of no use: foreign schemas hold anything."""
    if not isinstance(schema, dict):
        return {}
    found: Schema = {
        keyword: value
        for keyword, value in schema.items()
        if isinstance(value, _KINDS.get(keyword, object)) and (value or keyword not in _SCHEMA_LISTS)
    }
    if "required" in found:
        found["required"] = [name for name in found["required"] if isinstance(name, str)]
    if isinstance(found.get("items"), list):  # how drafts before 2020-12 wrote tuples
        found["prefixItems"] = found.pop("items")
    return found


_SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
# Keywords of the top that still have schemas in them.
_BELOW = _SCHEMAS_BY_NAME | _SCHEMA_LISTS | _SCHEMAS
_SILENT = frozenset(
    {"$schema", "$id", "$defs", "definitions", "$comment", "title", "examples", "deprecated", "readOnly"}
)
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(_SCHEMAS_BY_NAME, dict),
    **dict.fromkeys(_SCHEMA_LISTS, list),
    "$ref": str,
    "description": str,
    "enum": list,
    "format": str,
    "items": (dict, list, bool),
    "required": list,
    "type": (str, list),
}
