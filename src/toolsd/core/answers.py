"""What workers say about batches, and what their deaths mean for turns.

Owns the reading of answers: results are checked and put in place, failures and deaths become the end of a turn, an
error in its slots, or a second try. Must not know how workers are started or turns submitted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from toolsd.core import failures
from toolsd.core.batch import Batch
from toolsd.core.dispatch import Dispatch
from toolsd.core.events import BatchFailed, BatchFinished, ProgressReported, SlotsFilled
from toolsd.core.fleet import Fleet
from toolsd.core.instructions import BatchRecord, ReportProgress
from toolsd.core.model import ExitReport
from toolsd.core.pool import Pool
from toolsd.core.replica import Worker
from toolsd.core.shared import Shared
from toolsd.core.turn import EMPTY, Turn
from toolsd.core.turns import Turns
from toolsd.errors import CallState, Failure

# What a whole batch may fail with, by the word of its worker.
_BATCH_FAILURES = frozenset({"batch_raised", "results_incomplete", "protocol_violation", "turn_cancelled"})


class Answers:
    """See the module."""

    def __init__(self, shared: Shared, dispatch: Dispatch, fleet: Fleet, turns: Turns) -> None:
        self._shared = shared
        self._emit = shared.emit
        self._dispatch = dispatch
        self._fleet = fleet
        self._workers = fleet.workers
        self._turns = turns

    # --- from workers ---

    def on_slots(self, event: SlotsFilled, now: float) -> None:
        batch = self._batch(event.worker, event.batch)
        if batch is None:
            return
        turn = batch.turn
        if turn.state == "ended":
            return
        complaint = _fill(turn, batch, event.results)
        if complaint is not None:
            self._accuse(batch, complaint, now)
        elif turn.stream and turn.state == "running":
            self._turns.report(turn, [batch.indexes[slot] for slot, _ in event.results])

    def on_progress(self, event: ProgressReported, now: float) -> None:
        batch = self._batch(event.worker, event.batch)
        if batch is None:
            return
        turn = batch.turn
        if not 0 <= event.slot < len(batch.indexes):
            self._accuse(batch, f"progress of slot {event.slot}, which batch {batch.id} does not have", now)
            return
        if batch.started is None:
            batch.started = set()
        batch.started.add(event.slot)
        if turn.stream and turn.state == "running":
            self._emit(ReportProgress(turn.client, turn.id, batch.indexes[event.slot], event.payload))

    def on_finished(self, event: BatchFinished, now: float) -> None:
        batch = self._batch(event.worker, event.batch)
        if batch is None:
            return
        turn = batch.turn
        if turn.state == "ended":
            self._dispatch.over(batch, now)
            return
        complaint = _fill(turn, batch, event.results)
        if complaint is None and batch.left:
            complaint = f"batch {batch.id} ended with {batch.left} empty slots"
        if complaint is not None:
            self._accuse(batch, complaint, now)
            return
        self._record(turn, batch, now)
        self._dispatch.over(batch, now)
        self._turns.advance(turn, batch, now)

    def on_failed(self, event: BatchFailed, now: float) -> None:
        batch = self._batch(event.worker, event.batch)
        if batch is None:
            return
        turn, code = batch.turn, event.failure.code
        if code not in _BATCH_FAILURES:
            self._accuse(batch, f"batch {batch.id} failed with {code[:100]!r}, which is no failure of a batch", now)
            return
        if code == "turn_cancelled" and batch.state != "cancelling":
            self._accuse(batch, f"batch {batch.id} was cancelled and nobody had asked for it", now)
            return
        if turn.state == "ended":
            self._dispatch.over(batch, now)
            return
        turn.learn(batch, event.states, "sent")
        self._record(turn, batch, now)
        if turn.outcome == "finished_first":
            turn.outcome = "stopped"
        self._dispatch.over(batch, now)
        if turn.state == "closing":
            if code != "turn_cancelled":
                turn.later = turn.later or code
            self._turns.advance(turn, batch, now)
        else:
            self._turns.fail(turn, msgspec.structs.replace(event.failure, source=batch.pool.name), now)

    # --- from the fleet ---

    def doomed(self, batch: Batch, now: float) -> None:
        """The worker of `batch` was condemned. A turn that caused it is decided; its proof is awaited."""
        turn = batch.turn
        if batch.culprit and turn.state == "running" and self._on_crash(turn, batch.pool) == "fail_turn":
            turn.to("closing", now)
            turn.awaited = batch
            self._turns.drop_all(turn, now)

    def lost(self, batch: Batch, worker: Worker, exit: ExitReport | None, now: float) -> None:
        """The worker died while it held `batch`; `exit` is `None` when its report did not come in time."""
        turn = batch.turn
        if turn.state == "ended":
            return
        states, otherwise = _flight_record(exit, batch.id)
        turn.learn(batch, states, otherwise)
        turn.story.append((now, "batch lost", batch.id))
        self._record(turn, batch, now)
        if turn.state == "closing":
            turn.outcome = "killed"
            if turn.awaited is batch:
                self._turns.fail(turn, _why_lost(batch, worker, exit, now), now)
            else:
                if worker.doom is None:
                    turn.later = turn.later or "worker_crashed"
                self._turns.advance(turn, batch, now)
        elif self._may_retry(batch, worker) or self._never_left(batch, states):
            self._retry(batch, now)
        else:
            failure = _why_lost(batch, worker, exit, now)
            if self._on_crash(turn, batch.pool) == "fail_turn":
                turn.outcome = "killed"
                self._turns.fail(turn, failure, now)
                return
            error = failures.in_slot(failure)
            for index in batch.indexes:
                if turn.results[index] is EMPTY:
                    turn.put(index, error)
            self._turns.advance(turn, batch, now)

    # --- inside ---

    def _batch(self, worker_number: int, batch_number: int) -> Batch | None:
        worker = self._workers.get(worker_number)
        batch = worker.batches.get(batch_number) if worker is not None and worker.state == "ready" else None
        if batch is None:
            self._shared.stale += 1
        return batch

    def _accuse(self, batch: Batch, complaint: str, now: float) -> None:
        assert batch.worker is not None
        self._fleet.accuse(batch.worker, complaint, now)

    def _record(self, turn: Turn, batch: Batch, now: float) -> None:
        worker = batch.worker
        assert worker is not None
        turn.pending -= 1
        turn.records.append(
            BatchRecord(batch.pool.name, worker.seat, worker.id, worker.pid, batch.indexes, now - batch.sent_at)
        )

    def _on_crash(self, turn: Turn, pool: Pool) -> str:
        return turn.on_crash or pool.spec.on_crash

    def _may_retry(self, batch: Batch, worker: Worker) -> bool:
        """Once, if running it twice is harmless, it is not why we killed the worker, and no session's state is lost."""
        if batch.attempt or batch.culprit or worker.doom in ("stop", "drain"):
            return False
        if batch.pool.spec.affinity != "none" and batch.turn.session is not None:
            return False
        tools = batch.pool.index
        return all(tools[call.tool].idempotent for call in batch.calls)

    def _never_left(self, batch: Batch, states: tuple[CallState, ...] | None) -> bool:
        """Whether the node says that it did not hand the batch over: the worker was dead before it could."""
        if batch.turn.session is not None and batch.pool.spec.affinity != "none":
            return False
        return states is not None and len(states) == len(batch.indexes) and set(states) == {"not_sent"}

    def _retry(self, batch: Batch, now: float) -> None:
        turn, pool = batch.turn, batch.pool
        rest = tuple([i for i in batch.indexes if turn.results[i] is EMPTY])
        if not rest:
            self._turns.advance(turn, batch, now)
            return
        if not pool.is_up() and pool.restarts.is_resting(now):
            self._turns.fail(turn, failures.unavailable(pool, now), now)
            return
        again = self._dispatch.make(turn, pool, rest, now)
        again.attempt = batch.attempt + 1
        self._shared.retries += 1
        self._dispatch.submit(again, now, again=True)


def _fill(turn: Turn, batch: Batch, results: tuple[tuple[int, Any], ...]) -> str | None:
    """Put a batch's results where their calls are. What is wrong with them, or `None`."""
    slots, indexes = turn.results, batch.indexes
    size = len(indexes)
    for slot, outcome in results:
        if not 0 <= slot < size:
            return f"a result for slot {slot}, which batch {batch.id} does not have"
        index = indexes[slot]
        if slots[index] is not EMPTY:
            return f"two results for slot {slot} of batch {batch.id}"
        slots[index] = outcome
        batch.left -= 1
        turn.left -= 1
    return None


def _flight_record(exit: ExitReport | None, batch: int) -> tuple[tuple[CallState, ...] | None, CallState]:
    """The states of the calls of `batch`, and what holds for those the record does not cover.

    When the exit itself was seen, the record was read too: a call that is not in it was never begun.
    """
    if exit is None:
        return None, "unknown"
    seen = exit.exit_code is not None or exit.signal is not None
    return exit.states.get(batch), "sent" if seen else "unknown"


def _why_lost(batch: Batch, worker: Worker, exit: ExitReport | None, now: float) -> Failure:
    """The failure of a batch whose worker died: never a crash if we ended it."""
    elapsed = now - batch.sent_at
    reason = worker.doom or (exit.reason if exit is not None else None)
    if reason == "protocol":
        return failures.misbehaved(worker, exit)
    if reason == "deadline" and batch.culprit:
        return failures.timed_out(batch, worker, exit, elapsed)
    if reason is not None or exit is None:
        return failures.killed_for_another(worker, exit, reason or "stop", elapsed)
    return failures.crashed(worker, exit, elapsed)
