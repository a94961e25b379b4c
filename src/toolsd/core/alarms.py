"""Who wants to be woken when: a heap of instants with lazy deletion.

Owns the order of alarms. Knows nothing of what its owners do when theirs rings.

Each owner has one alarm, the earliest instant at which it may have something to do. An owner that is armed for an
earlier instant already is left alone, so the hot path pushes once per worker and deadline, not once per batch; when
the alarm rings the owner looks at what is due and arms itself again. An alarm that was taken back stays in the heap
until it surfaces, or until such entries are half of the heap, which is then rebuilt.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol

_REBUILD_ABOVE = 64


class Armed(Protocol):
    """Something that can be woken. `alarm` is the instant it is armed for, written by `Alarms` alone."""

    alarm: float | None


class Alarms:
    """The alarms of one machine."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Armed]] = []
        self._pushed = 0
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, owner: Armed, when: float) -> None:
        """Wake `owner` at `when` at the latest."""
        if owner.alarm is not None:
            if owner.alarm <= when:
                return
            self._discard()
        owner.alarm = when
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, owner))

    def disarm(self, owner: Armed) -> None:
        """Forget the alarm of `owner`, if it has one."""
        if owner.alarm is not None:
            owner.alarm = None
            self._discard()

    def due(self, now: float) -> list[Armed]:
        """The owners whose instant has come, in that order; they are no longer armed."""
        woken: list[Armed] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, owner = heappop(heap)
            if owner.alarm == when:
                owner.alarm = None
                woken.append(owner)
            else:
                self._stale -= 1
        return woken

    def next(self) -> float | None:
        """The earliest instant somebody is armed for."""
        heap = self._heap
        while heap and heap[0][2].alarm != heap[0][0]:
            heappop(heap)
            self._stale -= 1
        return heap[0][0] if heap else None

    def _discard(self) -> None:
        self._stale += 1
        if self._stale > _REBUILD_ABOVE and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].alarm == entry[0]]
            heapify(self._heap)
            self._stale = 0
