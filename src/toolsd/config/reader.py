"""Reading tables: takes what TOML gave, checks it against the schema, and collects every mistake with its line.

A mistake never ends the reading: the key is left out and the next one is looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import msgspec

from toolsd.config.positions import Path
from toolsd.config.schema import Keys, Option
from toolsd.config.units import Unfit, shown


class Mistake(msgspec.Struct, frozen=True):
    """One mistake. `line` counts from 1; `None` if it belongs to no line. `key` is dotted (`source.notes.replicas`)."""

    line: int | None
    key: str
    message: str
    hint: str | None = None

    def describe(self, file: str) -> str:
        """`file:line: key: what is wrong`, and the hint on a line of its own."""
        place = f"{file}:{self.line}" if self.line else file
        text = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{text}\n    {self.hint}" if self.hint else text


class Reader:
    """Owns the mistakes of one document."""

    def __init__(self, lines: dict[Path, int]) -> None:
        self.mistakes: list[Mistake] = []
        self._lines = lines

    def line(self, path: Path) -> int | None:
        """The line of a key, or of the nearest table around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)

    def mistake(self, path: Path, message: str, hint: str | None = None) -> None:
        self.mistakes.append(Mistake(self.line(path), dotted(path), message, hint))

    def table(self, value: Any, path: Path, example: str) -> dict[str, Any]:
        """`value` if it is a table; otherwise a mistake and an empty one."""
        if isinstance(value, dict):
            return value
        self.mistake(path, f"must be a table, not {shown(value)}", example)
        return {}

    def options(
        self, table: dict[str, Any], keys: Keys, path: Path, beside: Iterable[str] = (), prefix: str = ""
    ) -> dict[str, Any]:
        """The values of `table` by dotted key. `beside` are keys that somebody else reads."""
        found: dict[str, Any] = {}
        known = (*keys, *beside)
        for name, value in table.items():
            key = keys.get(name)
            if key is None:
                if name not in beside:
                    self.unknown((*path, name), name, known)
            elif isinstance(key, Option):
                try:
                    found[prefix + name] = key.parse(value)
                except Unfit as unfit:
                    self.mistake((*path, name), str(unfit), unfit.hint)
            else:
                inner = self.table(value, (*path, name), f"write {name} = {{ {next(iter(key))} = ... }}")
                found.update(self.options(inner, key, (*path, name), prefix=f"{prefix}{name}."))
        return found

    def unknown(self, path: Path, name: str, known: Iterable[str]) -> None:
        known = tuple(known)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f'did you mean "{near[0]}"?' if near else f"known here: {', '.join(known)}"
        self.mistake(path, "is not known in this version", hint)


def dotted(path: Path) -> str:
    """A key path as people write it: names with odd characters are quoted, list items are numbered."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.replace("-", "").replace("_", "").isalnum()
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text
