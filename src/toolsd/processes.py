"""Processes as the node sees them: the forkserver it executes, pidfds it signals, output it reads, exits it explains.

Owns the forkserver's process and control socket. Knows nothing of batches, turns or the link.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence

import toolsd
from toolsd import bootstrap, codec
from toolsd.errors import LocalProtocolError, PeerProtocolError
from toolsd.forkserver import CONTROL_MAX, Report, Start, Started

# What is kept of a worker's output. Enough for a traceback and its context, little enough to travel in a failure.
TAIL = 16 * 1024
_READ = 64 * 1024
# No site, no user's or environment's settings, and the same text encoding wherever the node was started.
_ISOLATED = ("-I", "-S", "-X", "utf8")
# What a pipe of default size can still hold when its writer is dead.
_PIPE = 1024 * 1024


def diagnose(status: int) -> tuple[int | None, str | None]:
    """(exit code, signal name) of a status as from wait(2); one of them is `None`."""
    if os.WIFSIGNALED(status):
        return None, signal_name(os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status), None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def send_signal(pidfd: int, number: int) -> bool:
    """Signal the process behind a pidfd, and never another one. False: it is gone."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


class Output:
    """The reading end of a pipe that a process writes its output to: the tail is kept, the rest is counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int) -> None:
        self.dropped = 0
        self._loop = loop
        self._fd = fd
        self._tail = bytearray()
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    @property
    def tail(self) -> str | None:
        """The last of the output, or `None` if there was none."""
        if not self._tail:
            return None
        text = self._tail.decode("utf-8", "replace")
        return f"[{self.dropped} bytes before this]\n{text}" if self.dropped else text

    @property
    def fd(self) -> int:
        """The reading end; -1 when it is closed."""
        return self._fd

    def close(self) -> None:
        """Take what the pipe still holds, then close it. Idempotent."""
        if self._fd < 0:
            return
        taken = 0
        while taken < _PIPE:
            size = self._read()
            if size == 0:
                break
            taken += size
        if self._fd >= 0:
            self._end()

    def _read(self) -> int:
        try:
            data = os.read(self._fd, _READ)
        except BlockingIOError:
            return 0
        if not data:
            self._end()
            return 0
        tail = self._tail
        tail += data
        if len(tail) > TAIL:
            self.dropped += len(tail) - TAIL
            del tail[:-TAIL]
        return len(data)

    def _end(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1


class ForkserverProcess:
    """One life of the forkserver.

    It is in a process group of its own, which keeps Ctrl-C away from it, and in our session: so a stopped one is woken
    when we die, whatever it was doing (setpgid(2), orphaned process groups; `toolsd.bootstrap` asks for the same).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_report: Callable[[Report, int | None], None],
        on_gone: Callable[[ForkserverProcess], None],
    ) -> None:
        """`on_report` gets each report, a `Started` with the worker's pidfd, which it then owns.

        Raises:
            OSError: the interpreter cannot be executed.
        """
        self._loop = loop
        self._on_report = on_report
        self._on_gone = on_gone
        self._waiting: deque[tuple[bytes, Sequence[int]]] = deque()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_ISOLATED, bootstrap.__file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                pass_fds=(theirs.fileno(),),
                env={"LANG": "C.UTF-8", "MALLOC_ARENA_MAX": "2"},
                cwd="/",
                process_group=0,
            )
        except OSError:
            os.close(read)
            self._control.close()
            raise
        finally:
            os.close(write)
            theirs.close()
        self.output = Output(loop, read)
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._control.setblocking(False)
        loop.add_reader(self._control, self._receive)
        loop.add_reader(self._pidfd, self._died)
        paths = [path for path in sys.path if os.path.isabs(path)]
        workers = importlib.import_module("toolsd_workers")
        for places in (paths, list(toolsd.__path__), list(workers.__path__)):
            self._send(b"\0".join(map(os.fsencode, places)), ())

    def start(self, order: Start, fds: Sequence[int]) -> None:
        """Ask for a worker. `fds` are closed here, sent or not.

        Raises:
            LocalProtocolError: the order does not fit into a control message.
        """
        data = codec.pack(order)
        if len(data) > CONTROL_MAX // 2:
            close_all(fds)
            raise LocalProtocolError(f"the launch of {order.source!r} has {len(data)} bytes, {CONTROL_MAX // 2} fit")
        self._send(data, fds)

    def close(self) -> None:
        """End it by closing its control socket: it kills its workers and leaves. `on_gone` tells when it has."""
        self._stop_control()
        if self._pidfd >= 0:
            send_signal(self._pidfd, signal.SIGCONT)  # somebody may have stopped it

    def kill(self) -> None:
        """End it at once; its workers die with it."""
        if self._pidfd >= 0:
            send_signal(self._pidfd, signal.SIGKILL)

    # --- control socket ---------------------------------------------------------------------------------------------

    def _send(self, data: bytes, fds: Sequence[int]) -> None:
        if self._control.fileno() < 0:  # it is gone, and `on_gone` is on the way
            close_all(fds)
            return
        self._waiting.append((data, fds))
        if len(self._waiting) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._waiting:
            data, fds = self._waiting[0]
            try:
                socket.send_fds(self._control, [data], list(fds))
            except BlockingIOError:
                self._loop.add_writer(self._control, self._flush)
                return
            except OSError:  # it is gone, and its exit is on the way
                pass
            self._waiting.popleft()
            close_all(fds)
        self._loop.remove_writer(self._control)

    def _receive(self) -> None:
        for _ in range(64):
            try:
                data, fds, _flags, _ = socket.recv_fds(self._control, CONTROL_MAX, 1, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._stop_control()
                return
            self._handle(data, fds)

    def _handle(self, data: bytes, fds: list[int]) -> None:
        try:
            report: Report = codec.unpack(data, Report)
        except PeerProtocolError:
            close_all(fds)
            self.kill()
            return
        if isinstance(report, Started) and not fds:
            self.kill()  # our descriptor table is full: a worker we cannot hold must not live
            return
        self._on_report(report, fds[0] if fds else None)

    def _stop_control(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        while self._waiting:
            close_all(self._waiting.popleft()[1])

    def _died(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._process.wait()
        while self._control.fileno() >= 0:
            self._receive()  # what it reported before it died, up to the end of the stream
        self._stop_control()
        os.close(self._pidfd)
        self._pidfd = -1
        self.output.close()
        self._on_gone(self)

    @property
    def exit_status(self) -> int | None:
        """As `subprocess.Popen.returncode`: negative for a signal, `None` while it lives."""
        return self._process.returncode


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def resident(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if it is gone (proc_pid_statm(5))."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
