"""Ids of calls for a conversation: those of the provider where they can stand, others where they cannot.

A call without an id, with one that another call of the turn has, or with one that the provider's own check refuses,
gets a new one, which both the call and its result carry. New ids are made from the turn's id, so asking twice gives
the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from toolsd.conversation.formats.base import Format


def settled(ids: Sequence[str | None], shape: Format, seed: str) -> list[str | None]:
    """The id of each call in a message of `shape`; None only where its calls need none."""
    seen: set[str | None] = set()
    found: list[str | None] = []
    kept: set[str | None] = {id_ for id_ in ids if id_ is not None and shape.takes_id(id_)}
    for at, id_ in enumerate(ids):
        if id_ is None and not shape.needs_ids:
            found.append(None)
            continue
        key = id_ if id_ in kept and id_ not in seen else _new(shape, f"{seed}/{at}", kept | seen)
        seen.add(key)
        found.append(key)
    return found


def _new(shape: Format, seed: str, taken: set[str | None]) -> str:
    attempt = 0
    while True:
        digest = hashlib.sha256(f"{seed}/{attempt}".encode("utf-8", "surrogatepass")).hexdigest()
        key = shape.new_id(digest)
        if key not in taken:
            return key
        attempt += 1
