"""Gemini's schemas: a subset of OpenAPI 3.0 with types in capitals, no references, and `nullable` for null.

Source: the `Schema` message of the API. Unknown keywords and formats fail the whole request.
"""

from __future__ import annotations

from typing import Any

from toolsd.conversation.schemas import Rules, Schema, Trimmer

RULES = Rules(
    keywords=frozenset(
        {
            "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties",
            "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "default", "anyOf",
            "minimum", "maximum",
        }
    ),
    references=False,
)  # fmt: skip

_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object"})
_FORMATS = {
    "STRING": frozenset({"date-time", "enum"}),
    "NUMBER": frozenset({"float", "double"}),
    "INTEGER": frozenset({"int32", "int64"}),
}
# A value of any type: one of these, since a schema without a type is refused.
_ANYTHING = ("STRING", "NUMBER", "BOOLEAN")


class GeminiTrimmer(Trimmer):
    def rewritten(self, schema: Schema, path: str) -> Schema:
        schema = super().rewritten(schema, path)
        schema = self._typed(schema)
        for edge, bound, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            if schema.get("type") == "integer" and type(schema.get(edge)) is int and bound not in schema:
                schema[bound] = schema.pop(edge) + step
        if "prefixItems" in schema and "items" not in schema:
            options: list[Any] = []
            for one in schema.pop("prefixItems"):
                if one not in options:
                    options.append(one)
            schema["items"] = options[0] if len(options) == 1 else {"anyOf": options}
            self.cut(path, "prefixItems is left out: its places are offered as one type of item")
        return schema

    def finished(self, schema: Schema, path: str) -> Schema:
        kind = schema["type"] = str(schema["type"]).upper() if "type" in schema else ""
        if not kind:
            del schema["type"]
        if "enum" in schema:
            self._enum(schema, kind, path)
        if "format" in schema and schema["format"] not in _FORMATS.get(kind, ()):
            self.cut(path, f"format {schema['format']!r} is left out")
            del schema["format"]
        if not isinstance(schema.get("items"), dict):
            schema.pop("items", None)
        if "required" in schema:  # "property is not defined"
            schema["required"] = [name for name in schema["required"] if name in schema.get("properties", ())]
            if not schema["required"]:
                del schema["required"]
        if kind == "ARRAY" and not schema.get("items"):
            schema["items"] = {"anyOf": [{"type": one} for one in _ANYTHING]}
        if not kind and not schema.get("anyOf"):
            schema["anyOf"] = [{"type": one} for one in _ANYTHING]
            self.cut(path, "a value of any type is offered as text, number or boolean")
        if kind and "anyOf" in schema and path != "$":
            self.cut(path, "type is left out beside anyOf")
            del schema["type"]
        return schema

    @staticmethod
    def _typed(schema: Schema) -> Schema:
        """One type a node; null is `nullable`, several types are `anyOf`."""
        kinds = schema.get("type")
        if isinstance(kinds, list):
            del schema["type"]
            known = [{"type": kind} for kind in kinds if isinstance(kind, str) and kind in (*_TYPES, "null")]
            if known:
                schema.setdefault("anyOf", known)
        elif kinds not in _TYPES and kinds is not None:
            del schema["type"]
            if kinds == "null":
                schema |= {"type": "string", "nullable": True}
        options = schema.get("anyOf")
        if isinstance(options, list):
            others = [one for one in options if not (isinstance(one, dict) and one.get("type") == "null")]
            if len(others) < len(options):
                schema["nullable"] = True
            if len(others) == 1 and isinstance(others[0], dict):
                del schema["anyOf"]
                return GeminiTrimmer._typed({**others[0], **schema})
            schema["anyOf"] = others
        if "type" not in schema and isinstance(schema.get("enum"), list):
            schema["type"] = _type_of(schema["enum"])
        elif "type" not in schema and "properties" in schema:
            schema["type"] = "object"
        return schema

    def _enum(self, schema: Schema, kind: str, path: str) -> None:
        """Only text has an `enum` here; of other types the values are told in the description."""
        values = [value for value in schema["enum"] if value is not None]
        if len(values) < len(schema["enum"]):
            schema["nullable"] = True
        if kind == "STRING" and all(isinstance(value, str) for value in values):
            schema["enum"] = [value for value in values if value]
            if schema["enum"]:
                return
        del schema["enum"]
        told = "One of: " + ", ".join(str(value) for value in values) + "."
        schema["description"] = f"{schema['description']} {told}" if schema.get("description") else told
        self.cut(path, "enum is told in the description: only values that are text can be listed")


def _type_of(values: list[Any]) -> str:
    """The type of an enum that does not say it."""
    kinds = {type(value) for value in values if value is not None}
    for name, members in (("boolean", {bool}), ("integer", {int}), ("number", {int, float})):
        if kinds and kinds <= members:
            return name
    return "string"
