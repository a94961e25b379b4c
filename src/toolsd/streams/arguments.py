"""The text of one call's arguments: strict parsing, and a named answer for everything that is not a JSON object.

Never completes, never guesses: a truncated object does not parse. Knows nothing of calls or streams. The answers:

| text | answer |
| --- | --- |
| blank | `{}` |
| a JSON string that holds an object | that object (one level is undone) |
| several JSON values one after another | `concatenated_arguments` |
| a list, number, text, `true`, `null` | `non_object_arguments` |
| `NaN`, `Infinity`, a float beyond the range of a double | `non_finite_number` |
| an integer of up to 4300 digits | exact |
| a longer integer | `huge_number` |
| the same key twice in one object | `duplicate_key`: two parsers could see two different calls |
| nested deeper than `max_depth` | `excess_depth` |
| halves of a surrogate pair side by side | the character they encode |
| a lone surrogate, raw or escaped | `lone_surrogate`: it cannot be written as UTF-8 |
| raw control characters inside strings | `unparseable_arguments` (RFC 8259 section 7) |
| anything else | `unparseable_arguments` |
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, ClassVar, NamedTuple

from toolsd.errors import ToolsdError

MAX_DEPTH = 128
# CPython's own limit for the conversion of text to int (sys.int_info.default_max_str_digits), kept even where a
# program lifted it: the conversion is quadratic.
MAX_DIGITS = 4300

# Brackets outside of strings. A string without an end takes the rest, and nothing is kept to backtrack to.
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE = " \t\n\r"
_WHITESPACE = re.compile(r"[ \t\n\r]*")


class ArgumentsMalformed(ToolsdError):
    """A call's arguments are not a JSON object. `defect` is the code, `detail` says what was found where."""

    code: ClassVar[str] = "arguments_malformed"

    def __init__(self, defect: str, detail: str) -> None:
        super().__init__(f"the arguments are not a JSON object that can be used: {detail}")
        self.defect = defect
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArgumentsMalformed, (self.defect, self.detail))


class Parsed(NamedTuple):
    """An object, the text it was read from, and whether it was wrapped in a JSON string."""

    value: dict[str, Any]
    text: str
    double_encoded: bool = False


def parse_tool_call_arguments(text: str | bytes | None, *, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The object that `text` holds; see the table above.

    Raises:
        ArgumentsMalformed: for everything else, whatever it is. Nothing but this is ever raised.
    """
    return parse(text, max_depth=max_depth).value


def parse(text: Any, *, max_depth: int = MAX_DEPTH, strict: bool = True) -> Parsed:
    """As `parse_tool_call_arguments`, with the text that was parsed. `strict=False` allows raw control characters."""
    if text is None:
        return Parsed({}, "")
    if isinstance(text, (bytes, bytearray, memoryview)):
        try:
            text = bytes(text).decode()
        except UnicodeDecodeError as error:
            raise ArgumentsMalformed("unparseable_arguments", f"not UTF-8 at byte {error.start}") from None
    if not isinstance(text, str):
        raise ArgumentsMalformed("non_object_arguments", f"a Python {type(text).__name__}, not text")
    text = pair_surrogates(text)
    if not text or text.isspace():
        return Parsed({}, text)
    value = _value(text, max_depth, strict)
    if isinstance(value, dict):
        return Parsed(value, text)
    if isinstance(value, str):
        inner = _inner(value, max_depth, strict)
        if inner is not None:
            return Parsed(inner, value, double_encoded=True)
    kind = "null" if value is None else _KINDS.get(type(value), "a number")
    raise ArgumentsMalformed("non_object_arguments", f"{kind} where an object belongs")


def values(text: str, *, max_depth: int = MAX_DEPTH) -> list[tuple[Any, str]] | None:
    """The JSON values that `text` consists of, one after another, each with its own text; None if it is not so."""
    if _too_deep(text, max_depth):
        return None
    found: list[tuple[Any, str]] = []
    at = _skip_space(text, 0)
    while at < len(text):
        try:
            value, end = _STRICT.raw_decode(text, at)
        except (ValueError, RecursionError, ArgumentsMalformed):
            return None
        found.append((value, text[at:end]))
        at = _skip_space(text, end)
    return found


def pair_surrogates(text: str) -> str:
    """`text` with the halves of surrogate pairs that stand side by side joined to the characters they encode.

    A gateway that slices UTF-16 cuts them apart, one half to a delta; each half then decodes to a lone surrogate.
    """
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encodable(text: str) -> str:
    r"""`text` as it can be sent on: surrogates without their other half are written as JSON escapes (`\ud83d`)."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def _value(text: str, max_depth: int, strict: bool) -> Any:
    if _too_deep(text, max_depth):
        raise ArgumentsMalformed("excess_depth", f"nested deeper than {max_depth} levels")
    try:
        value = (_STRICT if strict else _LAX).decode(text)
    except json.JSONDecodeError as error:
        # Only a first value that is whole can be followed by others.
        if error.msg == "Extra data" and values(text, max_depth=max_depth) is not None:
            raise ArgumentsMalformed("concatenated_arguments", "several JSON values one after another") from None
        what = error.msg.removesuffix(" at")  # some of the parser's messages expect the place to follow
        raise ArgumentsMalformed("unparseable_arguments", f"{what} at character {error.pos}") from None
    except RecursionError:  # the caller stands near the interpreter's limit
        raise ArgumentsMalformed("excess_depth", "nested too deeply") from None
    if _SURROGATE_ESCAPE.search(text) or not (text.isascii() or not _SURROGATE.search(text)):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ArgumentsMalformed("lone_surrogate", "half of a surrogate pair without the other") from None
    return value


def _inner(text: str, max_depth: int, strict: bool) -> dict[str, Any] | None:
    try:
        value = _value(text, max_depth, strict) if text.lstrip(_SPACE).startswith("{") else None
    except ArgumentsMalformed:
        return None
    return value if isinstance(value, dict) else None


def _too_deep(text: str, max_depth: int) -> bool:
    if text.count("{") + text.count("[") <= max_depth:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text):
        token = text[match.start()]
        if token in "[{":
            depth += 1
            if depth > max_depth:
                return True
        elif token != '"':
            depth -= 1
    return False


def _skip_space(text: str, at: int) -> int:
    match = _WHITESPACE.match(text, at)
    return match.end() if match else at


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ArgumentsMalformed("duplicate_key", f"the key {twice!r} appears twice in one object")
    return found


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ArgumentsMalformed("non_finite_number", f"{text[:40]} is beyond the range of a double")
    return number


def _int(text: str) -> int:
    digits = len(text) - text.startswith("-")
    try:
        if digits <= MAX_DIGITS:
            return int(text)
    except ValueError:  # a program set a lower limit for the whole interpreter
        pass
    raise ArgumentsMalformed("huge_number", f"an integer of {digits} digits; at most {MAX_DIGITS} are read")


def _constant(text: str) -> Any:
    raise ArgumentsMalformed("non_finite_number", f"{text} is not JSON")


_KINDS: dict[type, str] = {list: "a list", str: "text", bool: "a boolean"}
_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant)
_LAX = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant, strict=False
)
