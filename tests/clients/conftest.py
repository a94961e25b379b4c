"""What the client tests share: a real daemon with two real sources, and ways to wait for things to happen."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import toolsd

# A copy below the suite's own directory: its sources write, and the checkout may belong to somebody else.
WORKSHOP = Path(tempfile.gettempdir()).parent / "workshop"
shutil.copytree(Path(__file__).parent / "workshop", WORKSHOP, dirs_exist_ok=True)
(WORKSHOP / "gates").mkdir(exist_ok=True)
# How long anything may take that is waited for. Never reached when all is well.
PATIENCE = 30.0

_SERVE = """
import logging, sys
from toolsd import config, daemon
logging.basicConfig(level=logging.WARNING)
loaded = config.load(sys.argv[1])
ready = lambda service: print("ready", flush=True)
sys.exit(daemon.serve(loaded.sources, sys.argv[2], stop_timeout=loaded.daemon.stop_timeout, on_ready=ready))
"""


class Daemon:
    """`daemon.serve` in a process of its own."""

    def __init__(self, config: Path, socket: Path) -> None:
        self.config = config
        self.address = f"ipc://{socket}"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(self.config), self.address], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        status = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            self.wait()
        elif self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture(scope="package")
def daemon() -> Iterator[Daemon]:
    """One daemon for all tests that do not harm it."""
    with tempfile.TemporaryDirectory(prefix="d-") as directory:
        running = Daemon(WORKSHOP / "toolsd.toml", Path(directory, "s"))
        yield running
        running.close()


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test may kill."""
    with tempfile.TemporaryDirectory(prefix="d-") as directory:
        running = Daemon(WORKSHOP / "toolsd.toml", Path(directory, "s"))
        yield running
        running.close()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[toolsd.Client]:
    with toolsd.connect(daemon.address) as made:
        yield made


class Gate:
    """The two files a waiting tool knows: it makes `ready`, and ends when there is `release`."""

    def __init__(self, directory: Path) -> None:
        self._ready = directory / "ready"
        self._release = directory / "release"
        self.arguments = {"ready": str(self._ready), "release": str(self._release)}

    def wait_until_it_runs(self) -> None:
        eventually(self._ready.exists, "the tool runs")

    def release(self) -> None:
        self._release.touch()


@pytest.fixture
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory(dir=WORKSHOP / "gates") as directory:  # where the sources may write
        yield Gate(Path(directory))


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, with a deadline."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.005)  # between two looks at the condition


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it went before the look, or in the middle of it
        return False
