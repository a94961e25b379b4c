"""Reading what SDKs hand out, dicts or objects of openai, anthropic, google-genai and others, without importing one.

Owns how an attribute or a whole object becomes plain JSON data. Knows no provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ATOMS = (str, int, float, bool, type(None), bytes, bytearray, memoryview)


def read(thing: Any, key: str) -> Any:
    """`thing[key]` of a dict or `thing.key` of an object; None when there is none."""
    if type(thing) is dict:
        return thing.get(key)
    if isinstance(thing, Mapping):
        return thing.get(key)
    try:
        return getattr(thing, key, None)
    except Exception:  # noqa: BLE001 -- a property of a foreign object may raise anything; it has no such value then
        return None


def plain(thing: Any) -> Any:
    """An SDK object as plain data: only what the server sent, under the names of the wire. Atoms are returned as is.

    Anything that is no data at all becomes None.
    """
    if type(thing) is dict or isinstance(thing, _ATOMS):
        return thing
    try:
        if isinstance(thing, Mapping):
            return dict(thing)
        if isinstance(thing, (list, tuple)):
            return [plain(item) for item in thing]
        dump = getattr(thing, "model_dump", None)
        if dump is not None:
            return _pydantic(dump)
        for name in ("to_dict", "dict", "_asdict"):  # older SDK generations, named tuples
            method = getattr(thing, name, None)
            if callable(method):
                return plain(method())
        fields = getattr(thing, "__struct_fields__", None) or getattr(thing, "__dataclass_fields__", None)
        names = list(fields) if fields else [name for name in vars(thing) if not name.startswith("_")]
        return {name: plain(getattr(thing, name)) for name in names}
    except Exception:  # noqa: BLE001 -- foreign code; a chunk that cannot be read is counted by the caller
        return None


def extras(thing: Any) -> Mapping[str, Any] | None:
    """The fields of an SDK object that its class does not declare (pydantic's `model_extra`)."""
    found = read(thing, "model_extra")
    return found if isinstance(found, Mapping) and found else None


def _pydantic(dump: Any) -> Any:
    # Unset fields were never on the wire. SDKs build objects unvalidated, which pydantic would warn about.
    try:
        return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except Exception:  # noqa: BLE001 -- lone surrogates and foreign types do not pass as JSON; they do as Python values
        return dump(by_alias=True, exclude_unset=True, warnings=False)
