"""The command line as a person has it: a process, its output and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Outcome(NamedTuple):
    """What came of one command. `err` has no timestamps to compare; it is for people."""

    status: int
    out: str
    err: str


Toolsd = Callable[..., Outcome]


@pytest.fixture
def toolsd() -> Toolsd:
    """Run `toolsd ARGUMENTS` and wait for its end. A traceback is a failure of whatever test sees it."""

    def run(*arguments: str, stdin: str | bytes = "", timeout: float = 60, **environ: str) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "toolsd", *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            check=False,
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **environ},
        )
        outcome = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in outcome.out + outcome.err, outcome.err
        return outcome

    return run
