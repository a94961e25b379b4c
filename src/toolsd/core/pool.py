"""One configured source at work: its seats, its queue, its sessions, and whether it needs another worker.

Owns what is known of the source now. Decides, but does not act: `Fleet` starts and stops. Must not know turns beyond
the client and session of a batch.

A pool belongs to the generations that contain it (`generations`). While it belongs to none, its workers are sent away
as soon as the last batch ends.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from toolsd.core.model import SourceSpec, ToolSpec
from toolsd.core.pick import least_loaded, rendezvous
from toolsd.core.queue import FairQueue
from toolsd.core.replica import Worker
from toolsd.core.restart import Jitter, Restarts
from toolsd.errors import Failure

if TYPE_CHECKING:
    from toolsd.core.batch import Batch
    from toolsd.core.registry import Generation

# How many sessions one source remembers; beyond that the one that was idle longest may get a fresh state unannounced.
SESSIONS_MAX = 65_536

# `pending`: the first start has not ended. `failed`: it ended badly, further ones are made as the restart policy says.
Discovery = Literal["pending", "described", "failed"]


class Pool:
    """See the module. `refused` names the collision that keeps its tools out of the current generation.

    `spare` is a worker that starts while the one it is to replace still has the seat.
    """

    __slots__ = (
        "alarm",
        "batches",
        "discovery",
        "failure",
        "generations",
        "index",
        "keep",
        "live",
        "name",
        "pins",
        "queue",
        "refused",
        "restarts",
        "seats",
        "spare",
        "spec",
        "tools",
        "typical",
        "up_since",
        "warm",
        "wide",
    )

    def __init__(self, spec: SourceSpec, jitter: Jitter | None) -> None:
        self.spec = spec
        self.name = spec.name
        self.seats: list[Worker | None] = [None] * spec.replicas
        self.spare: Worker | None = None
        self.queue = FairQueue()
        self.restarts = Restarts(spec.restart, jitter)
        self.pins: OrderedDict[str, int] = OrderedDict()
        self.discovery: Discovery = "pending"
        self.tools: tuple[ToolSpec, ...] = ()
        self.index: dict[str, ToolSpec] = {}
        self.generations: list[Generation] = []
        self.failure: Failure | None = None
        self.refused: Failure | None = None
        self.batches = 0  # queued and sent, not over
        self.typical = 0.0  # moving mean of batch seconds
        self.up_since = 0.0  # since when somebody has been ready
        self.live = 0  # processes that have not been reported gone
        self.warm = False  # a stream named one of its tools
        self.keep = False  # a lazy source that stays up after discovery
        self.wide = False  # published: may have all its replicas
        self.alarm: float | None = None

    # --- who is there ---

    def is_ready(self) -> bool:
        return any(worker is not None and worker.state == "ready" for worker in self.seats)

    def is_up(self) -> bool:
        """Whether a worker is ready or on its way."""
        return any(worker is not None for worker in self.seats)

    def seated(self, number: int) -> Worker | None:
        """The worker with that number, if it holds a seat."""
        for worker in self.seats:
            if worker is not None and worker.id == number:
                return worker
        return None

    def is_leaving(self) -> bool:
        """Whether its workers go as soon as they are idle: no generation has it, or the current one refused it."""
        return self.refused is not None or not self.generations

    def has_room(self) -> bool:
        return any(worker is not None and worker.room for worker in self.seats)

    def pick(self, batch: Batch) -> Worker | None:
        """The worker that can take `batch` now."""
        if batch.seat is None:
            if len(self.seats) > 1:
                return least_loaded(self.seats)
            worker = self.seats[0]
        else:
            worker = self.seats[batch.seat]
        return worker if worker is not None and worker.room else None

    # --- sessions ---

    def holder(self, session: str | None) -> int | None:
        """The incarnation that holds the state of `session`, alive or not."""
        if session is None or self.spec.affinity == "none":
            return None
        return self.pins.get(session)

    def seat_for(self, session: str | None, now: float) -> int | None:
        """The seat a batch of `session` belongs to: where its state is, else where its hash says."""
        if session is None or self.spec.affinity == "none":
            return None
        held = self.pins.get(session)
        worker = None if held is None else self.seated(held)
        if worker is not None:
            return worker.seat
        startable = self.restarts.may_start_at(now) <= now
        usable = [seat for seat, worker in enumerate(self.seats) if startable or worker is not None]
        return rendezvous(session, usable or range(len(self.seats)))

    def pin(self, session: str, worker: Worker) -> None:
        """The session's state lives in `worker` from now on."""
        pins = self.pins
        pins[session] = worker.id
        pins.move_to_end(session)
        if len(pins) > SESSIONS_MAX:
            pins.popitem(last=False)

    # --- what it needs ---

    def wanted_seat(self) -> int | None:
        """The empty seat that should have a worker next, or `None`."""
        empty = [seat for seat, worker in enumerate(self.seats) if worker is None]
        if not empty:
            return None
        nobody = len(empty) == len(self.seats)
        if not self.is_leaving():
            if self.spec.start == "eager" and (self.wide or nobody):
                return empty[0]
            if nobody and (self.warm or self.discovery != "described"):
                return empty[0]
        if self.queue:
            for batch in self.queue:
                if batch.seat is not None and self.seats[batch.seat] is None:
                    return batch.seat
            starting = sum(1 for worker in self.seats if worker is not None and worker.state == "starting")
            free = sum(1 for batch in self.queue if batch.seat is None)
            if free > starting:
                return empty[0]
        return None

    def retry_after(self) -> float:
        """Seconds until a full queue has probably drained."""
        ready = sum(1 for worker in self.seats if worker is not None and worker.state == "ready") or 1
        return max(0.05, round(self.typical * len(self.queue) / ready, 3))

    def tired_seat(self) -> int | None:
        """A seat whose worker should be replaced, if nobody is being replaced now."""
        if self.spare is not None or self.is_leaving():
            return None
        return next((seat for seat, worker in enumerate(self.seats) if worker is not None and worker.tired), None)

    def learn(self, elapsed: float) -> None:
        """Take one batch's duration into the mean."""
        self.typical += (elapsed - self.typical) * 0.2
