"""Why the arguments of a call do not fit, told so that a model can correct them in one go.

Owns the slow way: parse by the rules of `toolsd.streams`, check each argument alone, and say everything that is wrong.
Arguments that only the quick way refused (doubly encoded, for one) are bound here. Must not know tools or calls.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from toolsd.errors import SlotError
from toolsd.hints import Misfit, Misfits, decode_hook

if TYPE_CHECKING:
    from toolsd.schema import Parameters

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_GOT = re.compile(r"^Expected (?P<expected>.*), got (?P<got>`[^`]*`)$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_SHOWN = 80


class BadArguments(Exception):
    """A call's arguments cannot be used. `error` is what goes into its slot."""

    def __init__(self, error: SlotError) -> None:
        super().__init__(error.message)
        self.error = error


def bind_slowly(parameters: Parameters, text: str) -> dict[str, Any]:
    """The keyword arguments in `text`, or everything that is wrong with it. Raises BadArguments."""
    given = _parse(text)
    found = _names(parameters, given)
    for name, value in given.items():
        if name in parameters.fields:
            found += _check(parameters, name, value)
    if found:
        raise BadArguments(_error(found))
    try:
        return msgspec.structs.asdict(msgspec.convert(given, parameters.struct, dec_hook=decode_hook))
    except msgspec.ValidationError as error:  # fits piece by piece and not as a whole: tell it as msgspec does
        raise BadArguments(_error([Misfit("$", str(error))])) from error


def _parse(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text if text.strip() else "{}", type=dict[str, Any])
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        message = f"The arguments are not a JSON object that can be used: {error}. Send one JSON object."
        raise BadArguments(SlotError("arguments_malformed", message)) from None


def _names(parameters: Parameters, given: dict[str, Any]) -> list[Misfit]:
    """Arguments nobody asked for, and those that are missing."""
    found = []
    unclaimed = [name for name in parameters.fields if name not in given]
    for name in given:
        if name not in parameters.fields:
            found.append(Misfit(_join("$", name), _unknown(name, unclaimed, list(parameters.fields)), "unknown"))
    for name in parameters.schema.get("required", ()):
        if name not in given:
            found.append(Misfit(_join("$", name), _wanted(parameters.schema, [name]), "nothing; it is required"))
    return found


def _unknown(name: str, unclaimed: list[str], known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, unclaimed, n=1) or get_close_matches(name.lower(), unclaimed, n=1, cutoff=0.5)
    if near:
        return f"no such argument (did you mean {near[0]}?)"
    return f"no such argument (there are: {', '.join(known)})" if known else "no arguments at all"


def _check(parameters: Parameters, name: str, value: Any) -> list[Misfit]:
    """What is wrong with one argument: the first thing, or all that a hand-made check has found."""
    try:
        msgspec.convert(value, parameters.fields[name], dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        match = _PLACE.match(str(error))
        place = _join("$", name) + ((match and match["path"]) or "$")[1:]
        if isinstance(error.__cause__, Misfits):
            place = _join("$", name) + _path_of(error)[1:]
            return [_seen(Misfit(place + part.path[1:], part.expected), name, value) for part in error.__cause__.found]
        return [_seen(Misfit(place, _expected(parameters, place, match["what"] if match else str(error))), name, value)]
    return []


def _path_of(error: msgspec.ValidationError) -> str:
    """Where msgspec was when a hook raised: the message is the hook's, so only the end of it can be trusted."""
    end = str(error).rpartition(" - at `")
    return end[2].removesuffix("`") if end[1] else "$"


def _expected(parameters: Parameters, place: str, message: str) -> str:
    """msgspec's complaint in the words of JSON, or what the schema says where msgspec does not say it."""
    match = _GOT.match(message)
    wanted = match["expected"] if match else message.removeprefix("Expected ")
    steps = [step[1] or step[2] for step in _STEP.finditer(place)]
    if not message.startswith("Expected") or "object" in wanted:
        described = _wanted(parameters.schema, steps)
        return described if message.startswith(("Invalid enum", "Expected")) else f"{described} ({message})"
    return re.sub(r"`([^`]*)`", lambda found: " or ".join(map(_word, found[1].split(" | "))), wanted)


def _word(name: str) -> str:
    return _WORDS.get(name, name)


def _wanted(schema: dict[str, Any], steps: list[str]) -> str:
    """What the schema asks for at a place, in a few words."""
    node: Any = schema
    for step in steps:
        node = _resolve(schema, node)
        if step in node.get("properties", {}):
            node = node["properties"][step]
        elif "items" in node or "prefixItems" in node:
            node = node.get("items", {})
        else:
            node = node.get("additionalProperties", {})
        node = node if isinstance(node, dict) else {}
    return _phrase(schema, node)


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """The definition a node refers to; of several alternatives the one that has a structure."""
    while "$ref" in node:
        node = schema.get("$defs", {}).get(node["$ref"].rpartition("/")[2], {})
    for choice in node.get("anyOf", ()):
        inner = _resolve(schema, choice)
        if "properties" in inner or "items" in inner:
            return inner
    return node


def _phrase(schema: dict[str, Any], node: dict[str, Any]) -> str:
    if "anyOf" in node:
        return " or ".join(_phrase(schema, choice) for choice in node["anyOf"])
    node = _resolve(schema, node)
    if "enum" in node:
        return "one of " + ", ".join(msgspec.json.encode(item).decode() for item in node["enum"])
    if "const" in node:
        return msgspec.json.encode(node["const"]).decode()
    if "properties" in node:
        needed = node.get("required", ())
        names = [name if name in needed else f"{name}?" for name in node["properties"]]
        return f"object with {', '.join(names)}"
    if node.get("type") == "array" and "items" in node:
        return f"array of {_phrase(schema, node['items'])}"
    kind = node.get("type", "any value")
    return f"{kind} ({node['format']})" if "format" in node else str(kind)


def _seen(misfit: Misfit, name: str, value: Any) -> Misfit:
    """With what stands at the place, and the advice that follows from it."""
    at = value
    for step in list(_STEP.finditer(misfit.path))[1:]:
        try:
            at = at[step[1] or step[2]] if isinstance(at, dict) else at[int(step[2])]
        except (KeyError, ValueError, TypeError, IndexError):
            return misfit  # inside a mapping msgspec does not say where, or the place is what is missing
    got = f"{_kind(at)} {_cut(msgspec.json.encode(at).decode())}" if at is not None else "null"
    return Misfit(misfit.path, misfit.expected, got + _quoted(at, misfit.expected))


def _quoted(value: Any, expected: str) -> str:
    """Models like to put numbers and lists into strings."""
    if not isinstance(value, str) or "string" in expected:
        return ""
    try:
        inner = msgspec.json.decode(value)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return ""
    return f" (write {_cut(value)} without quotes)" if _kind(inner) in expected else ""


def _kind(value: Any) -> str:
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{msgspec.json.encode(name).decode()}]"


def _error(found: list[Misfit]) -> SlotError:
    lines = [f"- {misfit.path}: {_line(misfit)}" for misfit in found]
    message = "The arguments do not fit. Correct this and call again:\n" + "\n".join(lines)
    first = found[0]
    return SlotError(
        "arguments_invalid",
        message,
        {"path": first.path, "expected": first.expected, "misfits": [msgspec.structs.asdict(part) for part in found]},
    )


def _line(misfit: Misfit) -> str:
    if misfit.got is None:
        return f"expected {misfit.expected}"
    return misfit.expected if misfit.got == "unknown" else f"expected {misfit.expected}, got {misfit.got}"
