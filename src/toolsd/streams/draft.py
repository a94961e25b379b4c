"""One call while it is being assembled: what every accumulator and every format adapter fills.

Knows nothing of routing, providers or JSON. Fragments are kept apart until the end, because only the whole list
tells a cumulative stream from an incremental one.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

# A fragment is text, or a JSON object where a server sends arguments as an object instead of as text.
Fragment = str | dict[str, Any]


def as_json(value: Any) -> str:
    """An object fragment as JSON text; U+FFFD, which parses as nothing, where it cannot be written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # foreign objects inside, cycles, a nesting beyond any limit
        return "\ufffd"


class Draft:
    """A call that is not settled yet.

    `fragments` are the arguments in the order they came. `final` is a snapshot that overrules them (a finished item),
    `fallback` one that counts only where no fragment came (an input in the head); an empty one is none. `notes` and
    `defects` are codes of things seen on the way. `closed` is false while the provider's own block of it is open.
    `needs_id` is false in protocols where calls have no ids. `extra` holds provider keys that must be sent back with
    the call (a thought signature).
    """

    __slots__ = (
        "closed",
        "custom",
        "defects",
        "extra",
        "fallback",
        "final",
        "fragments",
        "id",
        "into",
        "name",
        "needs_id",
        "notes",
    )

    def __init__(self, id: str | None = None, name: str = "", *, custom: bool = False, needs_id: bool = True) -> None:
        self.id = id
        self.name = name
        self.fragments: list[Fragment] = []
        self.final: Fragment | None = None
        self.fallback: Fragment | None = None
        self.custom = custom
        self.needs_id = needs_id
        self.closed = True
        self.notes: list[str] | None = None
        self.defects: list[str] | None = None
        self.extra: dict[str, Any] | None = None
        self.into: Draft | None = None  # the draft that took this one over

    def chosen(self) -> list[Fragment]:
        """The fragments that count."""
        if self.final is not None and self.final != "":
            return [self.final]
        if self.fallback is None or any(fragment != "" for fragment in self.fragments):
            return self.fragments
        return [self.fallback]

    def text(self) -> str:
        """The fragments joined as they came, objects written as JSON."""
        return "".join([piece if isinstance(piece, str) else as_json(piece) for piece in self.chosen()])

    def note(self, code: str) -> None:
        if self.notes is None:
            self.notes = [code]
        elif code not in self.notes:
            self.notes.append(code)

    def keep(self, key: str, value: Any) -> None:
        """Keep a provider key; a later value replaces an earlier one, objects are merged one level deep."""
        if self.extra is None:
            self.extra = {}
        old = self.extra.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            old.update(value)
        else:
            self.extra[key] = dict(value) if isinstance(value, dict) else value


class Trace(Protocol):
    """Where it is reported what was done with a fragment; there is none unless somebody asked for an explanation."""

    def __call__(self, draft: Draft | None, what: str, why: str) -> None: ...


def described(index: Any, id_: Any, name: Any, arguments: Any) -> str:
    """A delta for a line of an explanation."""
    parts = [] if index is None else [f"index {index}"]
    parts += [f"id {id_}"] if id_ else []
    parts += [f"name {name!r}"] if name else []
    parts += [f"arguments {shortened(arguments)}"] if arguments else []
    return ", ".join(parts) or "nothing"


def shortened(fragment: Any) -> str:
    """A fragment for a line of an explanation."""
    if isinstance(fragment, str):
        fragment = fragment[:80]
    text = repr(fragment)
    return text if len(text) <= 60 else text[:57] + "..."
