"""The node: starts, watches and ends the workers of one machine, and is their link to the core.

Owns the forkserver, every worker's process, link, flight recorder, output and scratch directory. Decides nothing about
turns: it executes worker instructions and reports what it saw as core events.

Theory of operation. Every `StartWorker` ends in exactly one `WorkerExited`, which is the last event of that worker.
The forkserver reports an exit the moment it happens; the worker's last messages may still be in the socket, so the
report waits (briefly, and only if the flight recorder says that more was sent than has arrived). A death we caused
has the reason that was set before the signal was sent, never one that was guessed afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from signal import SIGKILL

import msgspec
import psutil  # type: ignore[import-untyped]

from toolsd import flight, signals, transport
from toolsd.bounds import Bounds, Breach
from toolsd.core.events import BatchFailed, Event, WorkerExited, WorkerGrew, WorkerStarted, WorkerStartFailed
from toolsd.core.instructions import (
    CancelBatch,
    Instruction,
    KillReason,
    KillWorker,
    Note,
    SendBatch,
    StartWorker,
    StopWorker,
)
from toolsd.core.model import ExitReport
from toolsd.errors import CallState, Failure, LocalProtocolError
from toolsd.forkserver import Exited, NotStarted, Report, Start, Started
from toolsd.leftovers import kill_marked
from toolsd.link import InFlight, Link
from toolsd.oom import OomKills
from toolsd.processes import ForkserverProcess, Output, close_all, diagnose, resident, send_signal
from toolsd.sandbox.cgroup import Group, Unavailable
from toolsd.sandbox.plan import plan_for
from toolsd.sandbox.tier import no_groups
from toolsd.sandbox.verdict import Seen, judge

# Starts that may be on their way to the forkserver at once: enough to keep it busy, and few descriptors in flight
# (unix(7), ETOOMANYREFS).
_STARTING = 8
# How long a dead worker's last messages are waited for, and how often one looks. Seconds.
_LAST_WORDS, _LOOK = 0.25, 0.002
# How long an autopsy may take, and how long the stacks must not have grown to be called complete. Seconds.
_AUTOPSY, _AUTOPSY_STEP = 0.2, 0.005
# When a cancel signal is repeated: after so many seconds first, then after twice as many, up to the slowest.
_CANCEL_AGAIN, _CANCEL_SLOWEST = 0.01, 1.0
# How often one looks whether a worker is above its `rss_limit`. Seconds.
_WEIGH = 1.0
# How long a worker may outlive its link. Longer than an exit takes to be reported.
_LINGER = 1.0
# How long the forkserver may take to answer a start; its first one includes its imports and the canary. Seconds.
_BIRTH = 10.0
# How long the forkserver may take to kill everything and leave, in `close`.
_FAREWELL = 6.0


class Figures(msgspec.Struct, frozen=True):
    """What a worker uses now. `rss` is bytes, `cpu` and `up` are seconds."""

    pid: int
    rss: int
    cpu: float
    up: float
    threads: int


class _Worker:
    """One incarnation, from its `StartWorker` to its `WorkerExited`."""

    def __init__(self, order: StartWorker, link: Link, recorder: flight.Reader, output: Output, scratch: str) -> None:
        self.order = order
        self.link = link
        self.recorder = recorder
        self.output = output
        self.scratch = scratch
        self.pid: int | None = None
        self.pidfd = -1
        self.reason: KillReason | None = None
        self.breach: Breach | None = None  # the limit for which it was killed
        self.ended = False
        self.unsent: dict[int, int] = {}
        self.timer: asyncio.TimerHandle | None = None

    def later(self, loop: asyncio.AbstractEventLoop, delay: float, what: Callable[[], object]) -> None:
        """The one thing this worker is waited for; a new wait replaces the old."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = loop.call_later(delay, what)


class Node:
    """Executes worker instructions. Lives on one loop, whose thread must live as long as the node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ctx: transport.Context,
        runtime_dir: str,
        emit: Callable[[Event], None],
        note: Callable[[Note], None],
    ) -> None:
        """`runtime_dir` exists, is ours alone (0700), and gets a `workers` directory for sockets and scratch.

        `emit` is never called from within `execute`.
        """
        self._loop = loop
        self._ctx = ctx
        self._emit_event = emit
        self._note = note
        self._root = os.path.join(runtime_dir, "workers")
        shutil.rmtree(self._root, ignore_errors=True)
        os.mkdir(self._root, 0o700)
        self._directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._oom_kills = OomKills()
        self._workers: dict[int, _Worker] = {}
        self._queue: deque[StartWorker] = deque()
        self._starting: set[int] = set()
        self._removals: set[asyncio.Future[None]] = set()
        self._closing = False
        self._forkserver: ForkserverProcess | None = None
        self._forkserver_gone = asyncio.Event()
        self._wake_forkserver()
        self._bounds = Bounds(loop, self._broke)

    def execute(self, instruction: Instruction) -> None:
        """Carry out a worker instruction; others are none of the node's business and are a `TypeError`."""
        match instruction:
            case SendBatch():
                self._send_batch(instruction)
            case StartWorker():
                self._queue.append(instruction)
                self._loop.call_soon(self._start_next)
            case CancelBatch():
                self._cancel_batch(instruction)
            case StopWorker():
                self._stop(instruction)
            case KillWorker():
                self._kill(instruction.worker, instruction.reason, instruction.autopsy)
            case _:
                raise TypeError(f"not for a node: {instruction!r}")

    def figures(self) -> dict[int, Figures]:
        """What each living worker uses, by incarnation. For people: read on demand, never used for decisions."""
        found: dict[int, Figures] = {}
        for number, worker in self._workers.items():
            if worker.pid is None or worker.ended:
                continue
            try:
                process = psutil.Process(worker.pid)
                with process.oneshot():
                    used = process.cpu_times()
                    found[number] = Figures(
                        worker.pid,
                        process.memory_info().rss,
                        used.user + used.system,
                        max(0.0, time.time() - process.create_time()),
                        process.num_threads(),
                    )
            except psutil.Error:
                continue
        return found

    async def close(self) -> None:
        """End every process and remove every file, within a bound. Emits nothing any more. Idempotent."""
        if self._closing:
            return
        self._closing = True
        self._bounds.stop()
        self._queue.clear()
        if self._forkserver is not None:
            self._forkserver.close()
            try:
                await asyncio.wait_for(self._forkserver_gone.wait(), _FAREWELL)
            except TimeoutError:
                self._forkserver.kill()
                await self._forkserver_gone.wait()
        for worker in list(self._workers.values()):
            self._dispose(worker)
        if self._removals:
            await asyncio.wait(self._removals)
        self._bounds.close()
        os.close(self._directory)
        await asyncio.to_thread(shutil.rmtree, self._root, True)

    # --- births -----------------------------------------------------------------------------------------------------

    def _wake_forkserver(self) -> ForkserverProcess:
        if self._forkserver is None:
            self._forkserver = ForkserverProcess(self._loop, self._reported, self._forkserver_died)
        return self._forkserver

    def _start_next(self) -> None:
        while self._queue and len(self._starting) < _STARTING and not self._closing:
            order = self._queue.popleft()
            try:
                self._start(order)
            except Unavailable as unavailable:
                gap = no_groups(str(unavailable))
                self._not_started(order.worker, f"source {order.source!r} cannot be sandboxed: {gap}")
            except (OSError, LocalProtocolError) as error:
                self._not_started(order.worker, f"cannot start a worker of {order.source!r}: {error}")

    def _start(self, order: StartWorker) -> None:
        number = order.worker
        if order.launch.confinement.mode == "off":
            fields = (("source", order.source), ("worker", number))
            self._note(Note("warning", "this worker runs without a sandbox, with all rights of this user", fields))
        forkserver = self._wake_forkserver()
        link = Link(
            self._loop,
            self._ctx,
            self._directory,
            number,
            emit=self._emit,
            states=partial(self._states, number),
            on_closed=partial(self._link_closed, number),
            lasting=partial(self._lasting, number),
        )
        scratch = os.path.join(self._root, f"s{number}-{os.urandom(4).hex()}")
        fds: list[int] = []
        try:
            recorder = flight.create(order.max_batches)
            fds.append(recorder)
            fds += (os.dup(link.listener.fileno()), os.dup(recorder))
            read, write = os.pipe2(os.O_CLOEXEC)
            fds += (read, write)
            demanded = "cgroup" in order.launch.confinement.tiers
            group = self._bounds.group(number, order.launch.limits, demanded=demanded)
            os.mkdir(scratch, 0o700)
        except (OSError, Unavailable):
            self._bounds.forget(number)
            close_all(fds)
            link.close()
            raise
        output = Output(self._loop, read)
        worker = _Worker(order, link, flight.Reader(recorder, order.max_batches), output, scratch)
        self._workers[number] = worker
        self._starting.add(number)
        message = Start(number, order.source, order.launch, plan_for(order.launch, scratch, group))
        forkserver.start(message, (*fds[1:3], write))
        self._loop.call_later(_BIRTH, self._overdue, number, forkserver)

    def _overdue(self, number: int, forkserver: ForkserverProcess) -> None:
        """A forkserver that does not answer (somebody stopped it) would keep every source from starting: replace it."""
        if number in self._starting and self._forkserver is forkserver and not self._closing:
            fields = (("pid", forkserver.pid), ("seconds", _BIRTH))
            self._note(Note("error", "the forkserver does not answer and is killed", fields))
            forkserver.kill()

    def _reported(self, report: Report, pidfd: int | None) -> None:
        match report:
            case Started():
                self._started(report, -1 if pidfd is None else pidfd)
            case NotStarted():
                self._not_started(report.worker, report.message)
            case Exited():
                worker = self._workers.get(report.worker)
                if worker is not None:
                    self._exited(worker, report)

    def _started(self, report: Started, pidfd: int) -> None:
        self._starting.discard(report.worker)
        worker = self._workers[report.worker]
        worker.pid, worker.pidfd = report.pid, pidfd
        if worker.reason is not None:  # somebody wanted it dead before it was born
            send_signal(pidfd, SIGKILL)
        self._emit(WorkerStarted(report.worker, report.pid))
        worker.link.open()
        self._bounds.watch(report.worker, report.pid, worker.order.launch.limits, worker.scratch)
        if worker.order.rss_limit is not None:
            self._loop.call_later(_WEIGH, self._weigh, worker, worker.order.rss_limit)
        self._start_next()

    def _weigh(self, worker: _Worker, limit: int) -> None:
        """Look at a worker's memory until it is above the limit, which is said once."""
        if self._workers.get(worker.order.worker) is not worker or worker.ended or worker.pid is None:
            return
        rss = resident(worker.pid) if worker.link.ready else 0
        if rss > limit:
            self._emit(WorkerGrew(worker.order.worker, rss))
        else:
            self._loop.call_later(_WEIGH, self._weigh, worker, limit)

    def _not_started(self, number: int, message: str) -> None:
        """A worker that never became a process."""
        self._starting.discard(number)
        worker = self._workers.get(number)
        self._emit(WorkerStartFailed(number, message))
        self._emit(WorkerExited(number, ExitReport(reason=worker.reason if worker else None)))
        if worker is not None:
            self._dispose(worker)
        self._loop.call_soon(self._start_next)

    # --- batches ----------------------------------------------------------------------------------------------------

    def _send_batch(self, order: SendBatch) -> None:
        worker = self._workers.get(order.worker)
        if worker is None or worker.ended:
            if worker is not None:
                worker.unsent[order.batch] = len(order.calls)  # its exit is on the way, and will say so
            return
        try:
            worker.link.send_batch(order)
        except LocalProtocolError as error:
            failure = Failure("protocol_violation", f"the batch cannot be sent: {error.message}")
            self._loop.call_soon(self._emit, BatchFailed(order.worker, order.batch, failure))

    def _cancel_batch(self, order: CancelBatch) -> None:
        worker = self._workers.get(order.worker)
        if worker is None or worker.ended or (flying := worker.link.batches.get(order.batch)) is None:
            return
        worker.link.cancel_batch(order.batch)
        worker.recorder.ask_cancel(flying.region, order.batch)
        self._signal_cancel(worker, order.batch, _CANCEL_AGAIN)

    def _signal_cancel(self, worker: _Worker, batch: int, again: float) -> None:
        """Signal until the batch has ended: a signal that comes just before a blocking system call interrupts nothing.

        The worker raises in a batch once, however many signals come.
        """
        if self._workers.get(worker.order.worker) is worker and not worker.ended and batch in worker.link.batches:
            send_signal(worker.pidfd, signals.CANCEL)
            self._loop.call_later(again, self._signal_cancel, worker, batch, min(2 * again, _CANCEL_SLOWEST))

    # --- limits that are looked at ----------------------------------------------------------------------------------

    def _broke(self, number: int, breach: Breach) -> None:
        worker = self._workers.get(number)
        if worker is not None and not worker.ended and worker.reason is None and worker.breach is None:
            worker.breach = breach
            send_signal(worker.pidfd, SIGKILL)

    def _lasting(self, number: int) -> bool:
        """Whether what a worker says at the end of a batch can be believed: not if it lost a child to its memory limit,
        which it may have taken for anything.
        """
        breach = self._bounds.struck(number)
        if breach is not None:
            self._broke(number, breach)
        return breach is None

    def _states(self, number: int, flying: InFlight, batch: int) -> tuple[CallState, ...]:
        return self._workers[number].recorder.read(flying.region, batch, len(flying.tools)).states

    # --- deaths -----------------------------------------------------------------------------------------------------

    def _stop(self, order: StopWorker) -> None:
        worker = self._workers.get(order.worker)
        if worker is None or not worker.link.ready:
            self._kill(order.worker, "stop", False)
            return
        if worker.reason is None and not worker.ended:
            worker.reason = "stop"
            worker.link.deinit()
            worker.later(self._loop, order.grace, partial(send_signal, worker.pidfd, SIGKILL))

    def _kill(self, number: int, reason: KillReason, autopsy: bool) -> None:
        worker = self._workers.get(number)
        if worker is None:
            self._forget(number, reason)
            return
        if worker.ended:
            return
        if worker.reason is None or worker.reason == "stop":
            worker.reason = reason
        if worker.pidfd < 0:
            return  # `_started` will see to it
        if autopsy and send_signal(worker.pidfd, signals.STACKS):
            self._autopsy(worker, self._loop.time() + _AUTOPSY, 0)
        else:
            send_signal(worker.pidfd, SIGKILL)

    def _forget(self, number: int, reason: KillReason) -> None:
        """Take a worker that was not even begun out of the queue."""
        for order in self._queue:
            if order.worker == number:
                self._queue.remove(order)
                self._loop.call_soon(self._emit, WorkerExited(number, ExitReport(reason=reason)))
                return

    def _autopsy(self, worker: _Worker, end: float, seen: int) -> None:
        """Kill as soon as the stacks are complete (they have stopped growing) or the time is up."""
        size = len(worker.recorder.stacks() or "")
        if worker.ended:
            return
        if (size and size == seen) or self._loop.time() >= end:
            send_signal(worker.pidfd, SIGKILL)
        else:
            worker.later(self._loop, _AUTOPSY_STEP, partial(self._autopsy, worker, end, size))

    def _link_closed(self, number: int) -> None:
        worker = self._workers.get(number)
        if worker is None or worker.ended or self._closing:
            return
        if worker.reason is None:  # what we are killing anyway needs no charge
            message = "its link broke while its process lives: it closed it, or sent a frame larger than is allowed"
            worker.later(self._loop, _LINGER, partial(worker.link.misbehaved, message))

    def _exited(self, worker: _Worker, report: Exited | None) -> None:
        """The process is gone. `None`: so is the forkserver that could have said how."""
        if worker.ended:
            return
        worker.ended = True
        if worker.timer is not None:
            worker.timer.cancel()
        self._last_words(worker, report, self._loop.time() + _LAST_WORDS)

    def _last_words(self, worker: _Worker, report: Exited | None, end: float) -> None:
        if self._closing:
            return
        link, now = worker.link, self._loop.time()
        link.drain()
        if link.received < worker.recorder.sent() and now < end:
            if link.closed:  # nothing more comes but what libzmq's own thread is just handing over
                end = min(end, now + 5 * _LOOK)
            self._loop.call_later(_LOOK, self._last_words, worker, report, end)
            return
        if report is None and worker.output.fd >= 0:
            kill_marked(worker.scratch, worker.output.fd)
        worker.output.close()
        if worker.breach is None and worker.reason is None:
            worker.breach = self._bounds.struck(worker.order.worker)
        oom = worker.recorder.proof()
        if oom is None and worker.breach is not None and worker.breach.verdict == "memory":
            oom = worker.breach.seen
        if oom is None and worker.reason is None and report is not None and report.status == SIGKILL:
            oom = self._oom_kills.explain()
        exit_report = _account(worker, report, oom)
        self._dispose(worker)
        self._emit(WorkerExited(worker.order.worker, exit_report))

    def _dispose(self, worker: _Worker) -> None:
        """Give back everything the worker had."""
        del self._workers[worker.order.worker]
        if worker.timer is not None:
            worker.timer.cancel()
        worker.link.close()
        worker.output.close()
        worker.recorder.close()
        if worker.pidfd >= 0:
            self._loop.remove_reader(worker.pidfd)
            os.close(worker.pidfd)
            worker.pidfd = -1
        group = self._bounds.forget(worker.order.worker)
        removal = self._loop.run_in_executor(None, _remove, worker.scratch, group)
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def _forkserver_died(self, process: ForkserverProcess) -> None:
        self._forkserver = None
        if self._closing:
            self._forkserver_gone.set()
            return
        last_line = (process.output.tail or "it said nothing").strip().rpartition("\n")[2]
        fields = (("pid", process.pid), ("status", process.exit_status), ("output", process.output.tail))
        self._note(Note("error", "the forkserver died, and its workers with it; it is started again", fields))
        for number in list(self._starting):
            self._not_started(number, f"the forkserver died: {last_line}")
        for worker in list(self._workers.values()):
            if not worker.ended:
                send_signal(worker.pidfd, SIGKILL)
                self._loop.add_reader(worker.pidfd, self._orphan_died, worker)

    def _orphan_died(self, worker: _Worker) -> None:
        self._loop.remove_reader(worker.pidfd)
        self._exited(worker, None)

    def _emit(self, event: Event) -> None:
        if not self._closing:
            self._emit_event(event)


def _account(worker: _Worker, report: Exited | None, oom: str | None) -> ExitReport:
    """Everything that was seen of this death."""
    exit_code, signal = diagnose(report.status) if report is not None else (None, None)
    never: CallState = "not_sent"
    states = {batch: (never,) * calls for batch, calls in worker.unsent.items()}
    running = elapsed = None
    for batch, flying in worker.link.batches.items():
        seen = worker.recorder.read(flying.region, batch, len(flying.tools))
        states[batch] = seen.states
        if running is None and seen.running is not None:
            running, elapsed = flying.tools[seen.running], seen.elapsed
        elapsed = seen.elapsed if elapsed is None else elapsed
    limits = worker.order.launch.limits
    death = Seen(
        exit_code=exit_code,
        signal=signal,
        cpu=report.cpu if report is not None else 0.0,
        cpu_limit=limits.cpu_time,
        peak_rss=report.peak_rss if report is not None else None,
        memory=limits.memory,
        oom=oom,
        breach=worker.breach.verdict if worker.breach is not None else None,
        deadline=worker.reason == "deadline",
    )
    return ExitReport(
        exit_code=exit_code,
        signal=signal,
        reason=worker.reason,
        verdict=judge(death) if worker.reason in (None, "deadline") and report is not None else None,
        oom=oom,
        peak_rss=report.peak_rss if report is not None else None,
        stderr_tail=worker.output.tail,
        stacks=worker.recorder.stacks(),
        states=states,
        running=running,
        elapsed=elapsed,
    )


def _remove(directory: str, group: Group | None) -> None:
    """End what a dead worker left in its group, and remove that and its scratch directory, also while the last of its
    descendants still dies in it.
    """
    if group is not None:
        group.remove()
    for _ in range(50):
        shutil.rmtree(directory, onerror=_permit)
        if not os.path.lexists(directory):
            return
        time.sleep(0.02)


def _permit(_function: object, path: str, _error: object) -> None:
    """A directory without write permission keeps what is in it; it is ours, so it gets it, and the next round works."""
    for place in (os.path.dirname(path), path):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(place).st_mode):
                os.chmod(place, 0o700)
