"""The lives of workers: started, ready, stopped, killed, dead.

Owns every incarnation and the bound on processes: per source name at most `replicas` + 1 are alive, whatever
generations they belong to. Must not know how a turn ends; it tells `Answers` which batches were lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsd.core import failures
from toolsd.core.dispatch import Dispatch
from toolsd.core.events import WorkerExited, WorkerGrew, WorkerMisbehaved, WorkerReady, WorkerStarted, WorkerStartFailed
from toolsd.core.instructions import KillReason, KillWorker, StartWorker, StopWorker
from toolsd.core.model import ExitReport
from toolsd.core.pool import Pool
from toolsd.core.registry import duplicate_tool
from toolsd.core.replica import Worker
from toolsd.core.shared import Shared
from toolsd.errors import Evidence, Failure

if TYPE_CHECKING:
    from toolsd.core.answers import Answers
    from toolsd.core.publishing import Publishing

# How long a killed worker's exit report is awaited before its turns end without that evidence, in seconds.
EVIDENCE_WAIT = 3.0


class Fleet:
    """All workers. `answers` and `publishing` are set once by the coordinator. `halted`: nothing more is started."""

    answers: Answers
    publishing: Publishing

    def __init__(self, shared: Shared, dispatch: Dispatch) -> None:
        self._shared = shared
        self._emit = shared.emit
        self._alarms = shared.alarms
        self._dispatch = dispatch
        self._numbers = 0
        self.workers: dict[int, Worker] = {}
        self.pools: dict[str, list[Pool]] = {}
        self.halted = False

    # --- wanting, starting, stopping ---

    def adopt(self, pool: Pool) -> None:
        """Take care of a new pool."""
        self.pools.setdefault(pool.name, []).append(pool)

    def fill(self, pool: Pool, now: float) -> None:
        """Start what the pool wants, as far as the bound on processes and the restart policy allow."""
        while not self.halted:
            seat = pool.wanted_seat()
            spare = seat is None
            if seat is None:
                seat = pool.tired_seat()
            if seat is None:
                return
            family = self.pools[pool.name]
            if sum(p.live for p in family) > max(len(p.seats) for p in family):
                return  # the next exit of the family comes back here
            at = pool.restarts.may_start_at(now)
            if at > now:
                if at != float("inf"):
                    self._alarms.arm(pool, at)
                return
            self._start(pool, seat, now, spare=spare)

    def tire(self, worker: Worker, now: float) -> None:
        """The worker is to be replaced, though nothing is wrong with it."""
        if worker.state == "ready" and not worker.tired and not worker.retired:
            worker.tired = True
            self.fill(worker.pool, now)

    def dismiss(self, pool: Pool, now: float) -> None:
        """Send away the idle workers of a pool that is leaving."""
        if not pool.queue:
            for worker in (*pool.seats, pool.spare):
                if worker is not None and not worker.batches and worker.state in ("starting", "ready"):
                    self.stop(worker, now)
        self._forget(pool)

    def rest(self, pool: Pool, now: float) -> None:
        """Discovery is over: a lazy source nobody asked for goes to sleep."""
        if pool.spec.start == "lazy" and not pool.keep and not pool.batches and not pool.warm:
            for worker in pool.seats:
                if worker is not None and worker.state == "ready":
                    self.stop(worker, now)

    def stop(self, worker: Worker, now: float) -> None:
        """Let an idle worker close its source and leave."""
        worker.to("stopping", now)
        worker.room = []
        worker.doom = "stop"
        self._alarms.disarm(worker)
        if not worker.retired:
            worker.pool.restarts.abandoned()
        self._unseat(worker)
        self._emit(StopWorker(worker.id, worker.pool.spec.stop_timeout))

    def condemn(self, worker: Worker, doom: KillReason, now: float, *, autopsy: bool = False) -> None:
        """Kill a worker. What it held ends when its exit is reported, or after `EVIDENCE_WAIT` without it."""
        pool = worker.pool
        was = worker.state
        worker.to("dying", now)
        worker.doom = doom
        worker.room = []
        worker.give_up_at = now + EVIDENCE_WAIT
        self._alarms.disarm(worker)
        self._alarms.arm(worker, worker.give_up_at)
        self._emit(KillWorker(worker.id, doom, autopsy))
        if was == "starting":
            return  # it keeps its seat: whoever waits for this start learns how it ended
        if doom == "protocol":
            self._failed(pool, now, worker.uptime(now), worker.proven)
        else:
            pool.restarts.abandoned()
        self._unseat(worker)
        for batch in list(worker.batches.values()):
            self.answers.doomed(batch, now)
        self._after_loss(pool, now)

    # --- events ---

    def on_started(self, event: WorkerStarted, now: float) -> None:
        worker = self.workers.get(event.worker)
        if worker is None:
            self._shared.stale += 1
            return
        worker.pid = event.pid

    def on_ready(self, event: WorkerReady, now: float) -> None:
        worker = self.workers.get(event.worker)
        if worker is None or worker.state != "starting":
            self._shared.stale += 1
            return
        pool = worker.pool
        objection = _objection(pool, event)
        if objection is not None:
            worker.complaint = objection
            self.condemn(worker, "protocol", now)
            self._settle(worker, None, now)
            return
        if not pool.is_ready():
            pool.up_since = now
        worker.to("ready", now)
        worker.ready_at = now
        worker.open(max(1, pool.spec.max_batches) if event.reentrant else 1)
        self._alarms.disarm(worker)
        pool.restarts.ready(now)
        if pool.refused is None:
            pool.failure = None
        if pool.spec.recycle.age is not None:
            self._alarms.arm(worker, now + pool.spec.recycle.age)
        if pool.discovery != "described":
            self.publishing.described(pool, event.tools, now)
        if worker is pool.spare:
            self._succeed(worker, now)
        self._dispatch.pump(worker, now)
        if pool.is_leaving():
            self.dismiss(pool, now)
        self.fill(pool, now)

    def on_start_failed(self, event: WorkerStartFailed, now: float) -> None:
        worker = self.workers.get(event.worker)
        if worker is None or worker.state != "starting":
            self._shared.stale += 1
            return
        worker.complaint = event.message
        if worker.pid is None:
            self._bury(worker, now)
        else:
            worker.to("dying", now)
            worker.doom = "start_failed"
            self._alarms.disarm(worker)
            self._alarms.arm(worker, now + worker.pool.spec.stop_timeout)
        self._settle(worker, None, now, detail=event.detail)

    def on_grew(self, event: WorkerGrew, now: float) -> None:
        worker = self.workers.get(event.worker)
        if worker is None or worker.state != "ready":
            self._shared.stale += 1
            return
        self.tire(worker, now)

    def on_misbehaved(self, event: WorkerMisbehaved, now: float) -> None:
        worker = self.workers.get(event.worker)
        if worker is None or worker.state not in ("starting", "ready"):
            self._shared.stale += 1
            return
        self.accuse(worker, event.message, now)

    def accuse(self, worker: Worker, complaint: str, now: float) -> None:
        """The worker broke the protocol: nothing it holds can be trusted."""
        worker.complaint = complaint
        for batch in worker.batches.values():
            batch.culprit = True
        self._shared.warn("worker broke the protocol", source=worker.pool.name, worker=worker.id, what=complaint)
        self.condemn(worker, "protocol", now)

    def on_exited(self, event: WorkerExited, now: float) -> None:
        worker = self.workers.get(event.worker)
        if worker is None:
            self._shared.stale += 1
            return
        pool, was, exit = worker.pool, worker.state, event.exit
        settled = was == "stopping" or (was == "dying" and worker.give_up_at is None)
        self._bury(worker, now)
        if not settled:
            if was == "ready" and exit.reason is not None:
                pool.restarts.abandoned()
            elif was == "ready":
                self._failed(pool, now, worker.uptime(now), worker.proven)
                pool.failure = failures.crashed(worker, exit, worker.uptime(now))
                self._shared.warn(
                    "worker died",
                    source=pool.name,
                    worker=worker.id,
                    pid=worker.pid,
                    how=failures.how_it_ended(exit),
                    last_words=failures.last_line(exit.stderr_tail),
                )
            self._settle(worker, exit, now)
        for kin in list(self.pools.get(pool.name, ())):
            self.fill(kin, now)
        self._forget(pool)

    def worker_due(self, worker: Worker, now: float) -> None:
        """The alarm of a worker rang."""
        if worker.state == "ready":
            self._check_batches(worker, now)
        elif worker.state == "starting":
            self._shared.warn("worker did not become ready in time", source=worker.pool.name, worker=worker.id)
            self.condemn(worker, "start_timeout", now, autopsy=True)
        elif worker.state == "dying":
            if worker.give_up_at is not None:
                self._settle(worker, None, now)
            elif worker.doom == "start_failed":
                self._emit(KillWorker(worker.id, "stop"))

    # --- inside ---

    def _check_batches(self, worker: Worker, now: float) -> None:
        next_due = self._tires_at(worker, now)
        doom: KillReason | None = None
        for batch in worker.batches.values():
            at = batch.due if batch.kill_at is None else batch.kill_at
            if at is None:
                continue
            if at > now:
                next_due = at if next_due is None else min(next_due, at)
                continue
            batch.culprit = True
            doom = "deadline" if batch.kill_at is None else (doom or "cancel")
        if doom is not None:
            self.condemn(worker, doom, now, autopsy=doom == "deadline")
        elif next_due is not None:
            self._alarms.arm(worker, next_due)

    def _tires_at(self, worker: Worker, now: float) -> float | None:
        """When the worker's age will be a reason to replace it; if it is one now, that is begun."""
        age = worker.pool.spec.recycle.age
        if age is None or worker.ready_at is None or worker.tired or worker.retired:
            return None
        at = worker.ready_at + age
        if at > now:
            return at
        self.tire(worker, now)
        return None

    def _succeed(self, spare: Worker, now: float) -> None:
        """The spare is ready: the seat is its own now, and who had it leaves as soon as it holds nothing."""
        pool = spare.pool
        before = pool.seats[spare.seat]
        assert before is not None  # or the seat would have been given to the spare before
        before.retired, before.tired, before.room = True, False, []
        self._unseat(before)
        self._shared.inform("worker is replaced", source=pool.name, worker=before.id, by=spare.id)
        if not before.batches:
            self.stop(before, now)
        self._dispatch.reseat(pool, now)

    def _start(self, pool: Pool, seat: int, now: float, *, spare: bool) -> None:
        self._numbers += 1
        worker = Worker(self._numbers, pool, seat, now)
        self.workers[worker.id] = worker
        if spare:
            pool.spare = worker
        else:
            pool.seats[seat] = worker
        pool.live += 1
        pool.warm = False
        pool.restarts.starting()
        self._alarms.arm(worker, now + pool.spec.start_timeout)
        spec = pool.spec
        self._emit(StartWorker(worker.id, pool.name, seat, spec.launch, max(1, spec.max_batches), spec.recycle.rss))

    def _bury(self, worker: Worker, now: float) -> None:
        worker.to("gone", now)
        worker.room = []
        self._alarms.disarm(worker)
        worker.pool.live -= 1
        del self.workers[worker.id]
        self._unseat(worker)

    def _unseat(self, worker: Worker) -> None:
        """Its seat falls to the spare that is on its way to it, if there is one."""
        pool = worker.pool
        spare = pool.spare if pool.spare is not None and pool.spare.seat == worker.seat else None
        if pool.seats[worker.seat] is worker:
            pool.seats[worker.seat] = spare
            pool.spare = None if spare is not None else pool.spare
        elif spare is worker:
            pool.spare = None

    def _settle(self, worker: Worker, exit: ExitReport | None, now: float, *, detail: str | None = None) -> None:
        """Everybody who depended on the worker learns its end. Happens once in its life."""
        pool = worker.pool
        worker.give_up_at = None
        self._unseat(worker)
        if worker.ready_at is None and worker.doom not in ("stop", "drain"):
            self._start_lost(worker, exit, detail, now)
        lost, worker.batches = worker.batches, {}
        for batch in lost.values():
            batch.to("over")
            pool.batches -= 1
        for batch in lost.values():
            self.answers.lost(batch, worker, exit, now)
        self._after_loss(pool, now)

    def _start_lost(self, worker: Worker, exit: ExitReport | None, detail: str | None, now: float) -> None:
        pool = worker.pool
        if worker.doom == "start_timeout":
            what = f"it was not ready within {pool.spec.start_timeout:g} s and was killed"
            evidence = failures.evidence_of(
                worker, exit, elapsed=pool.spec.start_timeout, limit=pool.spec.start_timeout
            )
        elif worker.complaint:
            what = worker.complaint
            evidence = Evidence(pid=worker.pid, traceback=detail)
        else:
            what = f"its worker {failures.how_it_ended(exit or ExitReport())} before it was ready"
            evidence = failures.evidence_of(worker, exit)
        failure = failures.start_failed(pool, what, evidence)
        pool.failure = failure
        self._shared.warn(failure.message, source=pool.name, worker=worker.id)
        self._failed(pool, now, 0.0, False)
        if not pool.is_up():
            self._dispatch.fail_waiting(pool, lambda _: failure, now)
            if pool.discovery == "pending":
                pool.discovery = "failed"
                self.publishing.not_described(pool, now)

    def _failed(self, pool: Pool, now: float, uptime: float, proven: bool) -> None:
        if pool.restarts.failed(now, uptime, proven):
            self._shared.warn(
                "source failed too often and rests", source=pool.name, seconds=pool.spec.restart.cool_down
            )

    def _after_loss(self, pool: Pool, now: float) -> None:
        self._dispatch.reseat(pool, now)
        if pool.queue and not pool.is_up() and pool.restarts.is_resting(now):
            failure: Failure = failures.unavailable(pool, now)
            self._dispatch.fail_waiting(pool, lambda _: failure, now)
        if pool.is_leaving():
            self.dismiss(pool, now)
        self.fill(pool, now)

    def _forget(self, pool: Pool) -> None:
        if not pool.generations and not pool.live and not pool.batches:
            self._alarms.disarm(pool)
            family = self.pools.get(pool.name)
            if family is not None and pool in family:
                family.remove(pool)
                if not family:
                    del self.pools[pool.name]


def _objection(pool: Pool, event: WorkerReady) -> str | None:
    """Why the declared tools cannot be accepted."""
    if not event.tools:
        return "it declares no tools"
    twice = duplicate_tool(event.tools)
    if twice is not None:
        return f"it declares the tool {twice!r} twice"
    if pool.discovery == "described" and {tool.name for tool in event.tools} != pool.index.keys():
        return "it declares other tools than when it was published; reload to publish them"
    return None
