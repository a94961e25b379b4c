"""What the model said beside its calls, kept while it streams: the provider wants it back in front of the results.

A `Said` is one format's memory: text, reasoning with its signatures, calls of the provider's own tools, in order, with
a `CALL` where a call of ours stands. It never raises on what a provider sent, and a chunk costs what it holds.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Call:
    """The place of a call among what was said."""


CALL = Call()


class Said:
    """Remembers nothing: for formats where only calls count."""

    # Whether `take` reads SDK objects; the others get dicts alone.
    takes_objects: ClassVar[bool] = False

    def take(self, chunk: Any) -> None:
        """Take one chunk."""

    def parts(self) -> list[Any]:
        """Everything so far, in order, in the provider's shape."""
        return []


def woven(parts: list[Any], calls: list[Any]) -> list[Any]:
    """`parts` with a call at each `CALL`; all calls behind the rest where the two do not match."""
    if sum(part is CALL for part in parts) == len(calls):
        following = iter(calls)
        return [next(following) if part is CALL else part for part in parts]
    return [*(part for part in parts if part is not CALL), *calls]
