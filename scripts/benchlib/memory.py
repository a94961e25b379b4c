"""What an idle source costs in memory: the proportional set size of its worker (proc(5), smaps_rollup).

PSS counts a page shared by n processes 1/n to each, so the sum over all processes is what they take together.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import toolsd
from benchlib.daemon import Daemon, repeat_source
from benchlib.figures import Figure

if TYPE_CHECKING:
    from benchlib.__main__ import Effort


def pss(pid: int) -> int:
    """Bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss in smaps_rollup of {pid}")


def figures(effort: Effort) -> list[Figure]:
    count = effort.sources
    names = [f"idle{n}" for n in range(count)]
    with Daemon({name: (repeat_source(name), 'start = "eager"') for name in names}) as daemon:
        with toolsd.connect(daemon.address) as client:
            client.tools()  # waits until every source was looked at
        workers = daemon.workers()
        if len(workers) != count:
            raise AssertionError(f"{count} eager sources, but {len(workers)} workers")
        each = [pss(pid) for pid in workers]
        everything = sum(pss(process.pid) for process in daemon.processes())
    return [
        Figure(f"PSS of a worker, {count} idle sources, mean", statistics.mean(each), "bytes", 6 << 20),
        Figure("the same with coordinator and forkserver, a source", everything / count, "bytes"),
    ]
