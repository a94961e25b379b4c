"""All turns: opened, submitted, filled, cancelled, ended.

Owns every turn that has not ended, and a bounded memory of the ids of those that have. Must not know how workers are
started or placed; it makes batches and hears how they ended.

How a turn ends, each exactly once: `FinishTurn` when every slot is filled; `FailTurn` otherwise; nothing at all when
its client is gone. When a turn fails, its batches on other sources are taken from their queues or *cancelled* (and
killed after the source's grace): nobody can use their results, and work that goes on unseen is what callers fear.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from toolsd.core import failures
from toolsd.core.batch import Batch
from toolsd.core.dispatch import Dispatch
from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    CancelRequested,
    ClientGone,
    NamesSeen,
    ProgressReported,
    SlotsFilled,
    TurnSubmitted,
)
from toolsd.core.fleet import Fleet
from toolsd.core.instructions import (
    BatchRecord,
    ConfirmCancel,
    FailTurn,
    FinishTurn,
    ReportProgress,
    ReportResults,
)
from toolsd.core.model import CancelOutcome, ExitReport
from toolsd.core.pool import Pool
from toolsd.core.registry import Generation
from toolsd.core.replica import Worker
from toolsd.core.shared import Shared
from toolsd.core.turn import EMPTY, Turn, TurnState
from toolsd.errors import CallState, Failure, LedgerEntry

if TYPE_CHECKING:
    from toolsd.core.publishing import Publishing

# How many ended turns are remembered by id, so that a second use of one is refused.
ENDED_MAX = 10_000
# How many turns may be open without being submitted; beyond that a stream still warms its sources.
STREAMING_MAX = 10_000
# How many turns may wait for sources that are still being discovered.
UNRESOLVED_MAX = 1_024


class Turns:
    """See the module. `publishing` is set once by the coordinator. `draining`: new turns are refused."""

    publishing: Publishing

    def __init__(self, shared: Shared, dispatch: Dispatch, fleet: Fleet) -> None:
        self._shared = shared
        self._emit = shared.emit
        self._alarms = shared.alarms
        self._dispatch = dispatch
        self._fleet = fleet
        self._workers = fleet.workers
        self._by_client: dict[Any, dict[str, Turn]] = {}
        self._ended: dict[str, CancelOutcome] = {}
        self._ended_order: deque[str] = deque()
        self._asked: dict[str, Turn] = {}
        self._streaming = 0
        self.open: dict[str, Turn] = {}
        self.draining = False

    # --- from clients -----------------------------------------------------------------------------------------------

    def on_names(self, event: NamesSeen, now: float) -> None:
        turn = self.open.get(event.turn)
        if self.draining or event.turn in self._ended:
            self._shared.stale += 1
            return
        generation = self.publishing.current
        if turn is None:
            if self._streaming < STREAMING_MAX:
                turn = self._begin(event.turn, event.client, event.session, "streaming", now)
                self._streaming += 1
                generation.holders += 1
                turn.generation = generation
        elif turn.state != "streaming" or turn.client != event.client:
            self._shared.stale += 1
            return
        elif turn.generation is not None:
            generation = turn.generation
        for name in event.names:
            pool = generation.index.get(name)
            if pool is None:
                generation.want(name)
            elif not pool.is_up() and not pool.restarts.is_resting(now):
                pool.warm = True
                self._fleet.fill(pool, now)

    def on_submitted(self, event: TurnSubmitted, now: float) -> None:
        number, client = event.turn, event.client
        turn = self.open.get(number)
        if turn is None:
            if number in self._ended:
                self._refuse_duplicate(event)
                return
            turn = self._begin(number, client, event.session, "waiting", now)
        elif turn.state != "streaming" or turn.client != client:
            self._refuse_duplicate(event)
            return
        else:
            self._streaming -= 1
            turn.to("waiting", now)
            if event.session is not None:
                turn.session = event.session
        turn.calls = event.calls
        turn.results = [EMPTY] * len(event.calls)
        turn.left = len(event.calls)
        turn.stream = event.stream
        turn.on_crash = event.on_crash
        refusal = self._refusal(event)
        if refusal is not None:
            self.fail(turn, refusal, now)
            return
        if event.deadline is not None:
            turn.deadline = event.deadline
            turn.deadline_at = now + event.deadline
            self._alarms.arm(turn, turn.deadline_at)
        self._plan(turn, turn.generation or self.publishing.current, range(len(event.calls)), now)

    def on_cancel(self, event: CancelRequested, now: float) -> None:
        turn = self.open.get(event.turn)
        if turn is None:
            self._emit(ConfirmCancel(event.client, event.turn, self._ended.get(event.turn)))
            return
        turn.askers.append(event.client)
        self._asked[turn.id] = turn
        if turn.state != "closing":
            self._cancel(turn, now)

    def on_client_gone(self, event: ClientGone, now: float) -> None:
        client = event.client
        for turn in list(self._asked.values()):
            turn.askers = [asker for asker in turn.askers if asker != client]
        for turn in list(self._by_client.get(client, {}).values()):
            turn.deserted = True
            if not turn.askers:
                self.fail(turn, failures.cancelled(None), now)
            elif turn.state != "closing":
                self._cancel(turn, now)

    # --- from workers -----------------------------------------------------------------------------------------------

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
        elif turn.stream and turn.state == "running" and not turn.deserted:
            self._report(turn, [batch.indexes[slot] for slot, _ in event.results])

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
        self._advance(turn, batch, now)

    def on_failed(self, event: BatchFailed, now: float) -> None:
        batch = self._batch(event.worker, event.batch)
        if batch is None:
            return
        turn, code = batch.turn, event.failure.code
        if code == "turn_cancelled" and batch.state != "cancelling":
            self._accuse(batch, f"batch {batch.id} was cancelled and nobody had asked for it", now)
            return
        if turn.state == "ended":
            self._dispatch.over(batch, now)
            return
        turn.learn(batch, None, "sent")
        self._record(turn, batch, now)
        if turn.outcome == "finished_first":
            turn.outcome = "stopped"
        self._dispatch.over(batch, now)
        if turn.state == "closing":
            if code != "turn_cancelled":
                turn.later = turn.later or code
            self._advance(turn, batch, now)
        else:
            self.fail(turn, msgspec.structs.replace(event.failure, source=batch.pool.name), now)

    # --- from the fleet ---------------------------------------------------------------------------------------------

    def doomed(self, batch: Batch, now: float) -> None:
        """The worker of `batch` was condemned. A turn that caused it is decided; its proof is awaited."""
        turn = batch.turn
        if batch.culprit and turn.state == "running" and self._on_crash(turn, batch.pool) == "fail_turn":
            turn.to("closing", now)
            turn.awaited = batch
            self._drop_all(turn, now)

    def lost(self, batch: Batch, worker: Worker, exit: ExitReport | None, now: float) -> None:
        """The worker died while it held `batch`; `exit` is `None` when its report did not come in time."""
        turn = batch.turn
        if turn.state == "ended":
            return
        states, otherwise = _flight_record(exit, batch.id)
        turn.learn(batch, states, otherwise)
        turn.outcome = "killed"
        self._record(turn, batch, now)
        if turn.state == "closing":
            if turn.awaited is batch:
                self.fail(turn, _why_lost(batch, worker, exit, now), now)
            else:
                if worker.doom is None:
                    turn.later = turn.later or "worker_crashed"
                self._advance(turn, batch, now)
        elif self._may_retry(batch, worker):
            self._retry(batch, now)
        else:
            failure = _why_lost(batch, worker, exit, now)
            if self._on_crash(turn, batch.pool) == "fail_turn":
                self.fail(turn, failure, now)
                return
            error = failures.in_slot(failure)
            for index in batch.indexes:
                if turn.results[index] is EMPTY:
                    turn.put(index, error)
            self._advance(turn, batch, now)

    # --- from the registry and the clock ----------------------------------------------------------------------------

    def resolve(self, turn: Turn, generation: Generation, now: float) -> None:
        """A source was described, or will not be: look again for the names nobody declared."""
        unresolved, turn.unresolved = turn.unresolved, []
        self._plan(turn, generation, unresolved, now)

    def due(self, turn: Turn, now: float) -> None:
        """The caller's deadline passed. A closing turn ends by itself, soon and with a better reason."""
        if turn.state in ("waiting", "running"):
            self.fail(turn, failures.turn_timeout(turn.deadline or 0.0), now)

    def begin_drain(self, now: float) -> None:
        """Take no new turns; those that are not submitted end now, for nothing of theirs was sent."""
        self.draining = True
        for turn in [turn for turn in self.open.values() if turn.state == "streaming"]:
            self.fail(turn, failures.draining(running=False), now)

    def fail_all(self, now: float) -> None:
        """The coordinator ends now."""
        self.draining = True
        for turn in list(self.open.values()):
            if turn.state != "ended":
                self.fail(turn, failures.draining(running=True), now)

    # --- ends -------------------------------------------------------------------------------------------------------

    def fail(self, turn: Turn, failure: Failure, now: float) -> None:
        """End `turn` with `failure` (its ledger is added here) and take back what still runs."""
        if turn.state == "closing" and turn.later is not None and failure.cause is None:
            failure = msgspec.structs.replace(failure, cause=turn.later)
        self._drop_all(turn, now)
        if not turn.deserted:
            ledger = turn.ledger()
            self._emit(FailTurn(turn.client, turn.id, msgspec.structs.replace(failure, ledger=ledger)))
        self._shared.count_failure(failure.code)
        if turn.state == "streaming":
            self._streaming -= 1
        self._end(turn, now)

    def _finish(self, turn: Turn, now: float) -> None:
        if not turn.deserted:
            self._emit(FinishTurn(turn.client, turn.id, turn.take_rest(), tuple(turn.records)))
        self._shared.turns_finished += 1
        self._end(turn, now)

    def _end(self, turn: Turn, now: float) -> None:
        outcome = turn.cancel_outcome()
        turn.to("ended", now)
        if turn.alarm is not None:
            self._alarms.disarm(turn)
        number = turn.id
        del self.open[number]
        mine = self._by_client[turn.client]
        del mine[number]
        if not mine:
            del self._by_client[turn.client]
        self._ended[number] = outcome
        self._ended_order.append(number)
        if len(self._ended_order) > ENDED_MAX:
            del self._ended[self._ended_order.popleft()]
        if turn.askers:
            for asker in turn.askers:
                self._emit(ConfirmCancel(asker, number, outcome))
        self._asked.pop(number, None)
        self._let_go(turn, now)
        turn.free()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _begin(self, number: str, client: Any, session: str | None, state: TurnState, now: float) -> Turn:
        turn = Turn(number, client, session, state, now)
        self.open[number] = turn
        mine = self._by_client.get(client)
        if mine is None:
            self._by_client[client] = {number: turn}
        else:
            mine[number] = turn
        self._shared.turns_opened += 1
        return turn

    def _refuse_duplicate(self, event: TurnSubmitted) -> None:
        # The ledger says not_sent: nothing of this submission ran; the other turn of that id has its own account.
        ledger = tuple(LedgerEntry(i, c.id, c.tool, None, "not_sent") for i, c in enumerate(event.calls))
        failure = msgspec.structs.replace(failures.duplicate(event.turn), ledger=ledger)
        self._shared.count_failure(failure.code)
        self._emit(FailTurn(event.client, event.turn, failure))

    def _refusal(self, event: TurnSubmitted) -> Failure | None:
        if self.draining:
            return failures.draining(running=False)
        if event.defects and event.on_defect != "run":
            return failures.defective(event.defects)
        if event.deadline is not None and event.deadline <= 0:
            return failures.turn_timeout(event.deadline)
        return None

    def _plan(self, turn: Turn, generation: Generation, indexes: Iterable[int], now: float) -> None:
        """Give each of these calls its place: a batch, an error in its slot, or a wait for discovery."""
        calls = turn.calls
        groups, unknown, errors = _sort(turn, generation, indexes)
        for pool in groups:
            refusal = self._dispatch.refusal(pool, turn.session, now)
            if refusal is not None:
                self.fail(turn, refusal, now)
                return
        if unknown:
            if generation.discovering():
                if not self._await_discovery(turn, generation, unknown, now):
                    return
            else:
                for i in unknown:
                    turn.put(i, generation.unknown(calls[i].tool))
                errors += unknown
        if errors and turn.stream and (groups or turn.pending or turn.unresolved):
            self._report(turn, errors)
        batches = [self._dispatch.make(turn, pool, tuple(group), now) for pool, group in groups.items()]
        for batch in batches:
            if batch.state == "queued" and turn.state != "ended":
                self._dispatch.submit(batch, now)
        if turn.unresolved or turn.state == "ended":
            return
        if turn.generation is not None:
            self._let_go(turn, now)
        if not turn.pending:
            self._finish(turn, now)

    def _await_discovery(self, turn: Turn, generation: Generation, unknown: list[int], now: float) -> bool:
        """Wait for sources that may declare these names. False: too many turns do, and this one was refused."""
        if turn.id not in generation.waiting and len(generation.waiting) >= UNRESOLVED_MAX:
            message = f"{UNRESOLVED_MAX} turns wait for sources that are still starting"
            self.fail(turn, Failure(code="overloaded", message=message, retry_after=1.0), now)
            return False
        turn.unresolved = unknown
        generation.waiting[turn.id] = turn
        if turn.generation is None:
            turn.generation = generation
            generation.holders += 1
        return True

    def _let_go(self, turn: Turn, now: float) -> None:
        """The turn looks no more names up."""
        generation = turn.generation
        if generation is not None:
            turn.generation = None
            generation.waiting.pop(turn.id, None)
            generation.holders -= 1
            if not generation.holders:
                self.publishing.unheld(generation, now)

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

    def _report(self, turn: Turn, indexes: list[int]) -> None:
        fresh = turn.take_new(indexes)
        if fresh:
            self._emit(ReportResults(turn.client, turn.id, fresh))

    def _advance(self, turn: Turn, batch: Batch, now: float) -> None:
        """`batch` is over and its slots are filled, or the turn is closing."""
        if turn.state == "closing":
            if turn.awaited is None and not turn.pending:
                self.fail(turn, failures.cancelled(turn.cancel_outcome()), now)
        elif turn.state == "ended":
            return
        elif not turn.pending and not turn.unresolved:
            self._finish(turn, now)
        elif turn.stream:
            self._report(turn, list(batch.indexes))

    def _cancel(self, turn: Turn, now: float) -> None:
        if turn.state == "streaming":
            turn.outcome = "stopped"
            self.fail(turn, failures.cancelled("stopped"), now)
            return
        turn.to("closing", now)
        self._drop_all(turn, now)
        if not turn.pending:
            self.fail(turn, failures.cancelled(turn.cancel_outcome()), now)

    def _drop_all(self, turn: Turn, now: float) -> None:
        for batch in turn.batches:
            if batch.state in ("queued", "sent"):
                self._dispatch.drop(batch, now)

    def _on_crash(self, turn: Turn, pool: Pool) -> str:
        return turn.on_crash or pool.spec.on_crash

    def _may_retry(self, batch: Batch, worker: Worker) -> bool:
        """Once, if running it twice is harmless, it is not why we killed the worker, and no session's state is lost."""
        if batch.attempt or batch.culprit or worker.doom in ("stop", "drain") or self.draining:
            return False
        if batch.pool.spec.affinity != "none" and batch.turn.session is not None:
            return False
        tools = batch.pool.index
        return all(tools[call.tool].idempotent for call in batch.calls)

    def _retry(self, batch: Batch, now: float) -> None:
        turn, pool = batch.turn, batch.pool
        rest = tuple([i for i in batch.indexes if turn.results[i] is EMPTY])
        if not rest:
            self._advance(turn, batch, now)
            return
        if not pool.is_up() and pool.restarts.is_resting(now):
            self.fail(turn, failures.unavailable(pool, now), now)
            return
        again = self._dispatch.make(turn, pool, rest, now)
        again.attempt = batch.attempt + 1
        self._shared.retries += 1
        self._dispatch.submit(again, now, again=True)


def _sort(
    turn: Turn, generation: Generation, indexes: Iterable[int]
) -> tuple[dict[Pool, list[int]], list[int], list[int]]:
    """The calls by source, in call order; those with an unknown name; those that got an error in their slot."""
    calls, index = turn.calls, generation.index
    groups: dict[Pool, list[int]] = {}
    unknown: list[int] = []
    errors: list[int] = []
    for i in indexes:
        call = calls[i]
        if call.defect is not None:
            turn.put(i, failures.defective_call(call))
            errors.append(i)
            continue
        pool = index.get(call.tool)
        if pool is None:
            unknown.append(i)
            continue
        group = groups.get(pool)
        if group is None:
            groups[pool] = [i]
        else:
            group.append(i)
    return groups, unknown, errors


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
