"""Values as people write them in a configuration file: durations, sizes, counts, names.

Each parser takes what TOML gave and returns the value, or raises `Unfit` with what would have been right. They know
nothing of files, keys or lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Parser = Callable[[Any], Any]

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    # K, M, G as systemd and docker read them: powers of 1024. KB, MB, GB are powers of 1000.
    "K": 2**10,
    "KiB": 2**10,
    "M": 2**20,
    "MiB": 2**20,
    "G": 2**30,
    "GiB": 2**30,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
_AMOUNT = re.compile(r"(\d{1,16}(?:\.\d{1,9})?)\s*([A-Za-z]+)")
_LONGEST = 366 * 86400.0
_LARGEST = 2**50


class Unfit(ValueError):
    """A value that does not fit. The text says why, `hint` says what to write."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def duration(value: Any) -> float:
    """`"20s"`, `"500ms"`, `"1m30s"` as seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Unfit(f"{value} has no unit", f'write "{value}s" for seconds; units are ms, s, m, h, d')
    if not isinstance(value, str):
        raise Unfit(f'a duration is text such as "20s", not {shown(value)}')
    seconds, end = 0.0, 0
    text = value.strip()
    while end < len(text):
        match = _AMOUNT.match(text, end)
        if match is None or match[2] not in _SECONDS:
            break
        seconds += float(match[1]) * _SECONDS[match[2]]
        end = match.end()
    if not text or end < len(text):
        hint = 'write a number and a unit, such as "500ms", "20s", "10m" or "1h30m"'
        if re.fullmatch(r"\d+(\.\d+)?", text):
            hint = f'write "{text}s" for seconds; units are ms, s, m, h, d'
        raise Unfit(f'"{_cut(value)}" is not a duration', hint)
    if seconds > _LONGEST:
        raise Unfit(f'"{_cut(value)}" is longer than a year', 'for no limit, where that is allowed, write "none"')
    return seconds


def positive_duration(value: Any) -> float:
    """As `duration`, above zero."""
    seconds = duration(value)
    if seconds <= 0:
        raise Unfit("must be above zero")
    return seconds


def duration_range(value: Any) -> tuple[float, float]:
    """`"0.2s..30s"` as two durations, the smaller first."""
    low, dots, high = value.partition("..") if isinstance(value, str) else ("", "", "")
    if not dots:
        raise Unfit(f"{shown(value)} is not a range of durations", 'write "0.2s..30s"')
    bounds = positive_duration(low), positive_duration(high)
    if bounds[0] > bounds[1]:
        raise Unfit(f'"{_cut(value)}" goes down', f'write "{high.strip()}..{low.strip()}"')
    return bounds


def size(value: Any) -> int:
    """`"8MiB"`, `"512M"`, `"100KB"` as bytes."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Unfit(f"{value} has no unit", f'write "{value}B" for bytes; units are B, K or KiB, M or MiB, G or GiB')
    if not isinstance(value, str):
        raise Unfit(f'a size is text such as "8MiB", not {shown(value)}')
    match = _AMOUNT.fullmatch(value.strip())
    unit = match and next((known for known in _BYTES if known.lower() == match[2].lower()), None)
    if match is None or unit is None:
        raise Unfit(f'"{_cut(value)}" is not a size', 'write a number and a unit, such as "512KiB", "8MiB" or "2GiB"')
    count = float(match[1]) * _BYTES[unit]
    if count < 1 or count > _LARGEST:
        raise Unfit(f'"{_cut(value)}" is not a size this machine can have')
    return int(count)


def size_within(low: int, high: int, why: str) -> Parser:
    """As `size`, from `low` to `high` bytes; `why` says where the bound comes from."""

    def parse(value: Any) -> int:
        count = size(value)
        if not low <= count <= high:
            bound = f"at least {format_size(low)}" if count < low else f"at most {format_size(high)}"
            raise Unfit(f'"{_cut(value)}" is not possible: {why}', f"write {bound}")
        return count

    return parse


def or_none(parse: Parser) -> Parser:
    """What `parse` takes, and `"none"`, which is no limit and must be written out."""
    return lambda value: None if value == "none" else parse(value)


def whole(low: int, high: int) -> Parser:
    """A whole number from `low` to `high`."""

    def parse(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise Unfit(f"must be a whole number from {low} to {high}, not {shown(value)}")
        return value

    return parse


def one_of(*words: str) -> Parser:
    """One of a few words."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            choices = " or ".join(f'"{word}"' for word in words)
            raise Unfit(f"must be {choices}, not {shown(value)}")
        return value

    return parse


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit(f"must be true or false, not {shown(value)}")
    return value


def text(value: Any) -> str:
    """Any text that is not empty and can be given to the system."""
    if not isinstance(value, str):
        raise Unfit(f"must be text in quotes, not {shown(value)}")
    if not value.strip() or "\0" in value:
        raise Unfit("must not be empty" if not value.strip() else "must not contain a NUL character")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts, none of them empty."""
    if not isinstance(value, list):
        raise Unfit(f"must be a list, not {shown(value)}", 'write ["..."]')
    return tuple(text(entry) for entry in value)


def command(value: Any) -> tuple[str, ...]:
    """A program and its arguments."""
    words = texts(value)
    if not words:
        raise Unfit("must name a program", 'write ["program", "argument"]')
    return words


def names(value: Any) -> tuple[str, ...]:
    """A list of names of environment variables."""
    if not isinstance(value, list):
        raise Unfit(f"must be a list of names, not {shown(value)}", 'write ["PATH", "LANG"]')
    for name in value:
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise Unfit(f"{shown(name)} is not the name of an environment variable")
    return tuple(value)


ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def format_duration(seconds: float) -> str:
    """The shortest writing that `duration` reads back."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / _SECONDS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:.10g}s"


def format_size(count: int) -> str:
    """The shortest writing that `size` reads back."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= _BYTES[unit] and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return f"{count}B"


def shown(value: Any) -> str:
    """A wrong value as an error message shows it: short, and never a whole table."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return f'"{_cut(value)}"' if isinstance(value, str) else str(value)


def _cut(value: str) -> str:
    return value if len(value) <= 60 else value[:57] + "..."
