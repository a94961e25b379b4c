"""Where each key of a TOML document stands: key path -> line number.

`tomllib` gives values without places. This walks the text that `tomllib` has already accepted, so it may trust the
syntax and only needs to know where keys, strings and brackets begin and end. It knows nothing of what keys mean.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL = re.compile(r"'''.*?'''(?!')|'[^'\n]*'", re.DOTALL)
_BASIC = re.compile(r'"""(?:[^\\]|\\.)*?"""(?!")|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


def positions(text: str) -> dict[Path, int]:
    """The line (from 1) of every table header, key and list item of a valid TOML document."""
    return _Walk(text.replace("\r\n", "\n")).document()


class _Walk:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._found: dict[Path, int] = {}
        self._lists: dict[Path, int] = {}

    def document(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self._found

    def _header(self) -> Path:
        repeated = self._text.startswith("[[", self._at)
        self._at += 2 if repeated else 1
        path: Path = ()
        for part in self._key():
            path = (*path, part)
            if path in self._lists:
                path = (*path, self._lists[path])
        if repeated:
            named = path[:-1] if path and isinstance(path[-1], int) else path
            self._lists[named] = self._lists.get(named, -1) + 1
            self._note(named)
            path = (*named, self._lists[named])
        self._at += 2 if repeated else 1
        self._note(path)
        return path

    def _pair(self, table: Path) -> None:
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip(_SPACE)
            parts.append(self._key_part())
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return parts
            self._at += 1

    def _key_part(self) -> str:
        quote = self._text[self._at]
        if quote == "'":
            return self._take(_LITERAL)[1:-1]
        if quote == '"':
            return _ESCAPE.sub(_unescape, self._take(_BASIC)[1:-1])
        return self._take(_BARE_KEY)

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        opening = self._text[self._at]
        if opening == "[":
            self._items(path)
        elif opening == "{":
            self._inline(path)
        elif opening in "'\"":
            self._take(_LITERAL if opening == "'" else _BASIC)
        else:
            self._take(_SCALAR)

    def _items(self, path: Path) -> None:
        self._at += 1
        for number in range(len(self._text)):
            self._skip(_BLANK)
            if self._text[self._at] == "]":
                break
            self._note((*path, number))
            self._value((*path, number))
            self._comma()
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "}":
                break
            self._pair(path)
            self._comma()
        self._at += 1

    def _comma(self) -> None:
        self._skip(_BLANK)
        if self._text[self._at] == ",":
            self._at += 1

    def _note(self, path: Path) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        self._found.setdefault(path, self._line)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None or match.end() == self._at:
            raise ValueError(f"not TOML at offset {self._at}")
        self._at = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)
