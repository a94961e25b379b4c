"""One call while it is being assembled: what every accumulator and every format adapter fills.

Knows nothing of routing, providers or JSON. Fragments are kept apart until the end, because only the whole list
tells a cumulative stream from an incremental one.
"""

from __future__ import annotations

from typing import Any

# A fragment is text, or a JSON object where a server sends arguments as an object instead of as text.
Fragment = str | dict[str, Any]


class Draft:
    """A call that is not settled yet.

    `notes` are codes of things seen on the way that do not stop the call. `closed` is false while the provider's own
    block of this call is open. `needs_id` is false in protocols where calls have no ids. `extra` holds provider keys
    that must be sent back with the call (a thought signature).
    """

    __slots__ = ("closed", "custom", "extra", "fragments", "id", "name", "needs_id", "notes")

    def __init__(self, id: str | None = None, name: str = "", *, custom: bool = False, needs_id: bool = True) -> None:
        self.id = id
        self.name = name
        self.fragments: list[Fragment] = []
        self.custom = custom
        self.needs_id = needs_id
        self.closed = True
        self.notes: list[str] | None = None
        self.extra: dict[str, Any] | None = None

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
        self.extra[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
