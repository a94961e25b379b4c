"""What the machine looks like now, as plain frozen values for `ps`, checks and metrics.

Owns the shape of the picture. Changes nothing. Instants (`since`) are on the clock of `handle`'s `now`.
"""

from __future__ import annotations

from typing import Any, Literal

from toolsd.core.fleet import Fleet
from toolsd.core.model import Value
from toolsd.core.pool import Pool
from toolsd.core.publishing import Publishing
from toolsd.core.replica import Worker
from toolsd.core.restart import BreakerState
from toolsd.core.shared import Shared
from toolsd.core.turn import Turn
from toolsd.core.turns import Turns
from toolsd.errors import Failure

Mode = Literal["running", "draining", "stopping", "stopped"]
SourceState = Literal["discovering", "ready", "starting", "idle", "failed", "unavailable", "refused", "leaving"]


class ReplicaView(Value, frozen=True):
    """One worker, or one empty seat (`worker` is `None`, state `down`). `replica` is the seat."""

    replica: int
    worker: int | None
    pid: int | None
    state: str
    since: float | None
    batches: int
    capacity: int


class SourceView(Value, frozen=True):
    """One source of the current generation, or one that is leaving. `restarts` counts failures since the start.

    `launch` is the spec's, opaque here. `state` is `failed` as long as no start ever succeeded, also while the next one
    is being tried.
    """

    name: str
    launch: Any
    state: SourceState
    required: bool
    start: str
    tools: int
    queued: int
    batches: int
    processes: int
    sessions: int
    restarts: int
    breaker: BreakerState
    typical_seconds: float
    failure: Failure | None
    replicas: tuple[ReplicaView, ...]


class TurnView(Value, frozen=True):
    """One turn in flight. `left` counts calls without a result, `sources` has one entry for each running batch."""

    turn: str
    state: str
    since: float
    calls: int
    left: int
    session: str | None
    sources: tuple[str, ...]


class Counters(Value, frozen=True):
    """Totals since the machine was made. `stale` events came from workers or batches that were over."""

    turns_opened: int
    turns_finished: int
    turns_failed: int
    batches_sent: int
    retries: int
    stale: int
    failures: tuple[tuple[str, int], ...]


class Snapshot(Value, frozen=True):
    """The whole picture. `reloading`: a generation is being prepared."""

    mode: Mode
    generation: int
    reloading: bool
    sources: tuple[SourceView, ...]
    turns: tuple[TurnView, ...]
    counters: Counters


def take(mode: Mode, shared: Shared, fleet: Fleet, turns: Turns, publishing: Publishing) -> Snapshot:
    """The picture now."""
    current = publishing.current.pools
    leaving = [pool for family in fleet.pools.values() for pool in family if pool not in current]
    by_pool: dict[Pool, list[Worker]] = {}
    for worker in fleet.workers.values():
        by_pool.setdefault(worker.pool, []).append(worker)
    return Snapshot(
        mode=mode,
        generation=publishing.current.number,
        reloading=publishing.pending is not None,
        sources=tuple(_source(pool, by_pool.get(pool, [])) for pool in (*current, *leaving)),
        turns=tuple(_turn(turn) for turn in turns.open.values()),
        counters=Counters(
            turns_opened=shared.turns_opened,
            turns_finished=shared.turns_finished,
            turns_failed=shared.turns_failed,
            batches_sent=shared.batches_sent,
            retries=shared.retries,
            stale=shared.stale,
            failures=tuple(sorted(shared.failures.items())),
        ),
    )


def _source(pool: Pool, workers: list[Worker]) -> SourceView:
    views = [_replica(worker) for worker in workers]
    taken = {worker.seat for worker in workers}
    views += [ReplicaView(seat, None, None, "down", None, 0, 0) for seat in range(len(pool.seats)) if seat not in taken]
    return SourceView(
        name=pool.name,
        launch=pool.spec.launch,
        state=_state(pool),
        required=pool.spec.required,
        start=pool.spec.start,
        tools=len(pool.tools),
        queued=len(pool.queue),
        batches=pool.batches - len(pool.queue),
        processes=pool.live,
        sessions=len(pool.pins),
        restarts=pool.restarts.total,
        breaker=pool.restarts.breaker,
        typical_seconds=pool.typical,
        failure=pool.failure,
        replicas=tuple(sorted(views, key=lambda view: (view.replica, view.worker or 0))),
    )


def _state(pool: Pool) -> SourceState:
    if not pool.generations:
        return "leaving"
    if pool.refused is not None:
        return "refused"
    if pool.is_ready():
        return "ready"
    if pool.discovery == "pending":
        return "discovering"
    if pool.discovery == "failed":
        return "failed"
    if pool.is_up():
        return "starting"
    if pool.restarts.breaker == "open":
        return "unavailable"
    # A lazy source whose last worker died is as idle as before: the next call starts it.
    return "failed" if pool.failure is not None and pool.failure.code == "source_start_failed" else "idle"


def _replica(worker: Worker) -> ReplicaView:
    held = len(worker.batches)
    return ReplicaView(worker.seat, worker.id, worker.pid, worker.state, worker.since, held, held + len(worker.room))


def _turn(turn: Turn) -> TurnView:
    sources = tuple(batch.pool.name for batch in turn.batches if batch.state != "over")
    return TurnView(turn.id, turn.state, turn.since, len(turn.calls), turn.left, turn.session, sources)
