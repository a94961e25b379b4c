"""The work that every contender does, and the calls that ask for it: a trivial tool with small JSON arguments.

Plain functions of the standard library only: worker processes of every contender import this module.
"""

from __future__ import annotations

import json
from typing import Any

SOURCES = ("left", "right")
EXPECTED = {"line": "the quick brown fox / the quick brown fox", "words": 8}
IN_FLIGHT = 64


def repeat(text: str, times: int) -> dict[str, Any]:
    """Repeat a line of text and count the words."""
    line = " / ".join([text] * times)
    return {"line": line, "words": len(line.replace("/", "").split())}


def arguments() -> str:
    """The argument text of one call, as a model would write it."""
    return '{"text": "the quick brown fox", "times": 2}'


def tools(count: int) -> list[tuple[str, str]]:
    """`count` calls as (source, tool): alternating over the two sources when there is more than one."""
    return [(SOURCES[i % 2], f"{SOURCES[i % 2]}_repeat") for i in range(count)]


def run_one(text: str) -> str:
    """One call, from argument text to result text: what a worker does when there is nothing around it."""
    return json.dumps(repeat(**json.loads(text)))


def run_batch(texts: list[str]) -> list[str]:
    """The calls of one source, one after the other."""
    return [run_one(text) for text in texts]


def verify(results: list[Any]) -> None:
    """Raise if a contender answered anything else than the work's result."""
    wrong = [result for result in results if result != EXPECTED]
    if wrong:
        raise AssertionError(f"a contender answered {wrong[0]!r}")
