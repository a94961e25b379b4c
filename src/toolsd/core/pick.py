"""Which replica gets a batch: the least loaded one, or the one a session belongs to.

Pure choice among candidates. Knows nothing of queues or of why a candidate is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from toolsd.core.replica import Worker


def least_loaded(seats: Sequence[Worker | None]) -> Worker | None:
    """The worker with room that holds the fewest batches; the lowest seat among equals."""
    best: Worker | None = None
    for worker in seats:
        if worker is not None and worker.room and (best is None or len(worker.batches) < len(best.batches)):
            best = worker
            if not best.batches:
                break
    return best


def rendezvous(session: str, seats: Iterable[int]) -> int:
    """The seat with the highest weight for `session`: when one seat goes, only its own sessions move."""
    return max(seats, key=lambda seat: (_weight(session, seat), seat))


def _weight(session: str, seat: int) -> bytes:
    return blake2b(f"{seat}\0{session}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
