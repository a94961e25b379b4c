"""A large payload on its way: whether it arrives whole, and what turns beside it feel.

The large turns are made by a second process (`python -m benchlib.large ADDRESS SECONDS`), so that only the daemon, not
the measuring client, is what both kinds of turn share.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import toolsd
from benchlib import leash, work
from benchlib.daemon import Daemon, repeat_source
from benchlib.figures import Figure
from benchlib.measure import percentile, repeat

if TYPE_CHECKING:
    from benchlib.__main__ import Effort

_SIZE = 64 << 20
_SOURCE = '''"""A tool that gives back what it gets."""

import toolsd

source = toolsd.Source("large")


@source.tool
def mirror(text: str) -> str:
    """The text itself."""
    return text
'''


def _mirror(address: str, seconds: float) -> dict[str, Any]:
    """Send 64 MiB there and back for `seconds`; how often, and whether every byte came back equal."""
    text = random.Random(1).randbytes(_SIZE // 2).hex()
    taken: list[float] = []
    equal = True
    with toolsd.connect(address) as client:
        end = time.monotonic() + seconds
        while not taken or time.monotonic() < end:
            begin = time.perf_counter()
            equal = client.call("mirror", {"text": text}).content == text and equal
            taken.append(time.perf_counter() - begin)
            if len(taken) == 1:
                print("running", flush=True)
    return {"turns": len(taken), "median": sorted(taken)[len(taken) // 2], "equal": equal}


def figures(effort: Effort) -> list[Figure]:
    seconds = 4 * effort.seconds
    sources = {
        "left": (repeat_source("left"), 'start = "eager"'),
        "large": (_SOURCE, 'start = "eager"\nresult_max = "128MiB"'),
    }
    with Daemon(sources) as daemon, toolsd.connect(daemon.address) as client:

        def turn() -> None:
            client.call("left_repeat", json.loads(work.arguments()))

        repeat(turn, seconds / 3)
        alone = percentile(repeat(turn, seconds), 95)
        other = leash.start(
            [sys.executable, "-m", "benchlib.large", daemon.address, str(2 * seconds)], stdout=subprocess.PIPE
        )
        try:
            assert other.stdout is not None
            if not select.select([other.stdout], [], [], 60)[0] or other.stdout.readline() != b"running\n":
                raise RuntimeError("the process with the large turns did not get going")
            beside = percentile(repeat(turn, seconds), 95)
            report = json.loads(other.communicate(timeout=60)[0])
        finally:
            leash.end(other)
    if not report["equal"]:
        raise AssertionError("64 MiB did not come back byte-equal")
    return [
        Figure("64 MiB argument and 64 MiB result, byte-equal, median", report["median"], "s"),
        Figure("p95 of other turns beside them", beside, "s").beside("without them", alone, at_most=2),
    ]


if __name__ == "__main__":
    print(json.dumps(_mirror(sys.argv[1], float(sys.argv[2]))))
