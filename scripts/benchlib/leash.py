"""Runs a program that ends when the bench does, even if the bench is killed: `python -m benchlib.leash ARGV...`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1  # prctl(2); kept over execve(2)


def start(argv: list[str], **popen: Any) -> subprocess.Popen[bytes]:
    """Start `argv` on the leash."""
    return subprocess.Popen([sys.executable, "-m", "benchlib.leash", *argv], **popen)


def end(process: subprocess.Popen[bytes], grace: float = 5.0) -> None:
    """End it and reap it: SIGTERM, after `grace` seconds SIGKILL."""
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.execvp(sys.argv[1], sys.argv[1:])
