"""What a provider format is to the assembler: chunks in, drafts, reasons and counts out.

Knows no provider and no wire framing. Adapters never raise on what a provider sent, and every chunk costs what it
holds, never what came before it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from toolsd.streams.draft import Draft, Trace, as_json, shortened


class Adapter:
    """Reads the chunks of one completion in one format.

    `dropped` counts fragments and chunks that belong to no call. `size` is the number of characters of arguments so
    far, `calls` the number of calls that have begun. `new_names` are tool names in the order they began; the reader
    empties it.
    """

    format: ClassVar[str | None] = None
    # Whether `feed` takes SDK objects as they are; the others get plain dicts.
    takes_objects: ClassVar[bool] = False
    # Types of SDK objects that say again what others say, with a snapshot of everything so far.
    repeats: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *, strict: bool = False, trace: Trace | None = None) -> None:
        self.strict = strict
        self.trace = trace
        self.reasons: dict[str, None] = {}
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

    def open(self, draft: Draft, why: str) -> Draft:
        """Account for a call that begins."""
        self.calls += 1
        if draft.name:
            self.new_names.append(draft.name)
        if self.trace is not None:
            self.trace(draft, f"name {draft.name!r}, id {draft.id}", why)
        return draft

    def append(self, draft: Draft, fragment: Any, why: str) -> None:
        """Add a fragment of arguments: text, or an object."""
        if fragment is None or fragment == "":
            return
        if not isinstance(fragment, (str, dict)):
            fragment = as_json(fragment)
        draft.fragments.append(fragment)
        self.size += len(fragment)
        if self.trace is not None:
            self.trace(draft, f"arguments {shortened(fragment)}", why)

    def drop(self, fragment: Any, why: str) -> None:
        """Count a fragment that belongs to no call."""
        self.dropped += 1
        if self.trace is not None:
            self.trace(None, f"arguments {shortened(fragment)}", why + ": dropped and counted")

    def say(self, reason: Any, reasons: dict[str, None] | None = None) -> None:
        """Take a finish reason, the latest last; anything but a text that is not empty is none."""
        if reason and isinstance(reason, str):
            reasons = self.reasons if reasons is None else reasons
            reasons.pop(reason, None)
            reasons[reason] = None


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is an object, an empty one otherwise."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """`value` if it is a list, a list of it if it is an object, an empty one otherwise."""
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def text(value: Any) -> str:
    """`value` if it is text, an empty one otherwise."""
    return value if isinstance(value, str) else ""


def identity(value: Any) -> str | None:
    """An id: text that is neither empty nor the word `null`; an integer counts as its decimal text."""
    if isinstance(value, str):
        return value if value and value != "null" else None
    return str(value) if type(value) is int else None


def key(value: Any) -> int:
    """A block index; -1 for one that is missing or no integer."""
    return value if type(value) is int else -1
