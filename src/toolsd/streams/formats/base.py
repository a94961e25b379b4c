"""What a provider format is to the assembler: chunks in, drafts, reasons and counts out.

Knows no provider and no wire framing. Adapters never raise on what a provider sent, and every chunk costs what it
holds, never what came before it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from toolsd.streams.draft import Draft


class Trace(Protocol):
    """Where an adapter reports what it did with a fragment; there is none unless somebody asked for an explanation."""

    def __call__(self, draft: Draft | None, what: str, why: str) -> None: ...


class Adapter:
    """Reads the chunks of one completion in one format.

    `dropped` counts fragments and chunks that belong to no call. `size` is the number of characters of arguments so
    far, `calls` the number of calls that have begun. `new_names` are tool names in the order they began; the reader
    empties it.
    """

    format: ClassVar[str | None] = None
    # Whether `feed` takes SDK objects as they are; the others get plain dicts.
    takes_objects: ClassVar[bool] = False

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        self.strict = strict
        self.trace = trace
        self.reasons: list[str] = []
        self.failed = False
        self.dropped = 0
        self.size = 0
        self.calls = 0
        self.new_names: list[str] = []

    def feed(self, chunk: Any) -> None:
        """Take one chunk."""

    def finish(self) -> None:
        """Nothing more is expected: conclude what could not be concluded before. May be called again."""

    def drafts(self) -> list[Draft]:
        """The calls so far, in the order of the result."""
        return []

    def say(self, reason: Any) -> None:
        """Take a finish reason; anything but a text that is not empty is none."""
        if reason and isinstance(reason, str) and reason not in self.reasons:
            self.reasons.append(reason)
