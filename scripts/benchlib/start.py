"""Starts of a Python worker in a node of the bench's own, order to READY: fork, confinement, link, source."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchlib.daemon import repeat_source
from benchlib.figures import Figure
from toolsd import transport
from toolsd.core.events import Event, WorkerExited, WorkerReady
from toolsd.core.instructions import KillWorker, StartWorker
from toolsd.launch import Launch
from toolsd.node import Node

if TYPE_CHECKING:
    from benchlib.__main__ import Effort


async def starts(home: Path, launch: Launch, count: int) -> list[float]:
    """Seconds of `count` starts, one after the other; a first one, which finds everything cold, is not counted."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    context = transport.context()
    node = Node(asyncio.get_running_loop(), context, str(home), events.put_nowait, lambda note: None)
    taken: list[float] = []

    async def until(kind: type[Event]) -> None:
        async with asyncio.timeout(20):
            while not isinstance(await events.get(), kind):
                pass

    try:
        for number in range(1, count + 2):
            begin = time.perf_counter()
            node.execute(StartWorker(number, "left", 0, launch))
            await until(WorkerReady)
            taken.append(time.perf_counter() - begin)
            node.execute(KillWorker(number, "stop"))
            await until(WorkerExited)
    finally:
        await node.close()
        context.term()
    return taken[1:]


def _fresh(home: Path, count: int) -> list[float]:
    """Seconds of a fresh interpreter that imports the same source and leaves."""
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import left"], cwd=home, check=True, timeout=30)
        taken.append(time.perf_counter() - begin)
    return taken


def figures(effort: Effort) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="toolsd-bench-") as place:
        home = Path(place)
        (home / "left.py").write_text(repeat_source("left"))
        launch = Launch(kind="python", path=str(home / "left.py"), directory=place)
        taken = asyncio.run(starts(home, launch, 2 * effort.kills))
        fresh = _fresh(home, effort.kills // 2)
    figure = Figure("start of a Python worker to READY, median", statistics.median(taken), "s", 0.010)
    return [figure.beside("a fresh interpreter that imports the source", statistics.median(fresh))]
