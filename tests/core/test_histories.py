"""Random histories: whatever happens, in whatever order, the promises of the core hold."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from core.world import OWNER, TOOLS, Process, World, source
from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    CancelRequested,
    ClientGone,
    DrainRequested,
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
from toolsd.core.instructions import SendBatch
from toolsd.core.model import Call, ExitReport
from toolsd.errors import Failure

NAMES = [*OWNER, *OWNER, "nobody"]
variants = st.integers(0, 3)
registries = st.dictionaries(st.sampled_from("abc"), variants, min_size=1)
pick = st.integers(0, 1_000)
rarely = st.sampled_from([True, False, False, False])


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.clients = 0
        self.ids = 0
        self.stubborn = False

    # --- helpers ---

    def _chosen(self, number: int, *states: str, asked: bool | None = False) -> Process | None:
        fitting = [
            p
            for p in self.world.processes.values()
            if p.state in states and (asked is None or (p.asked is not None) == asked)
        ]
        return fitting[number % len(fitting)] if fitting else None

    def _batch(self, number: int) -> tuple[Process, SendBatch] | None:
        running = [(p, b) for p in self.world.processes.values() for b in p.batches.values()]
        return running[number % len(running)] if running else None

    def _client(self, number: int) -> str:
        return f"client-{self.clients + number % 3}"

    def _outcome(self, batch: SendBatch, slot: int) -> str:
        return f"{batch.turn}/{batch.calls[slot].id}"

    def _end_batch(self, process: Process, batch: SendBatch) -> None:
        del process.batches[batch.batch]
        process.filled.pop(batch.batch)
        process.cancelled.discard(batch.batch)
        self.world.old_batches.append((process.number, batch.batch))

    # --- clients ---

    @initialize(registry=registries, settled=st.sampled_from([True, True, False]), stubborn=st.booleans())
    def begin(self, registry: dict[str, int], settled: bool, stubborn: bool) -> None:
        self.stubborn = stubborn
        self._publish(registry)
        if settled:
            self.all_ready(True)

    @rule(
        client=pick,
        tools=st.lists(st.sampled_from(NAMES), max_size=6),
        session=st.sampled_from([None, "s1", "s1", "s2"]),
        deadline=st.sampled_from([None, None, None, None, 0.0, 1.0, 30.0]),
        stream=st.booleans(),
        on_crash=st.none() | st.sampled_from(["fail_turn", "fail_calls"]),
        defect=st.integers(0, 9),
        streamed=pick,
    )
    def submit(  # noqa: PLR0917
        self,
        client: int,
        tools: list[str],
        session: Any,
        deadline: Any,
        stream: bool,
        on_crash: Any,
        defect: int,
        streamed: int,
    ) -> None:
        open_streams = [(n, t) for n, t in self.world.turns.items() if t.calls is None and not t.ended]
        if open_streams and streamed % 2:
            turn, told = open_streams[streamed % len(open_streams)]
            who = told.client
        else:
            self.ids += 1
            turn, who = f"t{self.ids}", self._client(client)
        calls = tuple(
            Call(str(i), tool, "{}", "unparseable_arguments" if i == defect else None) for i, tool in enumerate(tools)
        )
        self.world.post(TurnSubmitted(who, turn, calls, session, deadline, (), "refuse", on_crash, stream))

    @rule(client=pick, names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), again=pick)
    def names_seen(self, client: int, names: list[str], again: int) -> None:
        turns = list(self.world.turns)
        if turns and again % 3 == 0:
            turn = turns[again % len(turns)]
            who = self.world.turns[turn].client
            if who in self.world.gone:
                return
        else:
            self.ids += 1
            turn, who = f"t{self.ids}", self._client(client)
        before = turn in self.world.core._turns.open
        self.world.turns.setdefault(turn, type(self)._told(who))
        self.world.post(NamesSeen(who, turn, tuple(names)))
        if not before and turn not in self.world.core._turns.open and self.world.turns[turn].calls is None:
            del self.world.turns[turn]

    @staticmethod
    def _told(client: Any) -> Any:
        from core.world import Told

        return Told(client)

    @rule(number=pick, client=pick)
    def submit_again(self, number: int, client: int) -> None:
        used = [t for t, told in self.world.turns.items() if told.calls is not None or told.ended]
        if used:
            self.world.post(TurnSubmitted(self._client(client), used[number % len(used)], (Call("0", "a_0", "{}"),)))

    @rule(number=pick, client=pick)
    def cancel(self, number: int, client: int) -> None:
        turns = list(self.world.turns)
        turn = turns[number % len(turns)] if turns else "never"
        who = self._client(client)
        self.world.owed.append((who, turn))
        self.world.post(CancelRequested(who, turn))

    @rule(rarely=rarely)
    def client_gone(self, rarely: bool) -> None:
        if not rarely:
            return
        gone = f"client-{self.clients}"
        self.clients += 1
        self.world.gone.add(gone)
        self.world.owed = [(c, t) for c, t in self.world.owed if c != gone]
        for told in self.world.turns.values():
            if told.client == gone:
                told.ended = True
        self.world.post(ClientGone(gone))

    # --- workers that do as they should ---

    @rule(reentrant=st.booleans())
    def all_ready(self, reentrant: bool) -> None:
        for number in reversed(range(len(self.world.processes))):
            self.worker_ready(number, reentrant)

    @rule(number=pick, reentrant=st.booleans())
    def worker_ready(self, number: int, reentrant: bool) -> None:
        process = self._chosen(number, "starting", asked=None)
        if process is not None:
            process.state = "ready"
            process.capacity = process.max_batches if reentrant else 1
            self.world.post(WorkerStarted(process.number, 4000 + process.number))
            self.world.post(WorkerReady(process.number, TOOLS[process.source], reentrant))

    @rule(number=pick)
    def batch_finished(self, number: int) -> None:
        found = self._batch(number)
        if found is not None:
            self._finish(*found)

    def _finish(self, process: Process, batch: SendBatch) -> None:
        rest = [s for s in range(len(batch.calls)) if s not in process.filled[batch.batch]]
        self._end_batch(process, batch)
        results = tuple((s, self._outcome(batch, s)) for s in reversed(rest))
        self.world.post(BatchFinished(process.number, batch.batch, results))

    @rule(number=pick, slot=pick)
    def slot_filled(self, number: int, slot: int) -> None:
        found = self._batch(number)
        if found is not None:
            process, batch = found
            slot %= len(batch.calls)
            process.touched.add(batch.batch)
            self.world.post(ProgressReported(process.number, batch.batch, slot, "half"))
            if slot not in process.filled[batch.batch] and batch.batch in process.batches:
                process.filled[batch.batch].add(slot)
                self.world.post(SlotsFilled(process.number, batch.batch, ((slot, self._outcome(batch, slot)),)))

    @rule(number=pick)
    def batch_stops(self, number: int) -> None:
        found = self._batch(number)
        if found is not None and found[1].batch in found[0].cancelled:
            self._end_batch(*found)
            self.world.post(BatchFailed(found[0].number, found[1].batch, Failure("turn_cancelled", "stopped")))

    @rule(number=pick)
    def worker_leaves(self, number: int) -> None:
        asked = [p for p in self.world.processes.values() if p.asked is not None]
        if asked:
            process = asked[number % len(asked)]
            self._exit(process, ExitReport(signal="SIGKILL", reason=process.asked, states=self._record(process)))

    # --- workers that do not ---

    @rule(number=pick, code=st.sampled_from(["batch_raised", "results_incomplete", "turn_cancelled"]))
    def batch_failed(self, number: int, code: str) -> None:
        found = self._batch(number)
        if found is not None:
            process, batch = found
            self._end_batch(process, batch)
            self.world.post(BatchFailed(process.number, batch.batch, Failure(code, "no")))

    @rule(number=pick, slot=st.integers(-1, 7), finish=st.booleans())
    def wrong_slots(self, number: int, slot: int, finish: bool) -> None:
        found = self._batch(number)
        if found is not None:
            process, batch = found
            size = len(batch.calls)
            wrong = slot if not 0 <= slot < size or slot in process.filled[batch.batch] else size
            kind = BatchFinished if finish else SlotsFilled
            self._end_batch(process, batch)
            turn = self.world.core._turns.open.get(batch.turn)
            self.world.post(kind(process.number, batch.batch, ((wrong, "wrong"),)))
            if turn is None and not finish and process.asked is None:
                # The turn had ended, so nobody looked: the batch is still there.
                process.batches[batch.batch], process.filled[batch.batch] = batch, set()
                self.world.old_batches.pop()

    @rule(number=pick, rarely=rarely)
    def misbehave(self, number: int, rarely: bool) -> None:
        process = self._chosen(number, "starting", "ready", asked=None)
        if process is not None and rarely:
            self.world.post(WorkerMisbehaved(process.number, "garbage"))

    @rule(number=pick, started=st.booleans(), rarely=rarely)
    def start_failed(self, number: int, started: bool, rarely: bool) -> None:
        process = self._chosen(number, "starting", asked=None)
        if process is not None and rarely:
            if started:
                self.world.post(WorkerStarted(process.number, 4000 + process.number))
                process.state = "failed"
            elif process.asked is None:
                del self.world.processes[process.number]
                self.world.dead.append(process.number)
            self.world.post(WorkerStartFailed(process.number, "does not load"))

    @rule(number=pick, oom=st.booleans(), rarely=rarely, unsent=st.booleans())
    def crash(self, number: int, oom: bool, rarely: bool, unsent: bool) -> None:
        busy = [p for p in self.world.processes.values() if p.batches]
        processes = busy or list(self.world.processes.values())
        if processes and (busy or rarely):
            process = processes[number % len(processes)]
            proof = "memory.events" if oom else None
            record = self._record(process)
            if unsent:
                # It was dead before these were handed over, and the node says so.
                for batch in process.batches.values():
                    if batch.batch not in process.touched and batch.batch not in process.cancelled:
                        record[batch.batch] = ("not_sent",) * len(batch.calls)
                        self.world.unsend(batch)
            self._exit(process, ExitReport(signal="SIGSEGV", oom=proof, states=record))

    def _record(self, process: Process) -> dict[int, Any]:
        return {
            batch: tuple("finished" if s in process.filled[batch] else "started" for s in range(len(sent.calls)))
            for batch, sent in list(process.batches.items())[:1]
        }

    def _exit(self, process: Process, report: ExitReport) -> None:
        del self.world.processes[process.number]
        self.world.dead.append(process.number)
        self.world.old_batches += [(process.number, batch) for batch in process.batches]
        self.world.post(WorkerExited(process.number, report))

    # --- events out of time ---

    @rule(number=pick, kind=st.integers(0, 8))
    def stale(self, number: int, kind: int) -> None:
        world = self.world
        dead = world.dead[number % len(world.dead)] if world.dead else 9_999
        worker, batch = world.old_batches[number % len(world.old_batches)] if world.old_batches else (9_999, 9_999)
        event = [
            WorkerStarted(dead, 1),
            WorkerReady(dead, TOOLS["a"]),
            WorkerStartFailed(dead, "late"),
            WorkerExited(dead, ExitReport(exit_code=0)),
            WorkerMisbehaved(dead, "late"),
            BatchFinished(worker, batch, ((0, "ghost"),)),
            BatchFailed(worker, batch, Failure("batch_raised", "ghost")),
            SlotsFilled(worker, batch, ((0, "ghost"),)),
            ProgressReported(worker, batch, 0, "ghost"),
        ][kind]
        before = world.core.snapshot().counters.stale
        assert world.post(event) == []
        assert world.core.snapshot().counters.stale == before + 1

    # --- the clock and the operator ---

    @rule(
        seconds=st.sampled_from([0.0, 0.001, 0.001, 0.3, 0.3, 2.0, 2.0, 3.0, 5.0, 16.0, 21.0, 400.0]),
        punctual=st.booleans(),
    )
    def time_passes(self, seconds: float, punctual: bool) -> None:
        world = self.world
        until = world.now + seconds
        while punctual and (due := world.core.next_deadline()) is not None and due <= until:
            world.now = max(world.now, due)
            world.post(TimePassed())
        world.now = until
        world.post(TimePassed())

    @rule(number=pick)
    def grow(self, number: int) -> None:
        process = self._chosen(number, "ready", asked=None)
        if process is not None:
            self.world.post(WorkerGrew(process.number, 2000))

    @rule(registry=registries, rarely=rarely)
    def reload(self, registry: dict[str, int], rarely: bool) -> None:
        if rarely:
            self._publish(registry)

    def _publish(self, registry: dict[str, int]) -> None:
        sources = tuple(source(name, variant) for name, variant in registry.items())
        for spec in sources:
            self.world.replicas[spec.name] = spec.replicas
        self.world.post(RegistryPublished(sources))

    @precondition(lambda self: self.ids > 10)
    @rule(timeout=st.sampled_from([0.0, 5.0]), now=st.integers(0, 9))
    def drain(self, timeout: float, now: int) -> None:
        if now == 0:
            self.world.post(DrainRequested(timeout))
        elif now == 1 and self.ids > 12:
            self.world.post(StopRequested())

    # --- the end ---

    def teardown(self) -> None:
        """Every submitted turn ends, be it that workers behave from now on or that they only ever die when killed;
        and a drain empties the books."""
        world = self.world
        for _ in range(40):
            self._carry_on(answering=not self.stubborn)
            self.time_passes(31.0, punctual=True)
        assert [t.turn for t in world.core.snapshot().turns if t.state != "streaming"] == []
        world.post(DrainRequested(1.0))
        for _ in range(5):
            self._carry_on(answering=not self.stubborn)
            self.time_passes(2.0, punctual=True)
        assert world.is_clean() and world.drained == 1
        assert all(told.ended for told in world.turns.values())
        assert world.owed == []
        assert all(not pool.queue for family in world.core._fleet.pools.values() for pool in family)

    def _carry_on(self, answering: bool) -> None:
        """Let workers do what they must until none has anything to do."""
        busy = True
        while busy:
            busy = False
            for process in list(self.world.processes.values()):
                if process.number not in self.world.processes:
                    continue
                if process.asked is not None or process.state == "failed":
                    self._exit(process, ExitReport(signal="SIGKILL", reason=process.asked))
                elif process.state == "starting":
                    process.state, process.capacity = "ready", 1
                    self.world.post(WorkerReady(process.number, TOOLS[process.source]))
                elif process.batches and answering:
                    self._finish(process, next(iter(process.batches.values())))
                else:
                    continue
                busy = True


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
