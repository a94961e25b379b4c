"""Applies a plan to the calling process: after the fork, before the first line of foreign code.

Must be called in a process with one thread. Each step either holds or raises; there is no best effort.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable

from toolsd.sandbox import kernel, limits
from toolsd.sandbox.plan import Plan
from toolsd.sandbox.seal import Seal, enforce


def die_with_parent(parent: int, death_signal: signal.Signals) -> None:
    """Get `death_signal` when the parent dies; leave at once if it is dead already (prctl(2), PR_SET_PDEATHSIG)."""
    kernel.prctl(kernel.PARENT_DEATH_SIGNAL, death_signal)
    if os.getppid() != parent:
        os._exit(0)


def become_subreaper() -> None:
    """Orphaned descendants of this process become its children, wherever they tried to hide."""
    kernel.prctl(kernel.CHILD_SUBREAPER, 1)


def apply(plan: Plan, seal: Seal | None, *, parent: int, keep: Iterable[int], output: int) -> int | None:
    """Confine the calling process. Returns the descriptor on which a broker answers its connects, if it has one.

    Args:
        seal: from `Gate.admit`; None for a source whose mode is off.
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
    if plan.group is not None:
        plan.group.enter()
    limits.apply(plan.limits, own_uid=seal is not None and seal.uid is not None, grouped=plan.group is not None)
    if seal is None:
        kernel.prctl(kernel.NO_NEW_PRIVS, 1)
        return None
    return enforce(seal, parent)


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
