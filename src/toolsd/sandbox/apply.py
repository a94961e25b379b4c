"""Applies a plan to the calling process: after the fork, before the first line of foreign code.

Must be called in a process with one thread. Each step either holds or raises; there is no best effort.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable

from toolsd.launch import MiB
from toolsd.sandbox import kernel
from toolsd.sandbox.plan import Plan

# What a worker's address space may have beyond its memory limit: mapped files, and reservations that are never
# touched (a malloc arena reserves 64 MiB, importing numpy 136 MiB).
_RESERVED = 1024 * MiB
# The CPU limit comes as SIGXCPU first, which names itself; the hard limit is SIGKILL for code that ignores it.
_CPU_GRACE = 2


def die_with_parent(parent: int, death_signal: signal.Signals) -> None:
    """Get `death_signal` when the parent dies; leave at once if it is dead already (prctl(2), PR_SET_PDEATHSIG)."""
    kernel.set_parent_death_signal(death_signal)
    if os.getppid() != parent:
        os._exit(0)


def become_subreaper() -> None:
    """Orphaned descendants of this process become its children, wherever they tried to hide."""
    kernel.set_child_subreaper()


def apply(plan: Plan, *, parent: int, keep: Iterable[int], output: int) -> None:
    """Confine the calling process.

    Args:
        parent: the pid that must still be our parent.
        keep: descriptors that stay open, besides 0, 1 and 2.
        output: becomes standard output and standard error.

    Raises:
        OSError: the kernel or a hard limit refused a step; nothing foreign may run then.
    """
    die_with_parent(parent, signal.SIGKILL)
    os.setsid()
    os.umask(0o077)
    _descriptors(sorted(keep), output)
    _environment(plan.env)
    os.chdir(plan.scratch)
    become_subreaper()
    _limits(plan)
    kernel.set_no_new_privs()


def _descriptors(keep: list[int], output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    low = 3
    for fd in keep:
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, max(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def _limits(plan: Plan) -> None:
    limits = plan.limits
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.file_size is not None:
        _lower(resource.RLIMIT_FSIZE, limits.file_size)
    if limits.cpu_time is not None:
        soft = max(1, round(limits.cpu_time))
        _lower(resource.RLIMIT_CPU, soft, soft + _CPU_GRACE)
    if limits.memory is not None:
        _lower(resource.RLIMIT_DATA, limits.memory)
        _lower(resource.RLIMIT_AS, limits.memory + _RESERVED)


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    ceiling = resource.getrlimit(which)[1]
    hard = soft if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))
