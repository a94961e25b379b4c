"""`scripts/soak`: starts everything, breaks it at random, and reports."""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from soaklib.chaos import Chaos
from soaklib.stage import Stage
from soaklib.verdict import Verdict


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long to go on (default: 2)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of everything random (default: a new one)")
    parser.add_argument("--clients", type=int, default=3, help="processes that run turns (default: 3)")
    parser.add_argument("--keep", action="store_true", help="leave the files of the run, as when it fails")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.minutes:g} minutes, {options.clients} clients", flush=True)
    home = Path(tempfile.mkdtemp(prefix="toolsd-soak-"))
    stage = Stage(home, options.seed, options.clients)
    chaos = Chaos(stage, random.Random(options.seed))
    began = time.monotonic()
    try:
        stage.open()
        chaos.run(options.minutes * 60)
        stage.close()
    finally:
        stage.abandon()
    verdict = Verdict(home)
    wrong = stage.wrong + verdict.wrong
    took = time.monotonic() - began
    print(f"{verdict.turns} turns of {verdict.calls} calls in {took:.0f} s; {verdict.ran} calls ran")
    print("ended:    " + ", ".join(f"{how} {count}" for how, count in verdict.outcomes.most_common()))
    print("faults:   " + ", ".join(f"{what} {count}" for what, count in sorted(chaos.done.items())))
    print("daemon:   " + stage.figures())
    for line in wrong[:50]:
        print(f"WRONG:    {line}")
    print(f"{len(wrong)} promises broken" if wrong else "every promise was kept")
    if wrong or options.keep:
        print(f"files:    {home}")
    else:
        shutil.rmtree(home)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
