"""One worker: one incarnation of one replica of a source, from the order to start it to its exit.

Owns the states of an incarnation and the regions of its flight recorder. Must not know turns.

Theory of operation. A source has `replicas` *seats*. A worker that starts or is ready sits in one; the moment it is
told to leave, or condemned, it gives up the seat, so that its successor can be started while it is still going away.

    starting ──▶ ready ──▶ stopping ──▶ gone
        │          │           │
        └──────────┴───────────┴──────▶ dying ──▶ gone

A worker that is *tired* (`Recycle`) keeps its seat until its successor is ready; then it is *retired*: it takes no more
batches, and is stopped when it holds none.

`stopping` was asked to close its source and leave, and holds no batch. `dying` was killed by us, or has told us
that its source does not load; what comes from it afterwards is stale. `gone` means its exit was reported.
`doom` is why we ended it, so that the exit is never taken for a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from toolsd.core.batch import Batch
from toolsd.core.story import Story, Table, broken, new_story

if TYPE_CHECKING:
    from toolsd.core.pool import Pool

WorkerState = Literal["starting", "ready", "stopping", "dying", "gone"]
Doom = Literal["deadline", "cancel", "stop", "drain", "protocol", "start_timeout", "start_failed"]

TRANSITIONS: Table = {
    "starting": frozenset({"ready", "stopping", "dying", "gone"}),
    "ready": frozenset({"stopping", "dying", "gone"}),
    "stopping": frozenset({"dying", "gone"}),
    "dying": frozenset({"gone"}),
    "gone": frozenset(),
}


class Worker:
    """An incarnation. `room` are the free regions, one for each batch it could take now; empty until it is ready.

    `proven`: it has answered a batch, so its death is no part of a crash loop. `alarm` belongs to `Alarms`.
    `give_up_at` is when we stop waiting for the exit of a dying worker. `turns_left` is how
    many batches it may still end before it is tired; negative: no such bound.
    """

    __slots__ = (
        "alarm",
        "batches",
        "complaint",
        "doom",
        "give_up_at",
        "id",
        "pid",
        "pool",
        "proven",
        "ready_at",
        "retired",
        "room",
        "seat",
        "since",
        "state",
        "story",
        "tired",
        "turns_left",
    )

    def __init__(self, number: int, pool: Pool, seat: int, now: float) -> None:
        self.id = number
        self.pool = pool
        self.seat = seat
        self.pid: int | None = None
        self.state: WorkerState = "starting"
        self.since = now
        self.ready_at: float | None = None
        self.proven = False
        self.tired = False
        self.retired = False
        self.turns_left = pool.spec.recycle.turns or -1
        self.batches: dict[int, Batch] = {}
        self.room: list[int] = []
        self.doom: Doom | None = None
        self.complaint = ""
        self.alarm: float | None = None
        self.give_up_at: float | None = None
        self.story: Story = new_story()
        self.story.append((now, "starting", 0))

    def to(self, state: WorkerState, now: float) -> None:
        """Change state. Raises InternalError with the worker's story."""
        if state not in TRANSITIONS[self.state]:
            who = f"worker {self.id} of source {self.pool.name!r} ({self.state})"
            raise broken(who, f"become {state}", self.story)
        self.state = state
        self.since = now
        self.story.append((now, state, 0))

    def open(self, capacity: int) -> None:
        """Offer `capacity` regions, the lowest first."""
        self.room = list(range(capacity - 1, -1, -1))

    def uptime(self, now: float) -> float:
        """Seconds since it became ready; 0 if it never did."""
        return 0.0 if self.ready_at is None else now - self.ready_at
