"""All turns: opened, cancelled, ended.

Owns every turn that has not ended, and a bounded memory of the ids of those that have. Must not know how calls become
batches (`Planning`) nor what workers answer (`Answers`).

How a turn ends, each exactly once: `FinishTurn` when every slot is filled; `FailTurn` otherwise; nothing at all when
its client is gone. When a turn fails, its batches on other sources are taken from their queues or *cancelled* (and
killed after the source's grace): nobody can use their results, and work that goes on unseen is what callers fear.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from toolsd.core import failures
from toolsd.core.batch import Batch
from toolsd.core.dispatch import Dispatch
from toolsd.core.events import CancelRequested, ClientGone, NamesSeen
from toolsd.core.fleet import Fleet
from toolsd.core.instructions import ConfirmCancel, FailTurn, FinishTurn, ReportResults
from toolsd.core.model import CancelOutcome
from toolsd.core.shared import Shared
from toolsd.core.turn import Turn, TurnState
from toolsd.errors import Failure

if TYPE_CHECKING:
    from toolsd.core.publishing import Publishing

# How many ended turns are remembered by id, so that a second use of one is refused.
ENDED_MAX = 10_000
# How many turns may be open without being submitted; beyond that a stream still warms its sources.
STREAMING_MAX = 10_000


class Turns:
    """See the module. `publishing` is set once by the coordinator. `draining`: new turns are refused."""

    publishing: Publishing

    def __init__(self, shared: Shared, dispatch: Dispatch, fleet: Fleet) -> None:
        self._shared = shared
        self._emit = shared.emit
        self._alarms = shared.alarms
        self._dispatch = dispatch
        self._fleet = fleet
        self._by_client: dict[Any, dict[str, Turn]] = {}
        self._ended: dict[str, CancelOutcome] = {}
        self._ended_order: deque[str] = deque()
        self._asked: dict[str, Turn] = {}
        self._streaming = 0
        self.open: dict[str, Turn] = {}
        self.draining = False

    # --- from clients ---

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

    # --- from the clock and the operator ---

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

    # --- the way of one turn ---

    def accept(self, number: str, client: Any, session: str | None, now: float) -> Turn | None:
        """The turn that was submitted now, new or streaming before; `None` if its id is, or was, another one's."""
        turn = self.open.get(number)
        if turn is None:
            return None if number in self._ended else self._begin(number, client, session, "waiting", now)
        if turn.state != "streaming" or turn.client != client:
            return None
        self._streaming -= 1
        turn.to("waiting", now)
        if session is not None:
            turn.session = session
        return turn

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

    def report(self, turn: Turn, indexes: list[int]) -> None:
        """Tell the client of a streaming turn which of these calls have a result it does not know yet."""
        fresh = turn.take_new(indexes)
        if fresh:
            self._emit(ReportResults(turn.client, turn.id, fresh))

    def advance(self, turn: Turn, batch: Batch, now: float) -> None:
        """`batch` is over and its slots are filled, or the turn is closing."""
        if turn.state == "closing":
            if turn.awaited is None and not turn.pending:
                self.fail(turn, failures.cancelled(turn.cancel_outcome()), now)
        elif turn.state == "ended":
            return
        elif not turn.pending and not turn.unresolved:
            self.finish(turn, now)
        elif turn.stream:
            self.report(turn, list(batch.indexes))

    def let_go(self, turn: Turn, now: float) -> None:
        """The turn looks no more names up."""
        generation = turn.generation
        if generation is not None:
            turn.generation = None
            generation.waiting.pop(turn.id, None)
            generation.holders -= 1
            if not generation.holders:
                self.publishing.unheld(generation, now)

    def drop_all(self, turn: Turn, now: float) -> None:
        """Take back every batch of `turn` that is queued or runs."""
        for batch in turn.batches:
            if batch.state in ("queued", "sent"):
                self._dispatch.drop(batch, now)

    def _cancel(self, turn: Turn, now: float) -> None:
        if turn.state == "streaming":
            turn.outcome = "stopped"
            self.fail(turn, failures.cancelled("stopped"), now)
            return
        turn.to("closing", now)
        self.drop_all(turn, now)
        if not turn.pending:
            self.fail(turn, failures.cancelled(turn.cancel_outcome()), now)

    def fail(self, turn: Turn, failure: Failure, now: float) -> None:
        """End `turn` with `failure` (its ledger is added here) and take back what still runs."""
        if turn.state == "closing" and turn.later is not None and failure.cause is None:
            failure = msgspec.structs.replace(failure, cause=turn.later)
        self.drop_all(turn, now)
        if not turn.deserted:
            ledger = turn.ledger()
            self._emit(FailTurn(turn.client, turn.id, msgspec.structs.replace(failure, ledger=ledger)))
        self._shared.count_failure(failure.code)
        if turn.state == "streaming":
            self._streaming -= 1
        self._end(turn, now)

    def finish(self, turn: Turn, now: float) -> None:
        """End `turn` well: every slot is filled."""
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
        self.let_go(turn, now)
        turn.free()
