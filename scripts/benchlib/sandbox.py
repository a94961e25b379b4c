"""What the sandbox costs: the same source, confined and not, in two coordinators of one run, taking turns."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import toolsd
from benchlib.daemon import repeat_source
from benchlib.figures import Figure
from benchlib.start import starts
from toolsd.launch import Confinement, Launch

if TYPE_CHECKING:
    from benchlib.__main__ import Effort

_OFF = 'permissions.mode = "off"\n'


def _turns(home: Path, rounds: int) -> tuple[float, float]:
    """Median seconds of a call: (confined, not confined). Every call of one is followed by a call of the other."""
    clients = []
    for name, more in (("confined", ""), ("open", _OFF)):
        (home / name).mkdir()
        (home / name / "left.py").write_text(repeat_source("left"))
        config = home / name / "toolsd.toml"
        config.write_text(f'[source.left]\nkind = "python"\npath = "left.py"\nstart = "eager"\n{more}')
        clients.append(toolsd.local(config, allow_unsandboxed=True).open())
    taken: tuple[list[float], list[float]] = ([], [])
    try:
        for number in range(rounds + 50):
            for client, times in zip(clients, taken, strict=True):
                begin = time.perf_counter()
                client.call("left_repeat", {"text": "x", "times": 1})
                if number >= 50:
                    times.append(time.perf_counter() - begin)
    finally:
        for client in clients:
            client.close()
    return statistics.median(taken[0]), statistics.median(taken[1])


def figures(effort: Effort) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="toolsd-bench-") as place:
        home = Path(place)
        (home / "left.py").write_text(repeat_source("left"))
        launch = Launch(kind="python", path=str(home / "left.py"), directory=place)
        bare = Launch(kind="python", path=str(home / "left.py"), directory=place, confinement=Confinement(mode="off"))
        confined, unconfined = (asyncio.run(starts(home, one, 2 * effort.kills)) for one in (launch, bare))
        turn, open_turn = _turns(home, 300 * effort.rounds)
    return [
        Figure("start of a sandboxed worker to READY, median", statistics.median(confined), "s", 0.010).beside(
            "the same without a sandbox", statistics.median(unconfined)
        ),
        Figure("turn of 1 call, sandboxed, embedded, median", turn, "s").beside(
            "the same without a sandbox", open_turn, at_most=1.05
        ),
    ]
