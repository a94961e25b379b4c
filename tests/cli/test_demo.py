"""The demo tells the truth, all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


def test_demo() -> None:
    done = subprocess.run([sys.executable, DEMO], check=False, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("worker_crashed", "SIGKILL", "wait_for_file  started", "send_email", "30 facts"):
        assert said in done.stdout
