"""Why the arguments of a call do not fit, told so that a model can correct them in one go.

Owns the slow way: parse by the rules of `toolsd.streams`, check each argument alone, and say everything that is wrong.
Arguments that only the quick way refused (doubly encoded, for one) are bound here. Must not know tools or calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from toolsd.errors import SlotError
from toolsd.hints import Misfits, Step, converted
from toolsd.phrases import kind_of, phrase, schema_at, words
from toolsd.streams.arguments import ArgumentsMalformed, parse_tool_call_arguments

if TYPE_CHECKING:
    from toolsd.schema import Parameters

_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`$")
_REQUIRED = "nothing; it is required"
# How much is told: characters of a value, and misfits of a call.
_SHOWN = 80
_TOLD = 20


class BadArguments(Exception):
    """A call's arguments cannot be used. `error` is what goes into its slot."""

    def __init__(self, error: SlotError) -> None:
        super().__init__(error.message)
        self.error = error


class Misfit(msgspec.Struct, frozen=True):
    """One thing wrong with the arguments. `path` begins with `$`; the rest is words for a model."""

    path: str
    expected: str
    got: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}" + (f", got {self.got}" if self.got else "")


class Stranger(Misfit, frozen=True):
    """An argument the tool does not have."""

    def __str__(self) -> str:
        return f"{self.path}: {self.expected}"


def bind_slowly(parameters: Parameters, text: str) -> dict[str, Any]:
    """The keyword arguments in `text`, or everything that is wrong with it. Raises BadArguments."""
    try:
        given = parse_tool_call_arguments(text)
    except ArgumentsMalformed as error:
        message = f"The arguments are not a JSON object that can be used: {error.detail}. Send one JSON object."
        raise BadArguments(SlotError("arguments_malformed", message, {"defect": error.defect})) from None
    found = _names(parameters, given)
    for name, value in given.items():
        if name in parameters.fields:
            found += _check(parameters, name, value)
    if found:
        raise BadArguments(_error(found))
    try:
        return msgspec.structs.asdict(converted(given, parameters.struct))
    except msgspec.ValidationError as error:  # fits piece by piece and not as a whole: tell it as msgspec does
        raise BadArguments(_error([Misfit("$", str(error))])) from error


def _names(parameters: Parameters, given: dict[str, Any]) -> list[Misfit]:
    """Arguments nobody asked for, and those that are missing."""
    left = [name for name in parameters.fields if name not in given]
    strangers = [name for name in given if name not in parameters.fields][:_TOLD]
    found: list[Misfit] = [Stranger(_path([name]), _no_such(name, left, parameters)) for name in strangers]
    for name in parameters.schema.get("required", ()):
        if name not in given:
            found.append(Misfit(_path([name]), _wanted(parameters, [name]), _REQUIRED))
    return found


def _no_such(name: str, left: Sequence[str], parameters: Parameters) -> str:
    from difflib import get_close_matches

    if len(name) > _SHOWN:
        return "no such argument"
    near = get_close_matches(name, left, n=1) or get_close_matches(name.lower(), left, n=1, cutoff=0.5)
    if near:
        return f"no such argument; did you mean {near[0]}?"
    if not parameters.fields:
        return "no such argument; this tool takes none, send {}"
    return f"no such argument; there are {', '.join(parameters.fields)}"


def _check(parameters: Parameters, name: str, value: Any) -> list[Misfit]:
    """What is wrong with one argument: the first thing, or all that a check made by hand has found."""
    kind = parameters.fields[name]
    error = _refused(kind, value)
    if error is None:
        return []
    message, place = _split(error)
    steps: list[Step] = [name, *_steps(kind, value, place)]
    cause = error.__cause__
    if isinstance(cause, Misfits):
        parts = [([*steps, *more], expected or _wanted(parameters, steps)) for more, expected in cause.found]
    elif missing := _MISSING.match(message):
        steps.append(missing[1])
        return [Misfit(_path(steps), _wanted(parameters, steps), _REQUIRED)]
    elif cause is not None:  # raised by the author's type itself, in its own words
        parts = [(steps, f"{_wanted(parameters, steps)} ({_cut(message)})")]
    else:
        parts = [(steps, words(parameters.schema, steps, message))]
    found = [Misfit(_path(where), expected, _got(value, where[1:], expected)) for where, expected in parts]
    if value is None and name not in parameters.schema.get("required", ()):
        return [msgspec.structs.replace(part, got="null; leave it out for the default") for part in found]
    return found


def _refused(kind: Any, value: Any) -> msgspec.ValidationError | None:
    try:
        converted(value, kind)
    except msgspec.ValidationError as error:
        return error
    return None


def _split(error: msgspec.ValidationError) -> tuple[str, str]:
    """msgspec's complaint and its place. The place is the end of the text; a hook's own message may hold anything."""
    message, found, place = str(error).rpartition(" - at `")
    if not found:
        return place, "$"
    place = place.removesuffix("`")
    if place.startswith("key` in `"):
        return message.partition(", got ")[0] + " keys", place.removeprefix("key` in `")
    return message, place


def _steps(kind: Any, value: Any, place: str) -> list[Step]:
    """The steps of a path. msgspec names no keys of mappings (`[...]`): the one at fault is found by trying each."""
    steps: list[Step] = []
    for name, index in _STEP.findall(place):
        if index == "...":
            keys = _at(value, steps)
            bad = (key for key in keys if _refused(kind, _only(value, steps, key)) is not None)
            steps.append(next(bad, "..."))
        else:
            steps.append(int(index) if index else name)
    return steps


def _at(value: Any, steps: Sequence[Step]) -> Any:
    for step in steps:
        value = value[step]
    return value


def _only(value: Any, steps: Sequence[Step], key: str) -> Any:
    """`value` with nothing but `key` in the mapping at `steps`."""
    if not steps:
        return {key: value[key]}
    changed = value.copy()
    changed[steps[0]] = _only(value[steps[0]], steps[1:], key)
    return changed


def _wanted(parameters: Parameters, steps: Sequence[Step]) -> str:
    return phrase(parameters.schema, schema_at(parameters.schema, steps))


def _got(value: Any, steps: Sequence[Step], expected: str) -> str | None:
    """What stands at the place, and the advice that follows from it; `None` if nothing does."""
    try:
        value = _at(value, steps)
    except (LookupError, TypeError):
        return None
    if value is None:
        return "null"
    got = f"{kind_of(value)} {_shown(value)}"
    if isinstance(value, str) and "string" not in expected:  # models like to put numbers and lists into strings
        try:
            inner = msgspec.json.decode(value)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return got
        if kind_of(inner) in expected:
            got += f"; write {_cut(value)} without quotes"
    return got


def _shown(value: Any) -> str:
    try:
        return _cut(msgspec.json.encode(value).decode())
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return "that cannot be shown"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _path(steps: Sequence[Step]) -> str:
    out = "$"
    for step in steps:
        if isinstance(step, int):
            out += f"[{step}]"
        else:
            out += f".{step}" if step.isidentifier() and len(step) <= _SHOWN else f"[{_shown(step)}]"
    return out


def _error(found: Sequence[Misfit]) -> SlotError:
    told = found[:_TOLD]
    lines = "\n".join(f"- {misfit}" for misfit in told)
    if len(told) < len(found):
        lines += f"\n- and {len(found) - len(told)} more"
    parts = [msgspec.structs.asdict(misfit) for misfit in told]
    return SlotError(
        "arguments_invalid",
        f"The arguments do not fit. Correct this and call again:\n{lines}",
        {"path": found[0].path, "expected": found[0].expected, "misfits": parts},
    )
