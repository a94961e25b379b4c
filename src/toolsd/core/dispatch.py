"""Batches on their way: admitted, queued, placed, taken back.

Owns the way of a batch from its making to its end on a living worker. Must not know why a turn ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from toolsd.core import failures
from toolsd.core.batch import Batch
from toolsd.core.instructions import CancelBatch, SendBatch
from toolsd.core.model import Call
from toolsd.core.pool import Pool
from toolsd.core.replica import Worker
from toolsd.core.shared import Shared
from toolsd.core.turn import Turn
from toolsd.errors import Failure

if TYPE_CHECKING:
    from toolsd.core.fleet import Fleet
    from toolsd.core.turns import Turns

# How many turns one client may have waiting for each place of the queue that is still free.
_SHARE = 3


class Dispatch:
    """Sends batches to workers. `fleet` and `turns` are set once by the coordinator."""

    fleet: Fleet
    turns: Turns

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._emit = shared.emit
        self._alarms = shared.alarms
        self._numbers = 0

    def make(self, turn: Turn, pool: Pool, indexes: tuple[int, ...], now: float) -> Batch:
        """A new batch of `turn` with a number of its own; it is not submitted yet."""
        self._numbers += 1
        batch = Batch(self._numbers, turn, pool, indexes, now)
        turn.batches.append(batch)
        turn.pending += 1
        return batch

    def refusal(self, pool: Pool, turn: Turn, indexes: Iterable[int], now: float) -> Failure | None:
        """Why a batch of these calls cannot be taken by `pool` now, asked for all sources of a turn before any is sent.

        A client may have as many turns waiting as `_SHARE` times the places that are free. So whoever floods a queue
        leaves some of it to others, however many flood it (dynamic thresholds, as in shared-memory switches).
        """
        session = turn.session
        if session is None or pool.spec.affinity == "none":
            if pool.has_room():
                return None
        else:
            if turn.orphaned:
                return failures.state_lost(pool, session)
            held = pool.pins.get(session)
            if held is not None and pool.seated(held) is None:
                del pool.pins[session]
                return failures.state_lost(pool, session)
            seat = pool.seat_for(session, now)
            worker = None if seat is None else pool.seats[seat]
            if worker is not None and worker.room:
                return None
        if not pool.is_up() and pool.restarts.is_resting(now):
            return failures.unavailable(pool, now)
        queue, spec = pool.queue, pool.spec
        free = spec.queue_turns - len(queue)
        if free <= 0:
            return failures.overloaded(pool, "as many as its queue holds (queue.turns)")
        if queue.held(turn.client) >= _SHARE * free:
            mine = f"{queue.held(turn.client)} of them this client's, and keeps the other {free} places for others"
            return failures.overloaded(pool, f"{mine} (queue.turns)")
        if queue and queue.size + _size(turn.calls[i] for i in indexes) > spec.queue_bytes:
            return failures.overloaded(pool, f"with {queue.size} bytes of arguments, and takes no more (queue.bytes)")
        return None

    def submit(self, batch: Batch, now: float, *, again: bool = False) -> None:
        """Place `batch` at once, or queue it and see that a worker comes. `again`: it had its place in the queue."""
        pool = batch.pool
        pool.batches += 1
        if pool.spec.affinity != "none":
            batch.pin = pool.holder(batch.turn.session)
            batch.seat = pool.seat_for(batch.turn.session, now)
        worker = pool.pick(batch)
        if worker is not None:
            self._send(worker, batch, now)
            return
        batch.size = _size(batch.calls)
        if again:
            pool.queue.push_front(batch)
        else:
            pool.queue.push(batch)
        if pool.spec.queue_wait is not None:
            self._alarms.arm(pool, now + pool.spec.queue_wait)
        self.fleet.fill(pool, now)

    def pump(self, worker: Worker, now: float) -> None:
        """Give `worker` what waits, as long as it has room."""
        queue = worker.pool.queue
        while worker.room and queue:
            batch = queue.pop_for(worker)
            if batch is None:
                return
            self._send(worker, batch, now)

    def over(self, batch: Batch, now: float) -> None:
        """`batch` ended on its living worker; its place goes to the next."""
        worker, pool = batch.worker, batch.pool
        assert worker is not None
        del worker.batches[batch.id]
        worker.proven = True
        worker.turns_left -= 1
        if not worker.retired:
            worker.room.append(batch.region)
            if not worker.turns_left:
                self.fleet.tire(worker, now)
        elif not worker.batches:
            self.fleet.stop(worker, now)
        batch.to("over")
        batch.turn.story.append((now, "batch over", batch.id))
        pool.batches -= 1
        pool.learn(now - batch.sent_at)
        if pool.queue:
            self.pump(worker, now)
        if pool.is_leaving():
            self.fleet.dismiss(pool, now)

    def drop(self, batch: Batch, now: float) -> None:
        """Nobody wants the rest of `batch`: take it from the queue, or ask its worker to stop it."""
        pool, worker = batch.pool, batch.worker
        if batch.state == "queued":
            pool.queue.remove(batch)
            batch.to("over")
            pool.batches -= 1
            batch.turn.pending -= 1
            if pool.is_leaving():
                self.fleet.dismiss(pool, now)
        elif batch.state == "sent" and worker is not None and worker.state == "ready":
            batch.to("cancelling")
            batch.kill_at = now + pool.spec.cancel_grace
            self._alarms.arm(worker, batch.kill_at)
            self._emit(CancelBatch(worker.id, batch.id))

    def fail_waiting(self, pool: Pool, make: Callable[[Batch], Failure], now: float) -> None:
        """Fail the turn of every queued batch."""
        for batch in list(pool.queue):
            # Failing one turn never touches another one's batch, but a turn may fail for its batch elsewhere.
            if batch.state == "queued":
                self.turns.fail(batch.turn, make(batch), now)

    def expire(self, pool: Pool, now: float) -> None:
        """Fail what waited longer than `queue_wait`. The wait begins anew when the source comes up, so that a slow
        start, which has a limit of its own, does not eat it."""
        wait = pool.spec.queue_wait
        if wait is None or not pool.queue:
            return
        on_its_way = pool.is_up() and not pool.is_ready()
        next_due = now + wait
        for batch in list(pool.queue):
            since = max(batch.queued_at, pool.up_since)
            if batch.state != "queued" or on_its_way:
                continue
            if since + wait <= now:
                self.turns.fail(batch.turn, failures.queue_timeout(pool, now - batch.queued_at), now)
            else:
                next_due = min(next_due, since + wait)
        if pool.queue:
            self._alarms.arm(pool, next_due)

    def reseat(self, pool: Pool, now: float) -> None:
        """A seat is empty, or another's: what waited for it moves, or learns that its session's state is lost."""
        if pool.spec.affinity == "none":
            return
        for batch in list(pool.queue):
            if batch.state != "queued" or batch.seat is None:
                continue
            seated = pool.seats[batch.seat]
            if seated is not None and batch.pin in (None, seated.id):
                continue
            session = batch.turn.session
            if batch.pin is not None and session is not None:
                if pool.pins.get(session) == batch.pin:
                    del pool.pins[session]
                self.turns.fail(batch.turn, failures.state_lost(pool, session), now)
            else:
                batch.seat = pool.seat_for(session, now)
        for worker in pool.seats:
            if worker is not None:
                self.pump(worker, now)

    def _send(self, worker: Worker, batch: Batch, now: float) -> None:
        turn, spec = batch.turn, batch.pool.spec
        batch.to("sent")
        batch.worker = worker
        batch.region = worker.room.pop()
        batch.sent_at = now
        worker.batches[batch.id] = batch
        turn.story.append((now, "batch sent", batch.id))
        limit = spec.batch_timeout
        if limit is not None:
            batch.due = now + limit
            self._alarms.arm(worker, batch.due)
        if turn.deadline_at is not None:
            left = turn.deadline_at - now
            limit = left if limit is None or left < limit else limit
        if spec.affinity != "none" and turn.session is not None:
            batch.pool.pin(turn.session, worker)
        if turn.state == "waiting":
            turn.to("running", now)
        self._shared.batches_sent += 1
        self._emit(SendBatch(worker.id, batch.id, turn.id, batch.calls, turn.session, limit, turn.stream, batch.region))


def _size(calls: Iterable[Call]) -> int:
    return sum(len(call.arguments) for call in calls)
