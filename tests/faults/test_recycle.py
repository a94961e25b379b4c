"""Recycling a worker that is well: between batches, the successor first, and no turn lost."""

from __future__ import annotations

import threading
import time

from clients.conftest import PATIENCE, eventually

from .conftest import Open

CODE = """
source = toolsd.Source("leaky")
kept = []


@source.tool
def leak(mib: int = 0) -> int:
    kept.append(bytearray(mib << 20))
    return os.getpid()
"""


def test_after_so_many_turns_the_worker_is_another_and_no_turn_is_lost(house: Open) -> None:
    """E11, E19: the queue belongs to the daemon, so replacing a worker strands nothing."""
    one = house({"leaky": (CODE, "recycle = { turns = 20 }\n")})
    pids: list[int] = []

    end = time.monotonic() + PATIENCE

    def load() -> None:
        with one.client() as client:
            while len(set(pids)) < 4 and time.monotonic() < end:
                pids.append(int(client.call("leak").content))

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(set(pids)) >= 4
    with one.client() as client:
        (source,) = client.ps()["sources"]
        assert (source["restarts"], client.ps()["counters"]["turns_failed"]) == (0, 0)
    eventually(lambda: len(one.workers("leaky")) == 1, "the last one replaced has left")


def test_a_worker_that_grew_is_replaced(house: Open) -> None:
    """E11, by memory."""
    one = house({"leaky": (CODE, "recycle = { rss = '256MiB' }\n")})
    with one.client() as client:
        pid = client.call("leak").content
        assert client.call("leak", {"mib": 300}).content == pid
        eventually(lambda: client.call("leak").content != pid, "another worker serves")
