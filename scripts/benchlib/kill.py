"""What a death costs: SIGKILL of a worker in a batch, until the client knows, and until the source answers again."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import toolsd
from benchlib.daemon import Daemon
from benchlib.figures import Figure

if TYPE_CHECKING:
    from benchlib.__main__ import Effort

_SOURCE = '''"""Tools that tell which process they run in, and that hold it."""

import os
import time
from pathlib import Path

import toolsd

source = toolsd.Source("victim")


@source.tool
def which() -> int:
    """The pid of this worker."""
    return os.getpid()


@source.tool
def hold(file: str) -> None:
    """Say in a file which process this is, then never return."""
    path = Path(file)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(60)
'''

# Twenty deaths a few milliseconds apart are the figure here, not a source to give up on.
_TABLE = 'start = "eager"\nrestart = { max = 1000, within = "1s", stable_after = "1ms" }'


class _Killer(threading.Thread):
    """Kills the process that names itself in `file`, as soon as it does; `killed_at` is on the perf_counter clock."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self._file = file
        self.killed_at = 0.0

    def run(self) -> None:
        end = time.monotonic() + 10
        while not self._file.exists():
            if time.monotonic() > end:
                raise TimeoutError("the tool to be killed did not start")
            time.sleep(0.001)
        pid = int(self._file.read_text())
        self.killed_at = time.perf_counter()
        os.kill(pid, signal.SIGKILL)


def figures(effort: Effort) -> list[Figure]:
    told: list[float] = []
    again: list[float] = []
    with Daemon({"victim": (_SOURCE, _TABLE)}) as daemon, toolsd.connect(daemon.address) as client:
        for n in range(effort.kills):
            before = client.call("which", {}).content
            file = daemon.home / f"held{n}"
            killer = _Killer(file)
            killer.start()
            try:
                client.call("hold", {"file": str(file)})
            except toolsd.WorkerCrashed:
                told.append(time.perf_counter() - killer.killed_at)
            after = client.call("which", {}).content
            again.append(time.perf_counter() - killer.killed_at)
            killer.join()
            if len(told) != n + 1 or before == after:
                raise AssertionError(f"kill {n} was not seen: pid {before} before, {after} after")
    return [
        Figure(
            f"SIGKILL of a worker until the client has TurnFailed, median of {len(told)}",
            statistics.median(told),
            "s",
            0.010,
        ),
        Figure("the same until the next turn on that source is answered, median", statistics.median(again), "s", 0.030),
    ]
