"""Whether a text that is still arriving is a whole JSON value so far: lexical state carried from fragment to fragment.

Looks at each character once and parses nothing. Knows no calls.
"""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r'["{}\[\]]|[^\s"{}\[\]]')
_IN_STRING = re.compile(r'["\\]')


class JsonScan:
    """`complete`: the text ends where an object, a list or a string ended. `started`: there is more than blanks."""

    __slots__ = ("_depth", "_escaped", "_in_string", "complete", "started")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.complete = False
        self.started = False

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(text, at)
            if match is None:
                return
            at = match.end()
            token = match[0]
            self.started = True
            if token == "\\" and self._in_string:
                self._escaped = True
                continue
            if token == '"':
                self._in_string = not self._in_string
            elif token in "{[":
                self._depth += 1
            elif token in "}]":
                self._depth = max(self._depth - 1, 0)
            self.complete = not self._depth and not self._in_string and token in '"}]'
            if self._depth and not self._in_string:
                at = _skip_scalars(text, at)


_SCALARS = re.compile(r'[^"{}\[\]]*')


def _skip_scalars(text: str, at: int) -> int:
    """Inside a bracket only brackets and quotes matter."""
    match = _SCALARS.match(text, at)
    return match.end() if match else at


def starts_object(fragment: object) -> bool:
    """Whether a fragment begins a fresh object."""
    if isinstance(fragment, str):
        return fragment.startswith("{") or fragment.lstrip(" \t\r\n").startswith("{")
    return isinstance(fragment, dict)
