"""From a submitted turn to its batches: which source gets which calls.

Owns the decision what becomes of each call when its turn is submitted, or when a source it waited for was described.
Must not know what happens to a batch afterwards.

All sources of a turn are asked for admission before the first batch is sent, so a turn that is refused for one source
has run nowhere and may be sent again safely.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from toolsd.core import failures
from toolsd.core.dispatch import Dispatch
from toolsd.core.events import TurnSubmitted
from toolsd.core.instructions import FailTurn
from toolsd.core.pool import Pool
from toolsd.core.registry import Generation
from toolsd.core.shared import Shared
from toolsd.core.turn import EMPTY, Turn
from toolsd.core.turns import Turns
from toolsd.errors import Failure, LedgerEntry

if TYPE_CHECKING:
    from toolsd.core.publishing import Publishing

# How many turns may wait for sources that are still being discovered.
UNRESOLVED_MAX = 1_024


class Planning:
    """See the module. `publishing` is set once by the coordinator."""

    publishing: Publishing

    def __init__(self, shared: Shared, dispatch: Dispatch, turns: Turns) -> None:
        self._shared = shared
        self._dispatch = dispatch
        self._turns = turns

    def on_submitted(self, event: TurnSubmitted, now: float) -> None:
        turn = self._turns.accept(event.turn, event.client, event.session, now)
        if turn is None:
            self._refuse_duplicate(event)
            return
        turn.calls = event.calls
        turn.results = [EMPTY] * len(event.calls)
        turn.left = len(event.calls)
        turn.stream = event.stream
        turn.orphaned = event.orphaned
        turn.on_crash = event.on_crash
        refusal = self._refusal(event)
        if refusal is not None:
            self._turns.fail(turn, refusal, now)
            return
        if event.deadline is not None:
            turn.deadline = event.deadline
            turn.deadline_at = now + event.deadline
            self._shared.alarms.arm(turn, turn.deadline_at)
        self._plan(turn, turn.generation or self.publishing.current, range(len(event.calls)), now)

    def resolve(self, turn: Turn, generation: Generation, now: float) -> None:
        """A source was described, or will not be: look again for the names nobody declared."""
        unresolved, turn.unresolved = turn.unresolved, []
        self._plan(turn, generation, unresolved, now)

    def _refuse_duplicate(self, event: TurnSubmitted) -> None:
        # The ledger says not_sent: nothing of this submission ran; the other turn of that id has its own account.
        ledger = tuple(LedgerEntry(i, c.id, c.tool, None, "not_sent") for i, c in enumerate(event.calls))
        failure = msgspec.structs.replace(failures.duplicate(event.turn), ledger=ledger)
        self._shared.count_failure(failure.code)
        self._shared.emit(FailTurn(event.client, event.turn, failure))

    def _refusal(self, event: TurnSubmitted) -> Failure | None:
        if self._turns.draining:
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
        for pool, group in groups.items():
            refusal = self._dispatch.refusal(pool, turn, group, now)
            if refusal is not None:
                self._turns.fail(turn, refusal, now)
                return
        if unknown and generation.discovering():
            if not self._await_discovery(turn, generation, unknown, now):
                return
        elif unknown:
            answers = generation.unknown(calls[i].tool for i in unknown)
            for i in unknown:
                turn.put(i, answers[calls[i].tool])
            errors += unknown
        if errors and turn.stream and (groups or turn.pending or turn.unresolved):
            self._turns.report(turn, errors)
        batches = [self._dispatch.make(turn, pool, tuple(group), now) for pool, group in groups.items()]
        for batch in batches:
            if batch.state == "queued" and turn.state != "ended":
                self._dispatch.submit(batch, now)
        if turn.unresolved or turn.state == "ended":
            return
        if turn.generation is not None:
            self._turns.let_go(turn, now)
        if not turn.pending:
            self._turns.finish(turn, now)

    def _await_discovery(self, turn: Turn, generation: Generation, unknown: list[int], now: float) -> bool:
        """Wait for sources that may declare these names. False: too many turns do, and this one was refused."""
        if turn.id not in generation.waiting and len(generation.waiting) >= UNRESOLVED_MAX:
            message = f"{UNRESOLVED_MAX} turns wait for sources that are still starting"
            self._turns.fail(turn, Failure(code="overloaded", message=message, retry_after=1.0), now)
            return False
        turn.unresolved = unknown
        generation.waiting[turn.id] = turn
        if turn.generation is None:
            turn.generation = generation
            generation.holders += 1
        return True


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
