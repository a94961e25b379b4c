"""Resource limits of one worker, set in it before it is sealed (setrlimit(2)).

Owns which limit the kernel gets for which number in the configuration. A limit is only ever lowered.
"""

from __future__ import annotations

import os
import resource

from toolsd.launch import Limits, MiB

# What a worker's address space may have beyond its memory limit: mapped files, and reservations that are never
# touched (a malloc arena reserves 64 MiB, importing numpy 136 MiB).
_RESERVED = 1024 * MiB
# The CPU limit comes as SIGXCPU first, which names itself; the hard limit is SIGKILL for code that ignores it.
_CPU_GRACE = 2
# Threads the runtime itself needs: the main one, and libzmq's two.
_OWN_THREADS = 3
# How many threads a source may have that cannot start processes and has a uid of its own, if nobody says.
_THREADS = 256


def apply(limits: Limits, *, own_uid: bool, grouped: bool) -> None:
    """Set them. `own_uid`: the worker will have a uid that nobody else has, so that what the kernel counts is exact.

    `grouped`: a control group counts its tasks.

    Raises:
        OSError: the kernel refused one.
    """
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_MSGQUEUE, 0)
    lower(resource.RLIMIT_SIGPENDING, 1024)
    lower(resource.RLIMIT_NOFILE, limits.open_files)
    tasks = allowed_tasks(limits, exact=own_uid)
    if tasks is not None and (own_uid or not grouped):
        lower(resource.RLIMIT_NPROC, tasks if own_uid else tasks + _tasks_of_user())
    if limits.file_size is not None:
        lower(resource.RLIMIT_FSIZE, limits.file_size)
    if limits.cpu_time is not None:
        soft = max(1, round(limits.cpu_time))
        lower(resource.RLIMIT_CPU, soft, soft + _CPU_GRACE)
    if limits.memory is not None:
        lower(resource.RLIMIT_DATA, limits.memory)
        lower(resource.RLIMIT_AS, limits.memory + _RESERVED)


def of_tree(limits: Limits) -> bool:
    """Whether a limit is about the worker and all it starts together: a control group is wanted. Pure."""
    return limits.memory is not None or limits.processes > 1 or limits.threads is not None


def allowed_tasks(limits: Limits, *, exact: bool) -> int | None:
    """How many threads and processes together a worker may have. None: nothing bounds them. Pure.

    `exact`: the worker's tasks alone are counted, by its own uid or its control group. Else the kernel counts all tasks
    of a uid (RLIMIT_NPROC). An ordinary user's other programs count too and would starve a worker of threads, so there
    the limit is set only when somebody asked for it, or when processes may be started.
    """
    more = limits.processes - 1
    if limits.threads is not None:
        return _OWN_THREADS + more + limits.threads
    if more:
        return _OWN_THREADS + more
    return _OWN_THREADS + _THREADS if exact else None


def lower(which: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit; what is lower already stays."""
    ceiling = resource.getrlimit(which)[1]
    hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))


def _tasks_of_user() -> int:
    """How many tasks this user has now, the caller's own not counted."""
    uid = os.getuid()
    count = -1
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.stat(f"/proc/{entry}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{entry}/task"))
            except OSError:
                continue
    return max(count, 0)
