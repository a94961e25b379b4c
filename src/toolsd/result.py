"""What came of one call, as a caller sees it.

Owns the shape of a result. Must not know how it got here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolsd.content import Content, decode
from toolsd.errors import SlotError


class Result(msgspec.Struct, frozen=True):
    """One call's slot after the turn. `index` is its place among the calls of the turn.

    `content` is what the tool gave (text, a JSON value, or a list of parts), `None` if it failed. `text` is what the
    model should read, for an error its message. `error` is `None` if `ok`.
    """

    id: str | None
    tool: str
    ok: bool
    content: Any
    text: str
    error: SlotError | None = None
    index: int = 0


def read_result(id: str | None, tool: str, outcome: Any, index: int = 0) -> Result:
    """The result of a call from the outcome in its slot."""
    said = decode(outcome)
    if isinstance(said, Content):
        return Result(id, tool, True, said.value, said.text, None, index)
    return Result(id, tool, False, None, said.message, said, index)
