"""Type hints of a tool's parameters, made into types that msgspec can check and describe.

Owns what msgspec does not know: plain-text descriptions in `Annotated`, unions it refuses (two kinds of text, two
kinds of object), pydantic models and fields. Must not know signatures, tools or calls.

What msgspec cannot do stands in the rewritten type as a class of its own, made by `ByHand`, that msgspec takes for a
foreign type: it hands us the raw value (`decode_hook`) and asks us for the schema (`Schemas.hook`). pydantic is looked
up in `sys.modules` and never imported: if the author's module has not loaded it, none of its types can be here.
"""

from __future__ import annotations

import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from toolsd.errors import UsageError
from toolsd.plain import encode_json

DEFINITION = "#/$defs/{name}"

# Members of a union that take nearly anything are tried last, whatever their place.
_GREEDY: tuple[Any, ...] = (str, dict, object, Any)


Step = str | int


class Misfits(ValueError):
    """Raised while decoding: a value does not fit a type that is checked by hand.

    `found` has, for each thing wrong, the steps from the value to it and what was expected there (empty: what the
    schema says).
    """

    def __init__(self, *found: tuple[tuple[Step, ...], str]) -> None:
        super().__init__("; ".join(expected for _, expected in found))
        self.found = found


class ByHand(type):
    """Class of the stand-ins for types msgspec refuses."""

    check: Callable[[Any], Any]
    describe: Callable[[Schemas], dict[str, Any]]

    def __instancecheck__(cls, value: object) -> bool:
        return True  # msgspec asks whether the hook's answer is of the type; `check` has seen to that

    @staticmethod
    def stand_in(name: str, check: Callable[[Any], Any], describe: Callable[[Schemas], dict[str, Any]]) -> type[Any]:
        made = ByHand(name, (), {})
        made.check, made.describe = check, describe
        return made


def decode_hook(kind: type, value: Any) -> Any:
    """For msgspec: `value` as `kind`, a stand-in, a path or a pydantic model. Raises Misfits."""
    if isinstance(kind, ByHand):
        return kind.check(value)
    if issubclass(kind, os.PathLike):
        if not isinstance(value, str):
            raise Misfits(((), "string with a path"))
        return kind(value)  # type: ignore[call-arg]  # pathlib.Path or a class like it
    return _by_pydantic(kind.model_validate_json, value)  # type: ignore[attr-defined]


def converted(value: Any, kind: Any) -> Any:
    """`value`, decoded JSON, as `kind`. Raises msgspec.ValidationError; its cause may be a Misfits."""
    return msgspec.convert(value, kind, dec_hook=decode_hook, str_keys=True)


class Schemas:
    """Collects the shared definitions while a schema is made."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kinds: Sequence[Any]) -> list[dict[str, Any]]:
        """The schema of each of `kinds`; definitions they refer to are collected. Raises TypeError: one has none."""
        schemas, definitions = msgspec.json.schema_components(kinds, schema_hook=self.hook, ref_template=DEFINITION)
        self._collect(definitions)
        return list(schemas)

    def hook(self, kind: type) -> dict[str, Any]:
        """For msgspec: the schema of a stand-in, a path or a pydantic model. Raises TypeError for other classes."""
        if isinstance(kind, ByHand):
            return kind.describe(self)
        if is_pydantic_model(kind):
            return self.adopt(kind.model_json_schema(ref_template="#/$defs/{model}"))  # type: ignore[attr-defined]
        if isinstance(kind, type) and issubclass(kind, os.PathLike):
            return {"type": "string", "format": "path"}
        raise TypeError(f"{getattr(kind, '__qualname__', kind)} has no JSON form")

    def adopt(self, schema: dict[str, Any]) -> dict[str, Any]:
        self._collect(schema.pop("$defs", {}))
        return schema

    def _collect(self, definitions: dict[str, Any]) -> None:
        for name, definition in definitions.items():
            if self.definitions.setdefault(name, definition) != definition:
                raise TypeError(f"two different types are called {name}")


# --- rewriting ------------------------------------------------------------------------------------------------------


def usable(hint: Any) -> Any:
    """`hint` as a type msgspec can decode with `decode_hook` and describe with `Schemas`, if that is possible at all.

    Raises:
        UsageError: a constraint in it is not understood.
    """
    if hint is datetime:
        return Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
    if hint is object:
        return Any
    if isinstance(hint, type) and get_origin(hint) is None and _is_pydantic_dataclass(hint):
        return _pydantic_checked(hint, strict=None)
    origin = get_origin(hint)
    if origin is None:
        return hint
    if origin is Annotated:
        return _annotated(hint)
    if origin in (Union, types.UnionType):
        return _union([usable(member) for member in get_args(hint)])
    args = get_args(hint)
    if origin is typing.Literal or not args or not isinstance(origin, type):
        return hint
    if origin.__module__ not in ("builtins", "collections.abc", "collections"):
        return hint
    container: Any = list if origin is Iterable else origin
    return container[tuple(arg if arg is Ellipsis else usable(arg) for arg in args)]


def show(hint: Any) -> str:
    """A hint as people write it."""
    if isinstance(hint, type) and not get_args(hint):
        return hint.__qualname__
    return str(hint).replace("typing.", "").replace("NoneType", "None")


def is_pydantic_model(kind: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def is_pydantic_field(thing: Any) -> bool:
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(thing, fields.FieldInfo)


def _is_pydantic_dataclass(kind: type) -> bool:
    dataclasses = sys.modules.get("pydantic.dataclasses")
    return dataclasses is not None and dataclasses.is_pydantic_dataclass(kind)


def _annotated(hint: Any) -> Any:
    inner, notes = hint.__origin__, hint.__metadata__
    if any(is_pydantic_field(note) for note in notes):
        return _pydantic_checked(hint, strict=True)
    made = usable(inner)
    for note in notes:
        meta = _meta(note)
        if meta is not None:
            made = Annotated[made, meta]
    return made


def _meta(note: Any) -> msgspec.Meta | None:
    """What an annotation says, in msgspec's words; `None` for one that is meant for somebody else (PEP 593)."""
    if isinstance(note, msgspec.Meta):
        return note
    if isinstance(note, str):
        return msgspec.Meta(description=note)
    kind = type(note)
    if kind.__name__ == "Doc" and isinstance(getattr(note, "documentation", None), str):  # PEP 727
        return msgspec.Meta(description=note.documentation)
    if kind.__module__ == "annotated_types":
        names = {"min_exclusive": "gt", "max_exclusive": "lt"}
        said = {name: getattr(note, name) for name in getattr(kind, "__dataclass_fields__", ())}
        given = {names.get(name, name): value for name, value in said.items() if value is not None}
        try:
            return msgspec.Meta(**given)
        except TypeError as error:
            raise UsageError(f"the constraint {note!r} is not understood: {error}") from error
    return None


def _union(members: list[Any]) -> Any:
    whole: Any = Union.__getitem__(tuple(members))
    try:
        msgspec.json.Decoder(whole, dec_hook=decode_hook)
    except TypeError:
        return _choice(members)
    return whole


def _choice(members: list[Any]) -> type[Any]:
    """A union msgspec refuses: each member is tried, the most exact ones first."""
    ordered = sorted(members, key=lambda member: _strip(member) in _GREEDY)
    names = " or ".join(show(_strip(member)) for member in members)

    def check(value: Any) -> Any:
        for member in ordered:
            try:
                return converted(value, member)
            except msgspec.ValidationError:
                continue
        raise Misfits(((), ""))

    return ByHand.stand_in(names, check, lambda schemas: {"anyOf": schemas.of(members)})


def _strip(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = hint.__origin__
    return get_origin(hint) or hint


def _pydantic_checked(hint: Any, strict: bool | None) -> type[Any]:
    """What pydantic has to check: its dataclasses, as their config says, and hints with a `Field`, as strictly as
    msgspec checks the others."""
    adapter = sys.modules["pydantic"].TypeAdapter(hint)

    def check(value: Any) -> Any:
        return _by_pydantic(lambda text: adapter.validate_json(text, strict=strict), value)

    def describe(schemas: Schemas) -> dict[str, Any]:
        return schemas.adopt(adapter.json_schema(ref_template="#/$defs/{model}"))

    return ByHand.stand_in(show(_strip(hint)), check, describe)


def _by_pydantic(validate: Callable[[bytes], Any], value: Any) -> Any:
    try:
        return validate(encode_json(value))
    except sys.modules["pydantic"].ValidationError as error:
        parts = error.errors(include_url=False)
        raise Misfits(*((part["loc"], part["msg"].removeprefix("Input should be ")) for part in parts)) from error
