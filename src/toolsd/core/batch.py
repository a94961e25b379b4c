"""One batch: the calls of one turn for one source, and where they are.

Owns the states of a batch. Must not know what a turn or a source decides.

Theory of operation.

    queued ──▶ sent ──▶ cancelling ──▶ over        `queued ─▶ over`: dropped before anything ran
                  └───────────────────▶ over

`sent` is the line that matters: a batch that crossed it is never sent again, whatever happens (an idempotent one is
retried as a new batch with a new number). `cancelling` has a hard end, `kill_at`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from toolsd.core.model import Call
from toolsd.core.story import Table, broken
from toolsd.errors import CallState

if TYPE_CHECKING:
    from toolsd.core.pool import Pool
    from toolsd.core.replica import Worker
    from toolsd.core.turn import Turn

BatchState = Literal["queued", "sent", "cancelling", "over"]

TRANSITIONS: Table = {
    "queued": frozenset({"sent", "over"}),
    "sent": frozenset({"cancelling", "over"}),
    "cancelling": frozenset({"over"}),
    "over": frozenset(),
}


class Batch:
    """Slot i of the batch is call `indexes[i]` of the turn. `attempt` is 1 for an idempotent retry.

    `seat` is the replica its session belongs to (`None`: any), `pin` the incarnation that holds the session's state.
    `left` counts empty slots. `culprit` is set when its worker was killed because of this batch. `size` is bytes of
    arguments, known of a batch that waits.
    """

    __slots__ = (
        "attempt",
        "calls",
        "culprit",
        "due",
        "id",
        "indexes",
        "kill_at",
        "left",
        "pin",
        "pool",
        "queued_at",
        "region",
        "seat",
        "sent_at",
        "size",
        "started",
        "state",
        "turn",
        "worker",
    )

    def __init__(self, number: int, turn: Turn, pool: Pool, indexes: tuple[int, ...], now: float) -> None:
        self.id = number
        self.turn = turn
        self.pool = pool
        self.indexes = indexes
        calls = turn.calls
        self.calls: tuple[Call, ...] = tuple([calls[i] for i in indexes])
        self.left = len(indexes)
        self.state: BatchState = "queued"
        self.queued_at = now
        self.size = 0
        self.sent_at = 0.0
        self.due: float | None = None
        self.kill_at: float | None = None
        self.worker: Worker | None = None
        self.region = 0
        self.attempt = 0
        self.seat: int | None = None
        self.pin: int | None = None
        self.culprit = False
        self.started: set[int] | None = None

    def to(self, state: BatchState) -> None:
        """Change state. Raises InternalError with the turn's story."""
        if state not in TRANSITIONS[self.state]:
            raise broken(f"batch {self.id} of {self.turn.id!r} ({self.state})", f"become {state}", self.turn.story)
        self.state = state

    def known_state(self, slot: int) -> CallState:
        """What is known of the call in `slot` while the worker lives and has not filled it."""
        if self.state == "queued" or self.worker is None:
            return "not_sent"
        return "started" if self.started is not None and slot in self.started else "sent"
