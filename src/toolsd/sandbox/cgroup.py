"""Control groups: what bounds a worker together with everything it starts, and ends them all (cgroups(7)).

Owns the directories below /sys/fs/cgroup that this program makes: one home for each node, in it one group for each
worker. They are made below the group this process is in, so what bounds us bounds the workers too, and nothing
outside is touched. Version 1 (a hierarchy for each controller) and 2 (one for all).

A home is locked (flock) for as long as its node lives. One that nobody holds was left by a node that was killed; the
next node in the same place kills what still runs there and removes it.

Must not know sources, or why a limit is what it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterable

import msgspec

_PREFIX = "toolsd-"
_SELF, _MOUNTS = "/proc/self/cgroup", "/proc/self/mountinfo"
# How often, and at what distance in seconds, one tries to remove a group whose last processes are still dying.
_TRIES, _BETWEEN = 100, 0.02


class Unavailable(Exception):
    """No group can be made here. `str()` is what was tried and the kernel's answer."""


class Base(msgspec.Struct, frozen=True):
    """Where groups can be made: the folder of each hierarchy, by controller. With version 2 both are the same."""

    version: int
    memory: str
    pids: str

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.memory, self.pids)))


class Group(msgspec.Struct, frozen=True):
    """The group of one worker: `memory` and `pids` are its folders. Travels to the process that will enter it."""

    version: int
    memory: str
    pids: str

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.memory, self.pids)))

    def enter(self) -> None:
        """Move the calling process, which must have one thread, into the group.

        Raises:
            OSError: the kernel refused.
        """
        for folder in self.folders:
            _write(folder, "cgroup.procs", "0")

    def oom_kills(self) -> int:
        """How many processes of the group the kernel has killed because its memory was used up."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        for line in _read(self.memory, name).splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0

    def remove(self) -> None:
        """Kill what is in it and remove it. Waits for the dying; bounded."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_BETWEEN)
            gone = [_removed(folder) for folder in self.folders]
            if all(gone):
                return


def make(beside: Group, name: str, memory: int | None, tasks: int | None) -> Group:
    """A new group in the home of another, as `Home.make`."""
    at = [os.path.join(os.path.dirname(folder), name) for folder in (beside.memory, beside.pids)]
    group = Group(beside.version, *at)
    for folder in group.folders:
        os.mkdir(folder, 0o700)
    try:
        if memory is not None:
            _bound_memory(group, memory)
        if tasks is not None:
            _write(group.pids, "pids.max", str(tasks))
    except OSError:
        group.remove()
        raise
    return group


class Home:
    """The groups of one node."""

    def __init__(self, base: Base) -> None:
        """Raises `Unavailable`: the home cannot be made."""
        self._base = base
        self._name = f"{_PREFIX}{os.getuid()}-{os.urandom(6).hex()}"
        self._locks: list[int] = []
        try:
            for folder in base.folders:
                os.mkdir(os.path.join(folder, self._name), 0o700)
                self._locks.append(_lock(os.path.join(folder, self._name)))
            if base.version == 2:
                _write(os.path.join(base.memory, self._name), "cgroup.subtree_control", "+memory +pids")
        except OSError as error:
            self.close()
            raise Unavailable(_said(error, "making a group")) from error

    def make(self, name: str, memory: int | None, tasks: int | None) -> Group:
        """A new group: at most `memory` bytes, and `tasks` processes and threads.

        Raises:
            OSError: the kernel refused.
        """
        home = [os.path.join(folder, self._name, name) for folder in (self._base.memory, self._base.pids)]
        return make(Group(self._base.version, *home), name, memory, tasks)

    def close(self) -> None:
        """Remove the home; its groups are removed before. Idempotent."""
        for folder in self._base.folders:
            _clear(os.path.join(folder, self._name))
        while self._locks:
            os.close(self._locks.pop())


def find(membership: str = _SELF, mounts: str = _MOUNTS) -> Base:
    """Where this process may make groups that count memory and processes. Changes nothing but to allow it (version 2).

    Raises:
        Unavailable: nowhere.
    """
    own = _own_folders(membership, mounts)
    answers = []
    if "memory" in own and "pids" in own:
        base = Base(1, own["memory"], own["pids"])
        closed = [folder for folder in base.folders if not os.access(folder, os.W_OK)]
        if not closed:
            return base
        answers.append(f"no permission to make a group in {closed[0]}")
    if "" in own:
        # A group that has processes cannot have groups that count (cgroups(7), "no internal processes"), so with a
        # delegated unit the place is the one above: DelegateSubgroup= of systemd.resource-control(5) puts us into it.
        for folder in (own[""], os.path.dirname(own[""])):
            answer = _opened(folder)
            if answer is None:
                return Base(2, folder, folder)
            answers.append(answer)
    raise Unavailable("; ".join(answers) or "no cgroup file system with memory and pids is mounted")


def _own_folders(membership: str, mounts: str) -> dict[str, str]:
    """Our own group's folder by controller; "" is version 2 (proc_pid_mountinfo(5), cgroups(7))."""
    places: dict[str, tuple[str, str]] = {}
    for line in _lines(mounts):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        root, point = fields.split(" ")[3:5]
        if kind == "cgroup2":
            places[""] = (root, point)
        elif kind == "cgroup":
            for option in options.rpartition(" ")[2].split(","):
                places[option] = (root, point)
    found = {}
    for line in _lines(membership):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in places:
                root, point = places[controller]
                inside = os.path.relpath(path, root)
                # Not below what is mounted: a cgroup namespace shows its own root, which is then our group.
                found[controller] = point if inside.startswith("..") else os.path.normpath(os.path.join(point, inside))
    return found


def _opened(folder: str) -> str | None:
    """Let groups below a version 2 folder count memory and processes. None, or why not."""
    try:
        missing = {"memory", "pids"} - set(_read(folder, "cgroup.controllers").split())
        if missing:
            return f"{folder} has no controller {', '.join(sorted(missing))}"
        if not os.access(folder, os.W_OK):
            return f"no permission to make a group in {folder}"
        if not {"memory", "pids"} <= set(_read(folder, "cgroup.subtree_control").split()):
            _write(folder, "cgroup.subtree_control", "+memory +pids")
    except OSError as error:
        return _said(error, folder)
    return None


def _bound_memory(group: Group, memory: int) -> None:
    if group.version == 2:
        settings = {"memory.max": str(memory), "memory.swap.max": "0", "memory.oom.group": "1"}
    else:
        settings = {"memory.limit_in_bytes": str(memory), "memory.memsw.limit_in_bytes": str(memory)}
    for name, value in settings.items():
        if name in ("memory.swap.max", "memory.memsw.limit_in_bytes") and not os.path.exists(f"{group.memory}/{name}"):
            continue  # this kernel counts no swap
        _write(group.memory, name, value)


def sweep() -> None:
    """Remove this user's homes that nobody holds any more, and end what runs in them."""
    with contextlib.suppress(Unavailable):
        for folder in find().folders:
            _sweep(folder)


def _sweep(folder: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            home = os.path.join(folder, name)
            if not name.startswith(f"{_PREFIX}{os.getuid()}-") or os.stat(home).st_uid != os.getuid():
                continue
            with contextlib.suppress(OSError):
                lock = _lock(home)
                try:
                    _clear(home)
                finally:
                    os.close(lock)


def _clear(home: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(home):
            if entry.is_dir():
                Group(0, entry.path, entry.path).remove()
        os.rmdir(home)


def _lock(home: str) -> int:
    """Raises `BlockingIOError`: somebody holds it."""
    fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(home)  # whoever sweeps may have taken it for a stale one before we held it
    except OSError:
        os.close(fd)
        raise
    return fd


def _removed(folder: str) -> bool:
    """Try once: kill what is in the group, then remove it. Whether it is gone."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        with contextlib.suppress(OSError):
            _kill(folder)
        return False
    return True


def _kill(folder: str) -> None:
    if os.path.exists(f"{folder}/cgroup.kill"):
        _write(folder, "cgroup.kill", "1")
        return
    for pid in map(int, _read(folder, "cgroup.procs").split()):
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                if pid in _members(folder):  # opened before the look, so it is that process
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)


def _members(folder: str) -> Iterable[int]:
    return map(int, _read(folder, "cgroup.procs").split())


def _said(error: OSError, what: str) -> str:
    return f"{error.filename or what}: {error.strerror}"


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _read(folder: str, name: str) -> str:
    with open(f"{folder}/{name}", encoding="ascii") as file:
        return file.read()


def _write(folder: str, name: str, value: str) -> None:
    fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{folder}/{name}") from error
    finally:
        os.close(fd)
