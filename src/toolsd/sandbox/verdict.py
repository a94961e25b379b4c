"""What ended a worker: from what was seen of its death to one word. Pure.

Owns the words. Never guesses: a SIGKILL that nothing explains is `killed_externally`, and never a timeout.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal[
    "exited",
    "memory",
    "cpu",
    "wall",
    "scratch",
    "file_size",
    "forbidden_syscall",
    "crash",
    "crash_near_memory_limit",
    "killed_externally",
]

# How near the limit the peak must be for a crash to be called near it.
_NEAR = 0.9


class Seen(msgspec.Struct, frozen=True):
    """What is known of an exit. `signal` is a name; `cpu` and `cpu_limit` seconds, `peak_rss` and `memory` bytes.

    `oom` is proof of exhausted memory, `breach` names the limit for which we killed it ourselves.
    """

    exit_code: int | None = None
    signal: str | None = None
    cpu: float = 0.0
    cpu_limit: float | None = None
    peak_rss: int | None = None
    memory: int | None = None
    oom: str | None = None
    breach: Literal["scratch", "memory"] | None = None
    deadline: bool = False


def judge(seen: Seen) -> Verdict:
    """The verdict of an exit that nobody ordered (a cancel, a stop), a batch's deadline apart."""
    if seen.deadline:
        return "wall"
    if seen.breach is not None:
        return seen.breach
    if seen.oom is not None:
        return "memory"
    if seen.signal == "SIGXCPU":
        return "cpu"
    if seen.signal == "SIGKILL" and seen.cpu_limit is not None and seen.cpu >= seen.cpu_limit:
        return "cpu"
    if seen.signal == "SIGXFSZ":
        return "file_size"
    if seen.signal == "SIGSYS":
        return "forbidden_syscall"
    if seen.signal == "SIGKILL":
        return "killed_externally"
    if seen.signal is not None:
        near = seen.peak_rss is not None and seen.memory is not None and seen.peak_rss > _NEAR * seen.memory
        return "crash_near_memory_limit" if near else "crash"
    return "exited"
