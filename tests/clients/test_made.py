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


def test_a_blocking_client_does_not_load_asyncio_or_a_coordinator() -> None:
    script = """
import sys, toolsd
toolsd.connect("ipc:///nowhere")
print(*sorted({"asyncio", "toolsd.service", "toolsd.config", "toolsd.node"} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"
