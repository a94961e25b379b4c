"""The queue of one source: batches that wait for a worker, fair between clients.

Owns the order, and how much waits. Its owner bounds that, and the waiting time.

Each client has a line. The next batch is taken from the line that was served longest ago, so a client that submits a
thousand turns delays another one's single turn by one batch, not by a thousand.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

from toolsd.core.batch import Batch
from toolsd.core.replica import Worker


class FairQueue:
    """Lines of batches, served in turn."""

    __slots__ = ("_length", "_lines", "size")

    def __init__(self) -> None:
        self._lines: OrderedDict[Any, deque[Batch]] = OrderedDict()
        self._length = 0
        self.size = 0  # bytes of all arguments that wait

    def held(self, client: Any) -> int:
        """How many batches of this client wait."""
        line = self._lines.get(client)
        return 0 if line is None else len(line)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        for line in self._lines.values():
            yield from line

    def push(self, batch: Batch) -> None:
        """Append to the line of the batch's client."""
        client = batch.turn.client
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = deque()
        line.append(batch)
        self._length += 1
        self.size += batch.size

    def push_front(self, batch: Batch) -> None:
        """Put a batch that had its turn before anything that has not."""
        client = batch.turn.client
        line = self._lines.setdefault(client, deque())
        line.appendleft(batch)
        self._lines.move_to_end(client, last=False)
        self._length += 1
        self.size += batch.size

    def remove(self, batch: Batch) -> None:
        """Take out a batch that will not be sent."""
        client = batch.turn.client
        line = self._lines[client]
        line.remove(batch)
        self._length -= 1
        self.size -= batch.size
        if not line:
            del self._lines[client]

    def pop_for(self, worker: Worker) -> Batch | None:
        """The next batch that `worker` may take: any without a seat, or with this worker's."""
        for client, line in self._lines.items():
            for batch in line:
                if batch.seat is None or batch.seat == worker.seat:
                    self._take(client, line, batch)
                    return batch
        return None

    def _take(self, client: Any, line: deque[Batch], batch: Batch) -> None:
        if line[0] is batch:
            line.popleft()
        else:
            line.remove(batch)
        self._length -= 1
        self.size -= batch.size
        if line:
            self._lines.move_to_end(client)
        else:
            del self._lines[client]
