"""The limits that no kernel call sets once and for all: memory of a whole worker tree, size of its scratch directory.

Owns the node's control groups, and the look at what has none ("polled"). Says who broke what; kills nobody. Must not
know batches or how a worker is started.

Where a group can be made, the kernel bounds memory and ends a process when it is used up; what is looked at is only
whether it did, so that no worker goes on as if nothing had happened when it lost a child. Elsewhere the memory of the
tree is looked at as the scratch directories always are, and can be passed for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec

from toolsd.launch import Limits
from toolsd.sandbox import cgroup, scratch, tree
from toolsd.sandbox.limits import allowed_tasks, of_tree

# How often one looks. Seconds.
_POLL = 0.25


class Breach(msgspec.Struct, frozen=True):
    """A limit that was passed: the verdict, and for people what was seen."""

    verdict: Literal["memory", "scratch"]
    seen: str


class _Watched(msgspec.Struct, frozen=True):
    """What is looked at. `group`: None where its memory is polled."""

    pid: int
    limits: Limits
    scratch: str
    group: cgroup.Group | None


class Bounds:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_breach: Callable[[int, Breach], None]) -> None:
        """`on_breach` is called with a worker's number, once or more often, until `forget`."""
        self._loop = loop
        self._on_breach = on_breach
        cgroup.sweep()
        self._home: cgroup.Home | cgroup.Unavailable | None = None
        self._groups: dict[int, cgroup.Group] = {}
        self._watched: dict[int, _Watched] = {}
        self._timer = loop.call_later(_POLL, self._poll)

    def group(self, worker: int, limits: Limits, *, demanded: bool) -> cgroup.Group | None:
        """A control group for a worker that needs one. None where there can be none, if nobody `demanded` it.

        Raises:
            cgroup.Unavailable: it was demanded.
            OSError: the kernel made none.
        """
        if not (demanded or of_tree(limits)):
            return None
        if self._home is None:
            try:
                self._home = cgroup.Home(cgroup.find())
            except cgroup.Unavailable as unavailable:
                self._home = unavailable
        if isinstance(self._home, cgroup.Unavailable):
            if demanded:
                raise self._home
            return None
        group = self._home.make(f"w{worker}", limits.memory, allowed_tasks(limits, exact=True))
        self._groups[worker] = group
        return group

    def watch(self, worker: int, pid: int, limits: Limits, scratch: str) -> None:
        """From now on, look at what the kernel does not bound."""
        if limits.scratch_size is not None or limits.memory is not None:
            self._watched[worker] = _Watched(pid, limits, scratch, self._groups.get(worker))

    def struck(self, worker: int) -> Breach | None:
        """Whether the kernel has killed something of a worker for its memory. Cheap for workers without a group."""
        group = self._groups.get(worker)
        return None if group is None else _struck(group)

    def forget(self, worker: int) -> cgroup.Group | None:
        """A worker is gone. Gives its group, which the caller removes: that can take a while."""
        self._watched.pop(worker, None)
        return self._groups.pop(worker, None)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def close(self) -> None:
        """Every group was removed. Idempotent."""
        if isinstance(self._home, cgroup.Home):
            self._home.close()

    def _poll(self) -> None:
        watched = [*self._watched.items()]
        if not watched:
            self._timer = self._loop.call_later(_POLL, self._poll)
            return
        self._loop.run_in_executor(None, _look, watched).add_done_callback(self._looked)

    def _looked(self, look: asyncio.Future[list[tuple[int, Breach]]]) -> None:
        if look.cancelled() or self._timer.cancelled():
            return
        for number, breach in look.result():
            if number in self._watched:
                self._on_breach(number, breach)
        self._timer = self._loop.call_later(_POLL, self._poll)


def _look(watched: list[tuple[int, _Watched]]) -> list[tuple[int, Breach]]:
    """Runs on another thread: who has passed which limit."""
    found = ((number, _breach(one)) for number, one in watched)
    return [(number, breach) for number, breach in found if breach is not None]


def _breach(one: _Watched) -> Breach | None:
    limits = one.limits
    if one.group is not None and (breach := _struck(one.group)) is not None:
        return breach
    if limits.memory is not None and one.group is None:
        used = tree.used(one.pid, limits.memory)
        if used > limits.memory:
            seen = f"{used} bytes in the worker and what it started, limits.memory is {limits.memory} (polled)"
            return Breach("memory", seen)
    if limits.scratch_size is not None and scratch.used(one.scratch, limits.scratch_size) > limits.scratch_size:
        return Breach("scratch", f"its scratch directory has more than {limits.scratch_size} bytes (polled)")
    return None


def _struck(group: cgroup.Group) -> Breach | None:
    try:
        kills = group.oom_kills()
    except OSError:  # its worker ended and it is being removed
        return None
    if not kills:
        return None
    return Breach("memory", "limits.memory was used up in its cgroup, and the kernel's out-of-memory killer struck")
