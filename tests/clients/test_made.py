"""The blocking client is what scripts/unasync makes of the async one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_blocking_client_is_up_to_date() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "unasync"), "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
