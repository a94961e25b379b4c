"""`scripts/bench`: takes the figures, prints the table.

Exits 0 when every figure could be taken, whether its goal is met or not, else 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from importlib.metadata import version

from benchlib.figures import Figure, missed, table


@dataclass(frozen=True)
class Effort:
    """How much is measured. `rounds` alternate between contenders, `seconds` is one contender's share of a round."""

    rounds: int
    seconds: float
    kills: int
    sources: int
    fragments: int


GROUPS = ("turns", "streams", "start", "kill", "memory", "large", "sandbox")
FULL = Effort(rounds=7, seconds=0.4, kills=25, sources=50, fragments=1_000_000)
QUICK = Effort(rounds=3, seconds=0.15, kills=7, sources=20, fragments=200_000)
_PACKAGES = ("toolsd", "pyzmq", "msgspec", "mcp", "openai", "langchain-core")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measure toolsd beside a limit program and peers."
    )
    parser.add_argument("--only", action="append", choices=GROUPS, help="take only these figures (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a glance, not a record")
    parser.add_argument("--sources", type=int, help="how many idle sources the memory figure is taken with")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser.parse_args()


def _machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _machine_line() -> str:
    machine = _machine()
    return (
        f"{machine['cores']} cores, load {machine['load']:.1f}, Linux {machine['kernel']}, Python {machine['python']}."
    )


def main() -> int:
    options = _options()
    effort = QUICK if options.quick else FULL
    if options.sources:
        effort = Effort(**{**asdict(effort), "sources": options.sources})
    figures: list[Figure] = []
    broken: list[str] = []
    for group in options.only or GROUPS:
        begin = time.monotonic()
        try:
            figures += importlib.import_module(f"benchlib.{group}").figures(effort)
        except Exception:
            traceback.print_exc()
            broken.append(group)
        print(f"{group}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if options.json:
        print(json.dumps({"machine": _machine(), "figures": [one.as_json() for one in figures], "broken": broken}))
    else:
        print(table(figures))
        print(f"\n{missed(figures)} goals missed. {_machine_line()}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
