"""What a worker has used of the memory it may have: whether a failed allocation proves that memory ran out.

Owns the reading of our own figures (proc(5), status). Must not know batches.
"""

from __future__ import annotations

import os

# A MemoryError is proof of exhaustion only if the worker had really used most of what it may have.
_NEAR = 0.75


class Memory:
    """Made in the worker before foreign code runs. `limit` is bytes, `None` is unlimited.

    `status` is the descriptor of our /proc/self/status (proc(5)), opened before the sandbox closed the way to it.
    """

    def __init__(self, status: int, limit: int | None) -> None:
        self.limit = limit
        self._status = status
        self._size_at_start = self._figures().get("VmSize", 0)

    def peak(self) -> int:
        """The most bytes that were used at a time since the start."""
        figures = self._figures()
        return max(figures.get("VmHWM", 0), figures.get("VmPeak", 0) - self._size_at_start)

    def is_used_up(self) -> bool:
        """Whether nearly all of the limit was used; never without a limit, for then the kernel would have killed us."""
        return self.limit is not None and self.peak() >= _NEAR * self.limit

    def _figures(self) -> dict[str, int]:
        figures = {}
        for line in os.pread(self._status, 8192, 0).splitlines():
            if line.startswith(b"Vm"):
                name, value = line.split()[:2]
                figures[name.decode().rstrip(":")] = int(value) * 1024
        return figures
