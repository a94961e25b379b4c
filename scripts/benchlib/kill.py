"""What a death costs: SIGKILL of a worker in a batch, until the client knows, and until the source answers again."""

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import TYPE_CHECKING

import toolsd
from benchlib.daemon import Daemon
from benchlib.figures import Figure

if TYPE_CHECKING:
    from benchlib.__main__ import Effort

_SOURCE = '''"""Tools that tell which process they run in, and that hold it."""

import os
import time

import toolsd

source = toolsd.Source("victim")


@source.tool
def which() -> int:
    """The pid of this worker."""
    return os.getpid()


@source.tool
def hold(context: toolsd.Context) -> None:
    """Say that it runs, then never return."""
    context.progress(0)
    time.sleep(60)
'''

# So many deaths a few milliseconds apart are the figure here, not a source to give up on.
_TABLE = 'start = "eager"\nrestart = { max = 1000, within = "1s", stable_after = "1ms" }'


def figures(effort: Effort) -> list[Figure]:
    told: list[float] = []
    again: list[float] = []
    with Daemon({"victim": (_SOURCE, _TABLE)}) as daemon, toolsd.connect(daemon.address) as client:
        for _ in range(effort.kills):
            pid = client.call("which").content
            killed = 0.0

            def kill(report: object, pid: int = pid) -> None:
                nonlocal killed
                killed = time.perf_counter()
                os.kill(pid, signal.SIGKILL)

            try:
                client.call("hold", on_report=kill)
                raise AssertionError("the turn did not fail")
            except toolsd.WorkerCrashed:
                told.append(time.perf_counter() - killed)
            if client.call("which").content == pid:
                raise AssertionError(f"worker {pid} outlived SIGKILL")
            again.append(time.perf_counter() - killed)
    return [
        Figure(
            f"SIGKILL of a worker until the client has TurnFailed, median of {len(told)}",
            statistics.median(told),
            "s",
            0.010,
        ),
        Figure("the same until the next turn on that source is answered, median", statistics.median(again), "s", 0.030),
    ]
