"""Which coordinator a session's state lives under: one that came after it has nothing of that state.

Owns the memory of the sessions one client has used. Must not know links or turns.
"""

from __future__ import annotations

from collections import OrderedDict

# How many sessions a client remembers; beyond that, one that was idle longest may get a fresh state unannounced.
_MAX = 65_536


class Sessions:
    """The incarnation of the coordinator that took each session's last turn."""

    def __init__(self) -> None:
        self._taken_by: OrderedDict[str, str] = OrderedDict()

    def taken_by(self, session: str | None) -> str | None:
        return None if session is None else self._taken_by.get(session)

    def taken(self, session: str | None, incarnation: str) -> None:
        """A turn of `session` went to the coordinator of that incarnation."""
        if session is None:
            return
        self._taken_by[session] = incarnation
        self._taken_by.move_to_end(session)
        if len(self._taken_by) > _MAX:
            self._taken_by.popitem(last=False)
