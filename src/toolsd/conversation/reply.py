"""A turn as messages: what the model said and called, then what came of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolsd.conversation import ids
from toolsd.conversation.formats import FORMATS, known
from toolsd.conversation.formats.base import Entry
from toolsd.errors import UsageError
from toolsd.result import Result
from toolsd.streams import AssembledCall


def messages(
    format: str | None,
    calls: Sequence[AssembledCall],
    results: Sequence[Result],
    *,
    said: Sequence[Any] = (),
    seed: str = "",
) -> list[dict[str, Any]]:
    """What to append to the conversation: the assistant's message with `calls`, then `results`, one for each call.

    Names in `calls` are those the model used. `said` is what it said beside them, in the shape of `format`
    (`Listener.parts`). `seed` names the turn; ids that have to be made are made from it. No calls, no messages.

    Raises:
        UsageError: an unknown format, none at all, or one that has no messages (MCP).
    """
    if not calls:
        return []
    if format is None:
        raise UsageError("the turn was not streamed, so it has no format", hint="say which: messages('openai-chat')")
    shape = FORMATS[known(format)]
    keys = ids.settled([call.id for call in calls], shape, seed)
    entries = [
        Entry(call, key, shape.names.fit(call.name or "unnamed"), result)
        for call, key, result in zip(calls, keys, results, strict=True)
    ]
    return shape.messages(list(said), entries)
