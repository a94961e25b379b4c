"""Where a coordinator lives on disk: its directory, its socket path, and the lock that makes it the only one.

Owns every check that keeps another user's file, a stale socket or a second daemon from being mistaken for ours.
It must not know messages, zmq or processes: it hands out paths and holds a lock.

Layout below the runtime directory (0700, ours): `toolsd.sock` is this user's daemon and `toolsd.sock.lock` says who
holds it; `run-*/` is the working directory of one living coordinator, where an embedded one also has its socket. Each
`run-*` holds a lock too, so a later start can tell which were left by a killed coordinator, and remove them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from toolsd.errors import AlreadyRunning, ConfigError, CoordinatorUnreachable, UsageError

SOCKET_NAME = "toolsd.sock"
# sockaddr_un.sun_path has 108 bytes on Linux, one of them for the final NUL (unix(7)).
PATH_MAX = 107
_RUN_PREFIX = "run-"
# Sockets of workers are made below `run-XXXXXXXX/`; their names stay within this many bytes.
_NAME_ROOM = 24
# A `run-*` without a lock is swept when it is older than this (seconds); a younger one may be on its way.
_SWEEP_AGE = 60.0


def location(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this user's runtime directory is: `$XDG_RUNTIME_DIR/toolsd`, else `/tmp/toolsd-UID`."""
    base = environ.get("XDG_RUNTIME_DIR", "")
    # A relative value is invalid and to be ignored (XDG Base Directory Specification, "Environment variables").
    return Path(base, "toolsd") if base.startswith("/") else Path(f"/tmp/toolsd-{os.getuid()}")


def directory() -> Path:
    """This user's runtime directory, made when missing.

    Raises:
        ConfigError: it is a symlink, not a directory, another user's, or open to others.
    """
    path = location()
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(
            f"the runtime directory {path} cannot be made: {error.strerror}",
            hint="set XDG_RUNTIME_DIR to a directory that is yours alone, or unset it",
        ) from error
    _check_private(path)
    return path


def _check_private(path: Path) -> None:
    found = path.lstat()
    reason = None
    if stat.S_ISLNK(found.st_mode):
        reason = "is a symbolic link"
    elif not stat.S_ISDIR(found.st_mode):
        reason = "is not a directory"
    elif found.st_uid != os.getuid():
        reason = f"belongs to uid {found.st_uid}, and this is uid {os.getuid()}"
    elif found.st_mode & 0o077:
        reason = f"is open to others (mode {stat.S_IMODE(found.st_mode):04o}, 0700 is needed)"
    if reason is not None:
        raise ConfigError(
            f"the runtime directory {path} {reason}; toolsd will not use it",
            hint=f"remove it or run `chmod 700 {path}`" if found.st_uid == os.getuid() else "set XDG_RUNTIME_DIR",
        )


def socket_path(address: str | None = None) -> Path:
    """The socket file of `address`: an `ipc://` URL, a plain path, or (None) this user's daemon.

    Raises:
        ConfigError: the path does not fit into a socket address, or the runtime directory is refused.
        UsageError: the address is of another kind.
    """
    if address is None:
        path = directory() / SOCKET_NAME
    else:
        text = address.removeprefix("ipc://")
        if "://" in text or not text:
            raise UsageError(f"{address!r} is not an address of a coordinator", hint="give ipc:///absolute/path.sock")
        path = Path(text).absolute()
    size = len(os.fsencode(path))
    if size > PATH_MAX:
        raise ConfigError(
            f"the socket path has {size} bytes and the kernel allows {PATH_MAX}: {path}",
            hint="set XDG_RUNTIME_DIR to a shorter path, or name a shorter one with --socket",
        )
    return path


def address_of(path: Path) -> str:
    """`path` as a zmq address."""
    return f"ipc://{path}"


def explain_absence(address: str) -> CoordinatorUnreachable:
    """Why nobody answers at `address`, found by looking and trying once."""
    path = socket_path(address)
    start = 'start one with `toolsd serve`, or embed one with `toolsd.local("toolsd.toml")`'
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        probe.connect(os.fspath(path))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return CoordinatorUnreachable(f"no coordinator is running: there is no socket {path}", hint=start)
        if error.errno == errno.ECONNREFUSED:
            return CoordinatorUnreachable(f"no coordinator is running: nobody listens on {path}", hint=start)
        return CoordinatorUnreachable(
            f"the coordinator's socket {path} cannot be reached: {error.strerror}",
            hint="a coordinator serves only the user who started it" if error.errno == errno.EACCES else None,
        )
    finally:
        probe.close()
    return CoordinatorUnreachable(
        f"something listens on {path}, but it did not answer in time",
        hint="`toolsd ps` asks it; if it hangs, end it and start it again",
    )


class Place:
    """A socket path that is ours alone until `close()`, and a working directory.

    Raises (from `claim` and `private`):
        AlreadyRunning: another process holds it; names the pid.
        ConfigError: a file that is not a stale socket of ours is in the way; it is left untouched.
    """

    def __init__(self, path: Path, work: Path, locks: list[tuple[int, Path]]) -> None:
        self.path = path
        self.work = work
        self._locks = locks
        self._pid = os.getpid()

    @property
    def address(self) -> str:
        return address_of(self.path)

    @classmethod
    def claim(cls, address: str | None = None) -> Place:
        """Take the socket of `address` (None: this user's daemon)."""
        path = socket_path(address)
        lock = path.with_name(path.name + ".lock")
        held = _lock(lock, path)
        try:
            _remove_stale(path)
            work, inner = _make_work()
        except BaseException:
            _unlock(held, lock)
            raise
        return cls(path, work, [inner, (held, lock)])

    @classmethod
    def private(cls) -> Place:
        """A fresh place for a coordinator embedded in this process."""
        work, inner = _make_work()
        return cls(work / "s", work, [inner])

    def close(self) -> None:
        """Remove our files and give the place up. Idempotent; does nothing in a forked child."""
        if not self._locks or os.getpid() != self._pid:
            return
        self.path.unlink(missing_ok=True)
        shutil.rmtree(self.work, ignore_errors=True)
        while self._locks:
            _unlock(*self._locks.pop(0))

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _make_work() -> tuple[Path, tuple[int, Path]]:
    base = directory()
    size = len(os.fsencode(base)) + len("/run-XXXXXXXX/") + _NAME_ROOM
    if size > PATH_MAX:
        raise ConfigError(
            f"the runtime directory is too long for the sockets below it ({size} bytes, {PATH_MAX} allowed): {base}",
            hint="set XDG_RUNTIME_DIR to a shorter path",
        )
    _sweep(base)
    work = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=base))
    # Locked under another name first: whoever sees `lock` unlocked may believe that its holder is dead.
    fresh, lock = work / "new", work / "lock"
    held = _lock(fresh, work)
    fresh.rename(lock)
    return work, (held, lock)


def _sweep(base: Path) -> None:
    """Remove what killed coordinators left: nobody holds their lock any more."""
    for run in base.glob(_RUN_PREFIX + "*"):
        try:
            fd = os.open(run / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            with contextlib.suppress(OSError):  # being made, or its maker was killed while it made it
                if time.time() - run.stat().st_mtime > _SWEEP_AGE:
                    shutil.rmtree(run, ignore_errors=True)
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(run, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)


def _unlock(fd: int, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.close(fd)


def _lock(path: Path, owner_of: Path) -> int:
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(
                f"the lock file {path} cannot be opened: {error.strerror}",
                hint="the folder of the socket must exist and be yours",
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunning(
                f"another coordinator (pid {holder}) serves {owner_of}",
                hint="`toolsd stop` ends it; `--socket` chooses another address",
            ) from None
        # The holder before us may have removed the file between our open and our lock; then we hold nothing.
        if _same_file(fd, path):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            return fd
        os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path} exists and is not a socket; toolsd will not remove it")
    if found.st_uid != os.getuid():
        raise ConfigError(f"the socket {path} belongs to uid {found.st_uid}; toolsd will not remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        if probe.connect_ex(os.fspath(path)) != errno.ECONNREFUSED:
            raise ConfigError(f"another program listens on the socket {path}; toolsd will not remove it")
    path.unlink()
