"""The machine: `handle(event, now)` returns the instructions the event leads to.

Owns nothing but the order in which the parts see an event, and how the whole winds down. The parts, each with one
owner of state: `Turns` (turns from first word to end), `Planning` (calls to batches), `Dispatch` (batches on their
way), `Answers` (what comes back), `Fleet` (workers), `Publishing` (generations), `Alarms` (who wakes when).

Theory of operation. Only `handle` changes anything. Time is its argument, on any clock that never goes back; nothing
happens by itself, so the shell posts `TimePassed` when `next_deadline()` has come. An event about a worker or batch
that is not there any more is stale: it is counted and leads to nothing. An event that cannot be is a bug of ours and
raises InternalError with the story of the turn or worker; the machine must not be used after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolsd.core import snapshot as picture
from toolsd.core.answers import Answers
from toolsd.core.dispatch import Dispatch
from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    CancelRequested,
    ClientGone,
    DrainRequested,
    Event,
    NamesSeen,
    ProgressReported,
    RegistryPublished,
    SlotsFilled,
    StopRequested,
    TimePassed,
    TurnSubmitted,
    WorkerExited,
    WorkerGrew,
    WorkerMisbehaved,
    WorkerReady,
    WorkerStarted,
    WorkerStartFailed,
)
from toolsd.core.fleet import EVIDENCE_WAIT, Fleet
from toolsd.core.instructions import Drained, Instruction, KillReason
from toolsd.core.planning import Planning
from toolsd.core.pool import Pool
from toolsd.core.publishing import Publishing
from toolsd.core.registry import ToolView
from toolsd.core.replica import Worker
from toolsd.core.restart import Jitter
from toolsd.core.shared import Shared
from toolsd.core.snapshot import Mode, Snapshot
from toolsd.core.turn import Turn
from toolsd.core.turns import Turns
from toolsd.errors import InternalError


class Coordinator:
    """The pure core. `jitter` gives numbers in [0, 1) for restart delays; without it they are exact.

    `alarm` belongs to `Alarms`: when a drain is given up, or after a kill of everything, when it is declared done.
    """

    def __init__(self, jitter: Jitter | None = None) -> None:
        self._shared = shared = Shared()
        self._dispatch = dispatch = Dispatch(shared)
        self._fleet = fleet = Fleet(shared, dispatch)
        self._turns = turns = Turns(shared, dispatch, fleet)
        planning = Planning(shared, dispatch, turns)
        answers = Answers(shared, dispatch, fleet, turns)
        self._publishing = publishing = Publishing(shared, fleet, turns, planning, jitter)
        dispatch.fleet, dispatch.turns = fleet, turns
        fleet.answers, fleet.publishing = answers, publishing
        turns.publishing = planning.publishing = publishing
        self.alarm: float | None = None
        self._mode: Mode = "running"
        self._handlers: dict[type[Any], Callable[[Any, float], None]] = {
            NamesSeen: turns.on_names,
            TurnSubmitted: planning.on_submitted,
            CancelRequested: turns.on_cancel,
            ClientGone: turns.on_client_gone,
            WorkerStarted: fleet.on_started,
            WorkerReady: fleet.on_ready,
            WorkerStartFailed: fleet.on_start_failed,
            SlotsFilled: answers.on_slots,
            BatchFinished: answers.on_finished,
            BatchFailed: answers.on_failed,
            ProgressReported: answers.on_progress,
            WorkerGrew: fleet.on_grew,
            WorkerMisbehaved: fleet.on_misbehaved,
            WorkerExited: fleet.on_exited,
            RegistryPublished: publishing.on_published,
            TimePassed: self._on_time,
            DrainRequested: self._on_drain,
            StopRequested: self._on_stop,
        }

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """What must be done because of `event`, in order. `now` is in seconds and never goes back.

        Raises:
            InternalError: the event cannot be; a bug in toolsd.
        """
        handler = self._handlers.get(type(event))
        if handler is None:
            raise InternalError(f"the core knows no event {type(event).__name__}")
        handler(event, now)
        if self._mode != "running":
            self._wind_down(now)
        return self._shared.take()

    def next_deadline(self) -> float | None:
        """When to post `TimePassed`, or `None`. Nothing may be due then; it is never late."""
        return self._shared.alarms.next()

    def tools(self) -> tuple[ToolView, ...]:
        """All tools of the current generation, in file order."""
        return self._publishing.current.tools()

    def snapshot(self) -> Snapshot:
        """The machine now, as plain values."""
        return picture.take(self._mode, self._shared, self._fleet, self._turns, self._publishing)

    # --- the clock ---

    def _on_time(self, event: TimePassed, now: float) -> None:
        for owner in self._shared.alarms.due(now):
            if isinstance(owner, Worker):
                self._fleet.worker_due(owner, now)
            elif isinstance(owner, Pool):
                self._dispatch.expire(owner, now)
                self._fleet.fill(owner, now)
            elif isinstance(owner, Turn):
                self._turns.due(owner, now)
            else:
                self._give_up(now)

    # --- the end ---

    def _on_drain(self, event: DrainRequested, now: float) -> None:
        if self._mode not in ("running", "draining"):
            return
        self._mode = "draining"
        self._shared.alarms.disarm(self)
        self._shared.alarms.arm(self, now + event.timeout)
        self._publishing.drain(now)
        self._turns.begin_drain(now)

    def _on_stop(self, event: StopRequested, now: float) -> None:
        if self._mode in ("running", "draining"):
            self._kill_all("stop", now)

    def _give_up(self, now: float) -> None:
        """The drain took too long; or, killed as they are, workers do not report their exit."""
        if self._mode == "draining":
            self._kill_all("drain", now)
        elif self._mode == "stopping":
            self._shared.warn("workers did not report their exit", workers=tuple(self._fleet.workers))
            self._mode = "stopped"
            self._shared.emit(Drained())

    def _kill_all(self, reason: KillReason, now: float) -> None:
        self._mode = "stopping"
        self._fleet.halted = True
        self._publishing.drain(now)
        self._turns.fail_all(now)
        for worker in list(self._fleet.workers.values()):
            if worker.state != "dying":
                self._fleet.condemn(worker, reason, now)
        self._shared.alarms.disarm(self)
        self._shared.alarms.arm(self, now + EVIDENCE_WAIT)

    def _wind_down(self, now: float) -> None:
        """Send workers away when no turn is left, and say so when no worker is."""
        if self._mode == "stopped" or self._turns.open:
            return
        self._fleet.halted = True
        for worker in list(self._fleet.workers.values()):
            if worker.state in ("starting", "ready") and not worker.batches:
                self._fleet.stop(worker, now)
        if not self._fleet.workers:
            self._mode = "stopped"
            self._shared.alarms.disarm(self)
            self._shared.emit(Drained())
