"""The command line as a person has it: a process, its output and its exit status."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# How long anything may take that is waited for. Never reached when all is well.
PATIENCE = 60.0
COMMAND = [sys.executable, "-m", "toolsd"]
EXAMPLES = Path(__file__).parents[2] / "workers" / "python" / "examples"

WORKSHOP = '''
import os
import signal
import time

import toolsd

source = toolsd.Source("shop")


@source.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first one.
    """
    print("noise", flush=True)
    return a + b


@source.tool
def picture() -> toolsd.Blob:
    """A picture."""
    return toolsd.Blob(b"\\x00\\xff", "image/x-test")


@source.tool
def fail() -> None:
    """Fail."""
    raise toolsd.ToolError("out of \\x1b[31mluck")


@source.tool
def die() -> None:
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)


@source.tool
def hold(context: toolsd.Context, started: str, until: str) -> str:
    """Say that it runs in one file, and wait for another one."""
    with open(started, "w") as file:
        file.write(str(os.getpid()))
    while not os.path.exists(until):
        time.sleep(0.01)
    return "done"
'''


class Outcome(NamedTuple):
    """What came of one command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Toolsd = Callable[..., Outcome]


def outcome(status: int, out: bytes, err: bytes) -> Outcome:
    """A traceback is a failure of whatever test sees it."""
    said = Outcome(status, out.decode(), err.decode())
    assert "Traceback" not in said.err, said.err
    return said


def run(*arguments: str | Path, stdin: str | bytes = "", **environ: str) -> Outcome:
    """Run `toolsd ARGUMENTS` and wait for its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        check=False,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=PATIENCE,
        env={**os.environ, **environ},
    )
    return outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def toolsd() -> Toolsd:
    return run


class Running:
    """A command that goes on."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def line(self) -> str:
        """The next line of its stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> Outcome:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return outcome(self.process.returncode, out, err)

    def close(self) -> None:
        if self.process.returncode is None:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            try:
                self.process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
                raise


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start `toolsd ARGUMENTS`; it is ended with the test."""
    running: list[Running] = []

    def begin(*arguments: str | Path) -> Running:
        running.append(Running(*arguments))
        return running[-1]

    yield begin
    for one in running:
        one.close()


class Daemon(NamedTuple):
    """A daemon that is ready, with one source, `shop`. Its `toolsd` talks to it."""

    running: Running
    config: Path
    socket: str
    ready: str
    toolsd: Toolsd


@pytest.fixture
def socket() -> Iterator[str]:
    """A path for a socket that nobody else uses, short enough for one."""
    with tempfile.TemporaryDirectory(prefix="s-") as directory:
        yield f"{directory}/s"


@contextlib.contextmanager
def serving(shared: Path) -> Iterator[Daemon]:
    """`shared` is where its tools may write, besides their scratch."""
    with tempfile.TemporaryDirectory(prefix="s-") as directory:
        Path(directory, "shop.py").write_text(WORKSHOP)
        file, socket = Path(directory, "toolsd.toml"), f"{directory}/s"
        file.write_text(
            f'[source.shop]\nkind = "python"\npath = "shop.py"\nstop_timeout = "1s"\npermissions.write = ["{shared}"]\n'
        )
        running = Running("serve", "-c", file, "--socket", socket)
        try:
            yield Daemon(running, file, socket, running.line(), partial(run, "--socket", socket))
        finally:
            running.close()


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests that do not end it."""
    with serving(tmp_path_factory.getbasetemp()) as daemon:
        yield daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that the test may end."""
    with serving(tmp_path) as daemon:
        yield daemon


def appeared(file: Path) -> str:
    """Wait until `file` has something in it."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline, f"{file} did not appear"
        time.sleep(0.01)  # waits for a condition with a deadline; a file cannot be waited for otherwise
    return file.read_text()
