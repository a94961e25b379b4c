"""A function's signature as JSON schema and as a validator of its arguments.

Owns the reading of signatures and the quick way from raw argument text to keyword arguments: one msgspec decoder per
tool, from the text straight into a struct of its parameters. What does not fit goes to `misfits`, which takes the time
to say why. Must not know tools, calls or outcomes.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, NoReturn

import msgspec

from toolsd.context import Context
from toolsd.docstrings import read_docstring
from toolsd.errors import ResultInvalid, UsageError
from toolsd.hints import Schemas, decode_hook, is_pydantic_field, show, usable
from toolsd.plain import encode_json

_EMPTY = inspect.Parameter.empty
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}
_SCALARS = (str, int, float, bool, type(None))


class Parameters:
    """What a function takes.

    `schema` is the JSON schema of its arguments object, `description` the docstring without its sections, `context`
    the name of the parameter annotated `Context` (`None`: it has none; it is not in the schema).
    """

    __slots__ = ("_as_dict", "_decode", "context", "description", "fields", "positional", "schema", "struct")

    def __init__(self, function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> None:
        """Raises UsageError: a parameter cannot be described; names it. NameError: a hint is not defined (yet)."""
        self.description, said = read_docstring(inspect.getdoc(function))
        self.context: str | None = None
        self.positional: tuple[str, ...] = ()
        self.fields: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        factories: dict[str, Callable[[], Any]] = {}
        for parameter, written in _parameters(function, names):
            if _is_context(written):
                self.context = self._only_context(function, parameter)
                continue
            hint, default, factory = _hint_and_default(written, parameter.default)
            try:
                self.fields[parameter.name] = usable(hint)
            except UsageError as error:
                _refuse(function, f"parameter {parameter.name}: {error.message}")
            if default is not _EMPTY:
                defaults[parameter.name] = default
                factories[parameter.name] = factory
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self.positional += (parameter.name,)
        self.schema = self._describe(function, said, defaults)
        self.struct = msgspec.defstruct(
            "Arguments",
            [_field(name, hint, defaults, factories) for name, hint in self.fields.items()],
            kw_only=True,
            forbid_unknown_fields=True,
            gc=False,
        )
        self._decode = msgspec.json.Decoder(self.struct, dec_hook=decode_hook).decode
        self._as_dict = msgspec.structs.asdict

    def bind(self, text: str) -> dict[str, Any]:
        """The keyword arguments in `text`, the raw arguments of a call; blank text has none.

        Raises:
            BadArguments: they are not an object of the schema; the error tells a model all it must change.
        """
        try:
            return self._as_dict(self._decode(text))
        except (ValueError, RecursionError, msgspec.MsgspecError):
            from toolsd.misfits import bind_slowly

            return bind_slowly(self, text)

    def _only_context(self, function: Callable[..., Any], parameter: inspect.Parameter) -> str:
        if self.context:
            raise UsageError(f"{where(function)}: {self.context} and {parameter.name} are both a Context; keep one")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"{where(function)}: {parameter.name}: a Context cannot be positional-only")
        return parameter.name

    def _describe(
        self, function: Callable[..., Any], said: Mapping[str, str], defaults: Mapping[str, Any]
    ) -> dict[str, Any]:
        schemas = Schemas()
        try:
            made = schemas.of(list(self.fields.values()))
        except TypeError as error:
            _refuse(function, _undescribed(self.fields) or str(error))
        properties: dict[str, Any] = {}
        for name, schema in zip(self.fields, made, strict=True):
            _name_enum_types(schema)
            if name in said and "description" not in schema:
                schema["description"] = said[name]
            if name in defaults:
                _show_default(schema, defaults[name])
            properties[name] = schema
        whole = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [name for name in self.fields if name not in defaults]
        if required:
            whole["required"] = required
        if schemas.definitions:
            _name_enum_types(schemas.definitions)
            whole["$defs"] = schemas.definitions
        return whole


def where(function: Callable[..., Any]) -> str:
    """A function, for its author: name, file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _parameters(function: Callable[..., Any], names: Mapping[str, Any] | None) -> list[tuple[inspect.Parameter, Any]]:
    hints = _hints(function, names)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            _refuse(function, f"{star}{parameter.name} cannot be described to a model; name each parameter")
        if parameter.name in hints:
            found.append((parameter, hints[parameter.name]))
        elif parameter.default not in (_EMPTY, None):
            found.append((parameter, type(parameter.default)))
        else:
            advice = " (a method is declared bound: source.tool(thing.method))" if parameter.name == "self" else ""
            _refuse(function, f"parameter {parameter.name} has no type hint; a model is told the type of each{advice}")
    return found


def _hints(function: Callable[..., Any], names: Mapping[str, Any] | None) -> dict[str, Any]:
    """The evaluated hints of the parameters. What the function returns is nobody's business here, so the hint for it
    may name what does not exist when the source runs."""
    code: Any = inspect.unwrap(function)
    while isinstance(code, partial):
        code = inspect.unwrap(code.func)
    code = getattr(code, "__func__", code)
    if not inspect.isfunction(code):
        code = getattr(type(code), "__call__", code)  # noqa: B004 - an object that is called
    written = {name: hint for name, hint in inspect.get_annotations(code).items() if name != "return"}
    holder: Any = SimpleNamespace(__annotations__=written)
    known = getattr(code, "__globals__", {})
    try:
        return typing.get_type_hints(holder, known, dict(names) if names else None, include_extras=True)
    except (TypeError, SyntaxError) as error:
        _refuse(function, f"its type hints cannot be read: {error}")


def _refuse(function: Callable[..., Any], why: str) -> NoReturn:
    raise UsageError(f"{where(function)}: {why}")


def _undescribed(fields: Mapping[str, Any]) -> str | None:
    """Which parameter is at fault when not all can be described, and why."""
    for name, hint in fields.items():
        try:
            Schemas().of([hint])
        except TypeError as error:
            reason = str(error).splitlines()[0].removesuffix(" requires either:")
            return f"parameter {name}: {show(hint)} cannot be an argument's type: {reason}"
    return None


def _is_context(hint: Any) -> bool:
    return hint is Context or hint == (Context | None)


def _hint_and_default(hint: Any, default: Any) -> tuple[Any, Any, Callable[[], Any]]:
    """The hint, the default and what makes it for a call, after a pydantic `Field` has had its say: it can stand as the
    default or hold one."""
    factory: Callable[[], Any] = partial(_same, default)
    if is_pydantic_field(default):
        hint, default = Annotated[hint, default], _EMPTY
    for note in getattr(hint, "__metadata__", ()):
        if is_pydantic_field(note) and not note.is_required() and default is _EMPTY:
            factory = partial(note.get_default, call_default_factory=True)
            default = factory()
    if default is None and not _takes_none(hint):
        hint = hint | None
    return hint, default, factory


def _same(value: Any) -> Any:
    return value


def _takes_none(hint: Any) -> bool:
    return hint in (None, Any, object) or type(None) in typing.get_args(hint)


def _field(
    name: str, hint: Any, defaults: Mapping[str, Any], factories: Mapping[str, Callable[[], Any]]
) -> tuple[Any, ...]:
    if name not in defaults:
        return name, hint
    if type(defaults[name]) in _SCALARS:
        return name, hint, defaults[name]
    return name, hint, msgspec.field(default_factory=factories[name])


def _show_default(schema: dict[str, Any], default: Any) -> None:
    with suppress(ResultInvalid):  # a default that has no JSON form is the function's own business
        schema["default"] = msgspec.json.decode(encode_json(default))


def _name_enum_types(node: Any) -> None:
    """Say `type` beside each `enum` of one type: Gemini refuses an enum without it."""
    if isinstance(node, list):
        for item in node:
            _name_enum_types(item)
    elif isinstance(node, dict):
        kinds = {_JSON_TYPES.get(type(item)) for item in node["enum"]} if isinstance(node.get("enum"), list) else ()
        if len(kinds) == 1 and None not in kinds:
            node.setdefault("type", *kinds)
        for item in node.values():
            _name_enum_types(item)
