"""The proof: a process sealed like a worker attacks decoys, and what gets through names the guarantee that is broken.

Owns the decoys and the proof's attacks. A kernel that answers "done" and enforces nothing is what this is for, so
it trusts no return value of the steps that seal, only what the attacks could do. One canary costs a fork and a few
milliseconds; the forkserver runs one for each kind of seal before the first worker that has it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import msgspec

from toolsd.launch import Limits
from toolsd.sandbox import exhaust
from toolsd.sandbox import seal as sealing
from toolsd.sandbox.attempt import Attempt, tried
from toolsd.sandbox.cgroup import Group
from toolsd.sandbox.kernel import syscall
from toolsd.sandbox.seal import Seal
from toolsd.sandbox.syscalls import ARCHITECTURES, Architecture
from toolsd.sandbox.tier import GUARANTEES

# How long the proof may take. Much longer than it does; a canary that hangs has proved nothing.
_PATIENCE = 10.0


class Breach(msgspec.Struct, frozen=True):
    """An attack that got through, or a seal that could not be applied."""

    guarantee: str
    attempt: str
    answer: str

    @property
    def names(self) -> tuple[str, ...]:
        """The guarantees that are broken."""
        return tuple(GUARANTEES) if self.guarantee == "all" else (self.guarantee,)

    def __str__(self) -> str:
        return f"cannot guarantee {', '.join(self.names)}: {self.attempt}: {self.answer}"


class _Decoys(msgspec.Struct, frozen=True):
    folder: str
    secret: str
    stream: str
    datagram: str
    port: int
    parent: int


def prove(seal: Seal, limits: Limits, room: str, scratch: str) -> tuple[Breach, ...]:
    """Attack from inside `seal` and `limits`. Called in a process with one thread; makes and removes its decoys below
    `room`.

    `room` must be outside every grant; `scratch` is what the seal grants for writing.
    """
    with _decoys(room) as decoys:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _attack(seal, limits, scratch, decoys, writing)
        os.close(writing)
        try:
            report = _collect(reading)
        finally:
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        if report is None:
            how = os.waitstatus_to_exitcode(status)
            return (Breach("all", "running the canary", f"it ended with {how} before it had proved anything"),)
        if _changed(decoys):
            return (*report, Breach("fs", "changing a file outside the grants", "the decoy changed"))
        return report


def prove_group(group: Group) -> tuple[Breach, ...]:
    """Whether a control group made with `exhaust.GROUP_MEMORY` and `GROUP_TASKS` holds what is in it. It can be used
    once. Called in a process with one thread.
    """
    answer = exhaust.group_holds(group)
    return () if answer is None else (Breach("tree", "passing the limits of a control group", answer),)


@contextmanager
def _decoys(room: str) -> Iterator[_Decoys]:
    """Everything a hostile source would look for, open to every uid, so that only the seal can protect it."""
    folder = tempfile.mkdtemp(prefix="canary-", dir=room)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chmod(folder, 0o777)
        secret = os.path.join(folder, "secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write("secret")
        os.chmod(secret, 0o666)
        with (
            closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as stream,
            closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as datagram,
            closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as tcp,
        ):
            for name, listener in (("stream", stream), ("datagram", datagram)):
                listener.bind(f"/proc/self/fd/{directory}/{name}")  # however long the path of the room is
                os.chmod(os.path.join(folder, name), 0o777)
            stream.listen()
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            port = tcp.getsockname()[1]
            yield _Decoys(folder, secret, f"{folder}/stream", f"{folder}/datagram", port, os.getpid())
    finally:
        os.close(directory)
        shutil.rmtree(folder, ignore_errors=True)


def _changed(decoys: _Decoys) -> bool:
    try:
        with open(decoys.secret, encoding="ascii") as file:
            intact = file.read() == "secret"
        return not intact or sorted(os.listdir(decoys.folder)) != ["datagram", "secret", "stream"]
    except OSError:
        return True


def _collect(reading: int) -> tuple[Breach, ...] | None:
    data = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN | select.POLLHUP)
    while poll.poll(_PATIENCE * 1000):
        piece = os.read(reading, 65536)
        if not piece:
            return msgspec.msgpack.decode(data, type=tuple[Breach, ...]) if data else None
        data += piece
    return None


def _attack(seal: Seal, limits: Limits, scratch: str, decoys: _Decoys, report: int) -> None:
    try:
        breaches = []
        own_uid = seal.uid is not None
        try:
            exhaust.enter(limits, own_uid=own_uid)
            sealing.enforce(seal, decoys.parent)
        except OSError as error:
            breaches.append(Breach("all", "sealing a process", str(error)))
        else:
            for attempt in (*_attempts(seal, decoys), *exhaust.attempts(limits, scratch, own_uid=own_uid)):
                answer = tried(attempt)
                if answer is not None:
                    breaches.append(Breach(attempt[0], attempt[1], answer))
        os.write(report, msgspec.msgpack.encode(breaches))
    finally:
        os._exit(0)


def _attempts(seal: Seal, decoys: _Decoys) -> Iterator[Attempt]:
    """(guarantee, what is tried, how)."""
    arch, profile = ARCHITECTURES[seal.architecture], seal.profile
    secret, parent = decoys.secret, decoys.parent
    yield "fs", "reading a file outside the grants", lambda: os.open(secret, os.O_RDONLY)
    yield "fs", "writing a file outside the grants", lambda: os.open(secret, os.O_WRONLY)
    yield "fs", "emptying a file outside the grants", lambda: os.truncate(secret, 0)
    yield "fs", "listing a folder outside the grants", lambda: os.listdir(decoys.folder)
    yield "fs", "making a file outside the grants", lambda: os.mkdir(secret + ".new")
    yield "fs", "removing a file outside the grants", lambda: os.unlink(secret)
    if not profile.file_metadata:
        yield "fs", "changing the mode of a file", lambda: os.chmod(secret, 0o600)
    yield "proc", "reading another process's environment", lambda: os.open(f"/proc/{parent}/environ", os.O_RDONLY)
    yield "proc", "tracing another process", _call(arch, "ptrace", 0x4206, parent, 0, 0)
    yield "proc", "reading another process's memory", _call(arch, "process_vm_readv", parent, 0, 0, 0, 0, 0)
    yield "signal", "signalling another process", lambda: os.kill(parent, 0)
    yield "unix", "opening a unix socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    yield "unix", "a pair of datagram sockets", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    yield "net", "opening a netlink socket", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    if profile.network == "none":
        yield "net", "opening a TCP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if profile.network != "allow":
        yield "net", "opening a UDP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if profile.processes == 1:
        yield "spawn", "starting a process", os.fork
    surface: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("unshare", (0x10000000,)),
        ("io_uring_setup", (1, 0)),
        ("userfaultfd", (1,)),
        ("bpf", (0, 0, 0)),
        ("keyctl", (0, -3, 0)),
        ("mount", (0, 0, 0, 0, 0)),
    )
    for name, arguments in surface:
        yield "kernel-surface", f"calling {name}", _call(arch, name, *arguments)


def _call(arch: Architecture, name: str, *arguments: int) -> Callable[[], int]:
    return lambda: syscall(arch, name, *arguments)
