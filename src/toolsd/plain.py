"""Python values as JSON text: which values have a JSON form, and where in a value one has none.

Owns the rules of conversion. Must not know outcomes, tools or schemas.

JSON is what RFC 8259 allows, exactly: any integer, finite floats, text without lone surrogates, objects with text
keys. Dataclasses, attrs classes, msgspec Structs, pydantic models, enums, dates, UUIDs, Decimals, paths, sets, tuples
and mappings become what their own JSON form is. Everything else is refused, never turned into its `repr`.

The quick way asks a question (is it plain already?) and lets msgspec write. Only a value that is not plain is walked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from math import isfinite
from types import NoneType
from typing import Any

import msgspec

from toolsd.errors import ResultInvalid

_SCALARS = frozenset({str, int, bool, NoneType})
_BYTES = (bytes, bytearray, memoryview)
# Integers below this many bits are always written; Python refuses very long ones (sys.set_int_max_str_digits).
_WIDE = 2000
_encode = msgspec.json.encode


def encode_json(value: Any, path: str = "$") -> bytes:
    """`value` as compact JSON. `path` is where it stands, for the error.

    Raises:
        ResultInvalid: it, or something in it, has no JSON form; names the path and what to return instead.
    """
    try:
        if _is_plain(value):
            return _encode(value)
        simple = msgspec.to_builtins(value, builtin_types=_BYTES)
        if _is_plain(simple):
            return _encode(simple)
    except (TypeError, ValueError, RecursionError, OverflowError, AttributeError, msgspec.MsgspecError):
        pass  # the walk below finds out where, or knows a way msgspec does not
    try:
        return _encode(_convert(value, path, set()))
    except RecursionError:
        raise ResultInvalid("the value is nested too deeply to be sent", path) from None
    except (ValueError, OverflowError) as error:
        raise ResultInvalid(f"the value has no JSON form: {error}", path) from error


def _is_plain(value: Any) -> bool:
    """Whether `value` is made of exact JSON types only. Asks at C speed what it can: results can be large."""
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        items = value.values()
    elif kind is list:
        items = value
    elif kind is float:
        return isfinite(value)
    else:
        return kind in _SCALARS
    if _SCALARS.issuperset(map(type, items)):
        return True
    return all(type(item) in _SCALARS or _is_plain(item) for item in items)


def _convert(value: Any, path: str, above: set[int]) -> Any:
    """`value` made of JSON types only. `above` are the containers it is in, by identity."""
    if isinstance(value, Enum):
        return _convert(value.value, path, above)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        if not isfinite(value):
            raise ResultInvalid(f"{value!r} is no JSON number; return null or text instead", path)
        return float(value)
    if isinstance(value, _BYTES):
        raise ResultInvalid("bytes have no JSON form; return toolsd.Blob(data, mime), alone or in a list", path)
    if id(value) in above:
        raise ResultInvalid("the value contains itself", path)
    above.add(id(value))
    try:
        return _container(value, path, above)
    finally:
        above.discard(id(value))


def _container(value: Any, path: str, above: set[int]) -> Any:
    if isinstance(value, Mapping):
        return {_key(key, path): _convert(item, f"{path}{_step(key)}", above) for key, item in value.items()}
    if isinstance(value, (Sequence, Set)):
        return [_convert(item, f"{path}[{at}]", above) for at, item in enumerate(value)]
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        try:
            dumped = value.model_dump(mode="json")
        except (ValueError, TypeError, RecursionError) as error:  # PydanticSerializationError is a ValueError
            raise ResultInvalid(f"the model cannot be dumped: {error}", path) from error
        return _convert(dumped, path, above)
    if hasattr(value, "__fspath__"):
        return _convert(value.__fspath__(), path, above)
    return _convert(_fields(value, path), path, above)


def _fields(value: Any, path: str) -> Any:
    """One level of a Struct, dataclass or attrs class; or the text form of a date, UUID or Decimal."""
    kind = type(value)
    if any(parent.__module__ == "toolsd.content" for parent in kind.__mro__):
        raise ResultInvalid(f"{kind.__name__} has no place inside other values; return it alone or in a list", path)
    if isinstance(value, msgspec.Struct):
        return _struct_fields(value)
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    try:
        simple = msgspec.to_builtins(value, builtin_types=_BYTES)
    except (TypeError, ValueError, msgspec.MsgspecError):
        simple = value
    if isinstance(value, type) or type(simple) is kind:
        name = value.__name__ if isinstance(value, type) else kind.__qualname__
        raise ResultInvalid(f"{name} has no JSON form{_advice(value)}", path)
    return simple


def _struct_fields(value: msgspec.Struct) -> Any:
    config = value.__struct_config__
    shown: dict[str, Any] = {}
    if config.tag_field is not None:
        shown[config.tag_field] = config.tag
    for field in msgspec.structs.fields(value):
        item = getattr(value, field.name)
        if item is msgspec.UNSET or (config.omit_defaults and item is field.default):
            continue
        shown[field.encode_name] = item
    return list(shown.values()) if config.array_like else shown


def _integer(value: int, path: str) -> int:
    if value.bit_length() > _WIDE:
        try:
            int.__repr__(value)
        except ValueError:
            raise ResultInvalid("the integer has too many digits to be written", path) from None
    return int(value)


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ResultInvalid(f"the text has a lone surrogate at position {error.start}", path) from None
    return str(value)


def _key(key: Any, path: str) -> str:
    if isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise ResultInvalid(f"the key {key!r} is {type(key).__name__}; keys of a JSON object are text, use str()", path)
    return _text(key, path)


def _step(key: Any) -> str:
    name = key.value if isinstance(key, Enum) else key
    return f".{name}" if isinstance(name, str) and name.isidentifier() else f"[{name!r}]"


def _advice(value: Any) -> str:
    if isinstance(value, Iterator):
        return "; return list(...) of it"
    if hasattr(value, "__await__"):
        return "; it was not awaited"
    if hasattr(value, "tolist"):
        return "; return .tolist() of it"
    return "; return text, plain values, a dataclass or a model"
