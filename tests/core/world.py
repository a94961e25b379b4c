"""A world around the core that never trusts it: a node, workers and clients that check every instruction they get.

Owns what is true outside: which processes live, what was sent to whom, what every client was told. `check_inside`
looks at the core's own books.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolsd.core.coordinator import Coordinator
from toolsd.core.events import Event, RegistryPublished, TurnSubmitted
from toolsd.core.instructions import (
    CancelBatch,
    ConfirmCancel,
    Drained,
    FailTurn,
    FinishTurn,
    Instruction,
    KillWorker,
    Note,
    ReloadEnded,
    ReportProgress,
    ReportResults,
    SendBatch,
    StartWorker,
    StopWorker,
)
from toolsd.core.model import Recycle, Restart, SourceSpec, ToolSpec
from toolsd.core.turn import EMPTY
from toolsd.errors import SlotError

TOOLS = {name: tuple(ToolSpec(f"{name}_{i}", idempotent=i == 2) for i in range(3)) for name in "abc"}
IDEMPOTENT = {tool.name for tools in TOOLS.values() for tool in tools if tool.idempotent}
OWNER = {tool.name: name for name, tools in TOOLS.items() for tool in tools}


@dataclass
class Process:
    number: int
    source: str
    max_batches: int
    state: str = "starting"  # starting, ready, failed
    capacity: int = 1
    asked: str | None = None  # stop, or the reason of a kill
    batches: dict[int, SendBatch] = field(default_factory=dict)
    filled: dict[int, set[int]] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)


@dataclass
class Told:
    client: Any
    calls: tuple[Any, ...] | None = None
    stream: bool = False
    reported: dict[int, Any] = field(default_factory=dict)
    ended: bool = False
    sent: dict[int, int] = field(default_factory=dict)  # call index -> how often


class World:
    def __init__(self) -> None:
        self.core = Coordinator(jitter=lambda: 0.5)
        self.now = 100.0
        self.processes: dict[int, Process] = {}
        self.dead: list[int] = []
        self.turns: dict[str, Told] = {}
        self.gone: set[Any] = set()
        self.replicas: dict[str, int] = {}
        self.seen_workers: set[int] = set()
        self.seen_batches: set[int] = set()
        self.old_batches: list[tuple[int, int]] = []
        self.owed: list[tuple[Any, str]] = []
        self.drained = 0
        self.reloads = -1  # that are not answered; the first publication is none

    def post(self, event: Event) -> list[Instruction]:
        if isinstance(event, TurnSubmitted) and event.turn not in self.turns:
            self.turns[event.turn] = Told(event.client)
        if isinstance(event, TurnSubmitted):
            told = self.turns[event.turn]
            if told.calls is None and not told.ended and told.client == event.client:
                told.calls, told.stream = event.calls, event.stream
        self.reloads += isinstance(event, RegistryPublished)
        said = self.core.handle(event, self.now)
        for instruction in said:
            getattr(self, f"_on_{type(instruction).__name__}")(instruction)
        self.check_inside()
        return said

    # --- the node ---

    def _on_StartWorker(self, said: StartWorker) -> None:
        assert said.worker not in self.seen_workers
        assert not self.drained
        self.seen_workers.add(said.worker)
        self.processes[said.worker] = Process(said.worker, said.source, said.max_batches)
        live = sum(1 for p in self.processes.values() if p.source == said.source)
        assert live <= self.replicas[said.source] + 1, f"{live} processes of {said.source}"

    def _on_StopWorker(self, said: StopWorker) -> None:
        process = self.processes[said.worker]
        assert process.asked is None and not process.batches
        process.asked = "stop"

    def _on_KillWorker(self, said: KillWorker) -> None:
        process = self.processes[said.worker]
        assert process.asked in (None, "stop")
        process.asked = said.reason

    def _on_SendBatch(self, said: SendBatch) -> None:
        process = self.processes[said.worker]
        assert process.state == "ready" and process.asked is None
        assert said.batch not in self.seen_batches
        assert len(process.batches) < process.capacity
        assert 0 <= said.region < process.max_batches
        assert said.region not in {b.region for b in process.batches.values()}
        assert said.calls
        told = self.turns[said.turn]
        assert not told.ended and told.calls is not None
        indexes = [int(c.id) for c in said.calls]
        assert indexes == sorted(indexes) and all(told.calls[i] == c for i, c in zip(indexes, said.calls, strict=True))
        assert {OWNER[c.tool] for c in said.calls} == {process.source}
        first = not any(i in told.sent for i in indexes)
        if first:
            mine = [i for i, c in enumerate(told.calls) if OWNER.get(c.tool) == process.source and c.defect is None]
            assert indexes == mine, "all calls of a source go in one batch"
        for i, c in zip(indexes, said.calls, strict=True):
            told.sent[i] = told.sent.get(i, 0) + 1
            assert told.sent[i] <= (2 if c.tool in IDEMPOTENT else 1), "sent twice"
        assert said.deadline is None or said.deadline > 0
        self.seen_batches.add(said.batch)
        process.batches[said.batch] = said
        process.filled[said.batch] = set()

    def unsend(self, batch: SendBatch) -> None:
        """The batch did not leave the node."""
        sent = self.turns[batch.turn].sent
        for index in (int(c.id) for c in batch.calls):
            sent[index] -= 1
            if not sent[index]:
                del sent[index]

    def _on_CancelBatch(self, said: CancelBatch) -> None:
        process = self.processes[said.worker]
        assert said.batch in process.batches and said.batch not in process.cancelled and process.asked is None
        process.cancelled.add(said.batch)

    # --- the clients ---

    def _told(self, said: Any) -> Told:
        assert said.client not in self.gone
        told = self.turns[said.turn]
        assert told.client == said.client and not told.ended
        return told

    def _on_ReportResults(self, said: ReportResults) -> None:
        told = self._told(said)
        assert told.stream and said.results
        self._take(told, said.turn, said.results)

    def _on_ReportProgress(self, said: ReportProgress) -> None:
        told = self._told(said)
        assert told.stream and told.calls is not None and 0 <= said.index < len(told.calls)

    def _on_FinishTurn(self, said: FinishTurn) -> None:
        told = self._told(said)
        self._take(told, said.turn, said.results)
        assert told.calls is not None and told.reported.keys() == set(range(len(told.calls)))
        told.ended = True

    def _on_FailTurn(self, said: FailTurn) -> None:
        assert said.client not in self.gone
        told = self.turns[said.turn]
        failure = said.failure
        if failure.code == "duplicate_turn":
            return
        assert told.client == said.client and not told.ended
        told.ended = True
        calls = told.calls or ()
        assert [(e.index, e.tool) for e in failure.ledger] == [(i, c.tool) for i, c in enumerate(calls)]
        for entry in failure.ledger:
            assert (entry.state == "not_sent") == (entry.index not in told.sent), entry
        if failure.retry == "safe":
            assert not told.sent
        assert failure.code not in ("internal_error", "turn_failed")

    def _on_ConfirmCancel(self, said: ConfirmCancel) -> None:
        assert said.client not in self.gone
        self.owed.remove((said.client, said.turn))
        assert said.outcome is None or said.turn in self.turns

    def _on_Note(self, said: Note) -> None:
        assert said.message

    def _on_ReloadEnded(self, said: ReloadEnded) -> None:
        self.reloads -= 1
        assert self.reloads >= 0 and said.generation

    def _on_Drained(self, said: Drained) -> None:
        assert not self.drained
        self.drained += 1

    def _take(self, told: Told, turn: str, results: tuple[tuple[int, Any], ...]) -> None:
        assert [i for i, _ in results] == sorted({i for i, _ in results}), "in call order, each once"
        for index, outcome in results:
            assert index not in told.reported
            told.reported[index] = outcome
            assert isinstance(outcome, SlotError) or outcome == f"{turn}/{index}", "the result of another call"

    # --- inside ---

    def check_inside(self) -> None:
        core = self.core
        fleet, turns = core._fleet, core._turns
        pools = [pool for family in fleet.pools.values() for pool in family]
        for pool in pools:
            workers = [w for w in fleet.workers.values() if w.pool is pool]
            assert pool.live == len(workers)
            assert pool.batches == len(pool.queue) + sum(len(w.batches) for w in workers)
            assert all(b.state == "queued" for b in pool.queue)
            assert pool.queue.size == sum(b.size for b in pool.queue)
            assert sum(1 for b in pool.queue if not b.attempt) <= pool.spec.queue_turns
            for worker in pool.seats:
                if worker is not None:
                    assert worker.state in ("starting", "ready") or worker.ready_at is None
                    waiting = [b for b in pool.queue if b.seat in (None, worker.seat)]
                    assert not (worker.room and waiting), "a worker has room and a batch waits"
            assert pool.spare is None or (pool.spare.state in ("starting", "dying") and pool.seats[pool.spare.seat])
            assert pool.spare not in pool.seats or pool.spare is None
            for worker in workers:
                if worker.state == "ready" and worker.retired:
                    assert worker.batches and not worker.room and worker not in pool.seats
                elif worker.state == "ready":
                    capacity = len(worker.room) + len(worker.batches)
                    assert capacity == self.processes[worker.id].capacity
                    regions = worker.room + [b.region for b in worker.batches.values()]
                    assert sorted(regions) == list(range(capacity))
            if pool.queue and not pool.is_up() and not fleet.halted:
                family = fleet.pools[pool.name]
                full = sum(p.live for p in family) > max(len(p.seats) for p in family)
                assert pool.alarm is not None or full, "nobody will ever come"
        for turn in turns.open.values():
            assert turn.state != "ended"
            assert turn.left == sum(1 for r in turn.results if r is EMPTY)
            assert turn.pending == sum(1 for b in turn.batches if b.state != "over")
            if turn.state in ("waiting", "running"):
                assert turn.pending or turn.unresolved
            if turn.state == "closing" and turn.awaited is None:
                assert turn.pending
        for generation in {turn.generation for turn in turns.open.values()} - {None}:
            assert generation.holders == sum(1 for t in turns.open.values() if t.generation is generation)
        assert turns._streaming == sum(1 for t in turns.open.values() if t.state == "streaming")
        assert sum(len(mine) for mine in turns._by_client.values()) == len(turns.open)
        assert len(core._shared.alarms) <= 200 + 4 * (len(turns.open) + len(fleet.workers) + len(pools))

    def is_clean(self) -> bool:
        """Whether nothing is left in the core's books."""
        core = self.core
        return not core._turns.open and not core._fleet.workers and not core._turns._asked


def source(name: str, variant: int) -> SourceSpec:
    """One of a few configurations of a source; the number of replicas does not vary, so that the bound is clear."""
    return SourceSpec(
        name,
        launch=variant,
        replicas={"a": 1, "b": 2, "c": 3}[name],
        start=("lazy", "eager")[(variant + ord(name)) % 2],
        affinity=("session", "none", "session", "none")[variant] if name != "a" else "none",
        max_batches=1 if name == "a" else 2,
        batch_timeout=20.0 + variant,
        queue_turns=3,
        queue_wait=None if variant == 3 else 15.0,
        on_crash=("fail_turn", "fail_calls")[variant // 2 % 2],
        recycle=(Recycle(), Recycle(turns=2), Recycle(age=25.0), Recycle(rss=1000))[variant],
        restart=Restart(max=2, within=60.0, cool_down=20.0, stable_after=5.0),
    )
