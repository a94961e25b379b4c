"""The forkserver: a process that has everything imported and forks workers on request.

Owns the workers as their parent: their births, their exits, and whatever they leave behind. Knows neither batches nor
sockets of the link; it passes descriptors on.

Theory of operation. The node executes this once, isolated and without site processing, through
`toolsd.bootstrap`, so nothing of the node's surroundings is taken over by accident. The process has one
thread and no zmq context, which is what makes forking it sound. It is a subreaper, and so is every worker: what a
living worker orphans goes to that worker, and what a dying worker leaves behind (also what called setsid or forked
twice) becomes our child. So a child of ours that is not a worker belonged to a dead one, and is killed. When the
control socket ends, the node is gone: all workers and everything they started are killed, and we leave. A TERM does
the same, and so does a CONT when our parent has changed: that is what the kernel sends when the node's process dies
(`toolsd.bootstrap` asked for it), and it wakes us even if somebody had stopped us. The parent is looked at because the
control socket may have another holder: a program that embeds a node and forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import NoReturn

import msgspec

from toolsd import codec, launcher
from toolsd.launch import Launch
from toolsd.sandbox import broker
from toolsd.sandbox.apply import apply, become_subreaper, die_with_parent
from toolsd.sandbox.gate import Gate, Refusal
from toolsd.sandbox.plan import Plan
from toolsd.sandbox.seal import Seal

# One control message; a launch that needs more is refused by the node.
CONTROL_MAX = 256 * 1024
# What every worker needs, imported before the first fork so that its memory is shared and its time is not spent.
_PRELOAD = (
    "asyncio",
    "toolsd.worker",
    "toolsd.misfits",
    "toolsd_workers.python.host",
    "toolsd_workers.python.side_by_side",
    # What most sources import themselves: pathlib alone would cost each of their starts several milliseconds.
    "dataclasses",
    "hashlib",
    "pathlib",
    "random",
    "tempfile",
    "urllib.parse",
)
# HUP is only not to end us: it comes with the CONT that wakes a stopped process whose parent died (setpgid(2)).
_HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGCONT, signal.SIGHUP)
# How long the last sweep may take when the node is gone. Longer than any kill takes; a bound all the same.
_FAREWELL = 5.0
# The status a shell gives for a command that cannot be executed.
_NOT_EXECUTED = 126


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Node -> forkserver, with three descriptors: listener, flight recorder, output pipe."""

    worker: int
    source: str
    launch: Launch
    plan: Plan


class Started(msgspec.Struct, frozen=True, tag="started"):
    """Forkserver -> node, with the worker's pidfd, opened before it could be reaped."""

    worker: int
    pid: int


class NotStarted(msgspec.Struct, frozen=True, tag="not_started"):
    worker: int
    message: str


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """A worker ended. `status` is as from wait(2), `peak_rss` in bytes, `cpu` in seconds."""

    worker: int
    status: int
    peak_rss: int
    cpu: float


Report = Started | NotStarted | Exited


def main(control: int, parent: int) -> NoReturn:
    """Serve until the node is gone. Never returns."""
    become_subreaper()
    for name in _PRELOAD:
        importlib.import_module(name)
    _call_myself("forkserver")
    server = _Forkserver(socket.socket(fileno=control), parent)
    gc.collect()
    gc.freeze()  # so that no worker's first collection touches, and thereby copies, what all of them share
    server.serve()
    os._exit(0)


def _become_program(order: Start, inherited: launcher.Descriptors) -> NoReturn:
    """Execute what the worker is. A program that cannot be executed leaves as one does whom a shell cannot find."""
    program = order.launch.program
    try:
        launcher.become(program, {**order.plan.env, **launcher.environment(order.launch.result_max)}, inherited)
    except OSError as error:
        sys.stderr.write(f"toolsd: cannot execute {program[0]}: {error.strerror}\n")
        leave(_NOT_EXECUTED)


def _ignore(_signal: int, _frame: object) -> None:
    """Python-level handlers do nothing here: the wake-up descriptor is what tells."""


class _Forkserver:
    def __init__(self, control: socket.socket, parent: int) -> None:
        self._control = control
        self._parent = parent
        self._pid = os.getpid()
        self._workers: dict[int, int] = {}  # pid -> worker
        self._helpers: set[int] = set()  # brokers; each leaves when its worker is gone
        self._gate = Gate()
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in _HEARD:
            signal.signal(number, _ignore)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while os.getppid() == self._parent:
                ready = {fd for fd, _ in poll.poll()}
                if self._woken in ready and not self._signalled():
                    return
                if self._control.fileno() in ready and not self._ordered():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            self._kill_everything()

    def _signalled(self) -> bool:
        """Look at what signals came. False: leave."""
        if signal.SIGTERM in os.read(self._woken, 4096):
            return False
        self._reap()
        return True

    def _ordered(self) -> bool:
        """Take one order. False: the node is gone."""
        data, fds, _flags, _address = socket.recv_fds(self._control, CONTROL_MAX, 3, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        try:
            self._start(codec.unpack(data, Start), fds)
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _start(self, order: Start, fds: list[int]) -> None:
        if len(fds) != 3:
            self._tell(NotStarted(order.worker, "the forkserver has no descriptors left"))
            return
        try:
            seal = self._gate.admit(order.source, order.worker, order.launch, order.plan)
            pid = self._fork(order, seal, fds)
        except Refusal as refusal:
            self._tell(NotStarted(order.worker, str(refusal)))
            return
        except OSError as error:
            self._tell(NotStarted(order.worker, f"cannot make the process: {error}"))
            return
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            del self._workers[pid]
            self._tell(NotStarted(order.worker, f"pidfd_open: {error.strerror}"))
            return
        self._tell(Started(order.worker, pid), pidfd)
        os.close(pidfd)

    def _fork(self, order: Start, seal: Seal | None, fds: list[int]) -> int:
        """Fork the worker, and its broker if it needs one."""
        if seal is None or not seal.brokered:
            pid = os.fork()
            if pid == 0:
                self._become_worker(order, seal, fds, None)
            self._workers[pid] = order.worker
            return pid
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            helper = os.fork()
            if helper == 0:
                self._become_broker(order, ours)
            self._helpers.add(helper)
            pid = os.fork()
            if pid == 0:
                self._become_worker(order, seal, fds, theirs)
            self._workers[pid] = order.worker
            return pid

    def _become_broker(self, order: Start, end: socket.socket) -> NoReturn:
        status = 70
        try:
            self._shed()
            _call_myself(f"{order.source} net")
            os.closerange(3, end.fileno())
            os.closerange(end.fileno() + 1, 65_536)
            die_with_parent(self._pid, signal.SIGKILL)
            broker.main(end, order.launch.confinement.network)
            status = 0
        finally:
            os._exit(status)

    def _shed(self) -> None:
        """In a child: be no forkserver any more."""
        signal.set_wakeup_fd(-1)
        for number in _HEARD:
            signal.signal(number, signal.SIG_DFL)

    def _become_worker(self, order: Start, seal: Seal | None, fds: list[int], end: socket.socket | None) -> NoReturn:
        status = 70
        listener, recorder, output = fds
        try:
            self._shed()
            _call_myself(order.source)
            memory = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)  # a sealed worker could not
            keep = [listener, recorder, memory] + ([end.fileno()] if end is not None else [])
            notices = apply(order.plan, seal, parent=self._pid, keep=keep, output=output)
            if end is not None and notices is not None:
                broker.hand_over(end, notices)
            inherited = launcher.Descriptors(listener, recorder, memory)
            if order.launch.program:
                _become_program(order, inherited)
            from toolsd import worker

            status = worker.run(order.source, order.launch, inherited)
        except BaseException:  # noqa: BLE001  # nothing may leave a forked child by return
            traceback.print_exc()
        finally:
            leave(status)

    def _reap(self) -> None:
        """Report every worker that ended, and end what it left behind."""
        reports: list[Exited] = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._helpers.discard(pid)
            worker = self._workers.pop(pid, None)
            if worker is not None:
                cpu = usage.ru_utime + usage.ru_stime
                reports.append(Exited(worker, status, usage.ru_maxrss * 1024, cpu))
        self._kill_orphans()
        for report in reports:
            self._tell(report)

    def _kill_orphans(self) -> None:
        """Kill the children that are not workers. Theirs become ours when they die, and the next SIGCHLD comes here."""
        for pid in _children(self._pid):
            if pid not in self._workers and pid not in self._helpers:
                with contextlib.suppress(PermissionError):  # it runs as somebody else; only root's workers can do that
                    os.kill(pid, signal.SIGKILL)  # ours and not reaped, so the number cannot be another's

    def _kill_everything(self) -> None:
        self._workers.clear()
        self._helpers.clear()
        end = time.monotonic() + _FAREWELL
        while time.monotonic() < end:
            self._kill_orphans()
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                return

    def _tell(self, report: Report, *fds: int) -> None:
        socket.send_fds(self._control, [codec.pack(report)], list(fds))


def _call_myself(name: str) -> None:
    """What `ps` and `top` show, cut by the kernel to 15 bytes (proc(5), comm)."""
    with open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(f"toolsd:{name}")


def _children(pid: int) -> list[int]:
    """The children of the (single-threaded) process `pid`, zombies included (proc(5), task/TID/children)."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _parent(entry) == pid]


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return None


def leave(status: int) -> NoReturn:
    """End a worker: flush what was printed, and nothing else, for everything else belongs to the forkserver."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(status)
