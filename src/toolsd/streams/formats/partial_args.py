"""Gemini's partial arguments: leaves that arrive under JSON paths, into one object.

Texts grow under their path, other leaves replace what was there. Lists are kept sparse until the end, so an index costs
nothing by its size, and a list with gaps is seen. (JSON path here is what the API sends: `$.a.b[0]['c']`.)
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from toolsd.streams.arguments import MAX_DEPTH, pair_surrogates

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*+)'\]|\["((?:[^"\\]|\\.)*+)"\]""")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LEAVES = ("stringValue", "numberValue", "boolValue", "nullValue")
_WHOLE = 2**53  # beyond it a double no longer tells integers apart


class PartialArgs:
    """The object under construction. `gaps` is true after `value()` if a list lacked an element."""

    __slots__ = ("_root", "gaps")

    def __init__(self) -> None:
        self._root: dict[str | int, Any] = {}
        self.gaps = False

    def base(self, args: dict[str, Any]) -> None:
        """Whole arguments that came before or between the leaves."""
        for name, value in args.items():
            self._root[name] = _Leaf(value)

    def add(self, leaf: dict[str, Any]) -> int | None:
        """Put one leaf in its place. The length of its text, or None if its path or its value cannot be understood."""
        steps = _steps(leaf.get("jsonPath", leaf.get("json_path")))
        if not steps:
            return None
        kind, value = _value(leaf)
        if kind is None:
            return 0  # an empty update: more is to come under this path
        place: Any = self._root
        for step, following in itertools.pairwise(steps):
            if not isinstance(place, dict):
                return None
            inner = place.get(step)
            if inner is None:
                inner = place[step] = _List() if isinstance(following, int) else {}
            place = inner
        last = steps[-1]
        if not isinstance(place, dict) or isinstance(place, _List) != isinstance(last, int):
            return None
        there = place.get(last)
        if kind != "stringValue":
            place[last] = _Leaf(value)
            return 1
        if isinstance(there, list):
            there.append(value)
        else:
            place[last] = [value]
        return len(value)

    def value(self) -> dict[str, Any]:
        """The object so far."""
        self.gaps = False
        built = self._build(self._root)
        return built if isinstance(built, dict) else {}

    def _build(self, node: Any) -> Any:
        if isinstance(node, _Leaf):
            return node.value
        if isinstance(node, list):
            return "".join(node)
        if isinstance(node, _List):
            self.gaps = self.gaps or any(index not in node for index in range(len(node)))
            return [self._build(node[index]) for index in sorted(node)]
        return {name: self._build(inner) for name, inner in node.items()}


class _List(dict[int, Any]):
    """A list by index."""


class _Leaf:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _steps(path: Any) -> list[str | int]:
    """The steps of a path from the root; none if it is no path, leads nowhere, or is deeper than arguments may be."""
    if not isinstance(path, str) or not path.startswith("$"):
        return []
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) < MAX_DEPTH:
        match = _STEP.match(path, at)
        if match is None:
            return []
        bare, number, single, double = match.groups()
        if number is not None:
            steps.append(int(number))
        elif bare is not None:
            steps.append(bare)
        else:
            steps.append(pair_surrogates(_ESCAPE.sub(_unescaped, single if single is not None else double)))
        at = match.end()
    return steps if at == len(path) and steps and isinstance(steps[0], str) else []


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2])


def _value(leaf: dict[str, Any]) -> tuple[str | None, Any]:
    for name in _LEAVES:
        snake = name.replace("Value", "_value")
        key = name if name in leaf else snake if leaf.get(snake) is not None else None
        if key is None:
            continue
        value = leaf[key]
        if name == "stringValue":
            return (name, value) if isinstance(value, str) else (None, None)
        if name == "numberValue":
            if isinstance(value, str):  # protobuf's JSON writes NaN and infinities as text
                return name, float("nan")
            if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
                return name, int(value)
            return (name, value) if isinstance(value, (int, float)) else (None, None)
        return name, bool(value) if name == "boolValue" else None
    return None, None
