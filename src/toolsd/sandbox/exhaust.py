"""The canary's attempts on resource limits: each asks for one more than is allowed.

Owns what is tried, cheaply: one call for each limit, not a slow exhaustion. How many tasks there may be is not counted
up; what is proven is that the kernel counts them for this process, with an allowance of one (`lower_tasks`).
"""

from __future__ import annotations

import _thread
import errno
import mmap
import os
import resource
import signal
from collections.abc import Iterator

from toolsd.launch import Limits
from toolsd.sandbox import limits as limiting
from toolsd.sandbox.attempt import Attempt
from toolsd.sandbox.cgroup import Group

# What a group of the canary may have, and what is asked for; a group's proof touches what it asks for.
GROUP_MEMORY, GROUP_TASKS = 8 * 1024 * 1024, 1


def enter(limits: Limits, *, own_uid: bool) -> None:
    """Set the limits of the worker-to-be in the canary, and of tasks one: itself."""
    limiting.apply(limits, own_uid=own_uid, grouped=False)
    if limiting.allowed_tasks(limits, exact=own_uid) is not None:
        limiting.lower(resource.RLIMIT_NPROC, 1)


def attempts(limits: Limits, scratch: str, *, own_uid: bool) -> Iterator[Attempt]:
    """(guarantee, what is tried, how)."""
    yield "limits", "opening more files than limits.open_files", lambda: os.dup2(0, limits.open_files)
    if limits.file_size is not None:
        size = limits.file_size
        yield "limits", "writing a file beyond limits.file_size", lambda: _write_at(scratch, size)
    if limits.memory is not None:
        size = limits.memory + mmap.PAGESIZE
        yield "limits", "taking more memory than limits.memory", lambda: _private(size)
    if limits.cpu_time is not None:  # the least that can be set is a second: too long to wait for
        yield "limits", "having no limit of CPU time", _cpu_time
    if limiting.allowed_tasks(limits, exact=own_uid) is not None:
        yield "limits", "starting more threads than limits.threads", lambda: _thread.start_new_thread(int, ())
        if limits.processes > 1:
            yield "limits", "starting more processes than limits.processes", os.fork


def _write_at(scratch: str, size: int) -> None:
    path = os.path.join(scratch, "canary")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.pwrite(file, b"x", size)
    finally:
        os.close(file)
        os.unlink(path)


def _private(size: int) -> None:
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


def _cpu_time() -> None:
    if resource.getrlimit(resource.RLIMIT_CPU)[1] != resource.RLIM_INFINITY:
        raise OSError(errno.EAGAIN, "it has one")


def group_holds(group: Group) -> str | None:
    """Whether a group with `GROUP_MEMORY` and `GROUP_TASKS` holds a process to both; else what got through.

    Called in a process with one thread.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _overflow(group, writing)
    os.close(writing)
    try:
        said = os.read(reading, 200).decode()
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(reading)
    if said != "one":
        return said or f"it ended with {os.waitstatus_to_exitcode(status)} at once"
    if os.waitstatus_to_exitcode(status) != -signal.SIGKILL or not group.oom_kills():
        return f"a process took {2 * GROUP_MEMORY} bytes where {GROUP_MEMORY} are allowed"
    return None


def _overflow(group: Group, report: int) -> None:
    try:
        group.enter()
        try:
            if os.fork() == 0:
                os._exit(0)
            os.write(report, b"it started a second process where one is allowed")
        except BlockingIOError:
            os.write(report, b"one")
            area = mmap.mmap(-1, 2 * GROUP_MEMORY)
            for at in range(0, len(area), mmap.PAGESIZE):
                area[at] = 1
    except OSError as error:
        os.write(report, f"{error.filename or 'a call'}: {error.strerror}".encode()[:200])
    finally:
        os._exit(0)
