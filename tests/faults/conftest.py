"""A real daemon with sources that the test writes, and eyes from outside: /proc, files, the exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import toolsd
from clients.conftest import PATIENCE, Gate, eventually, gate

__all__ = ["Gate", "gate"]

Table = dict[str, tuple[str, str]]
_OPEN = "permissions = { mode = 'off' }\nstart = 'eager'\n"


class House:
    """A daemon in a directory of its own. `sources` maps a name to (code below `import toolsd`, more of its table)."""

    def __init__(self, home: Path, sources: Table, defaults: str = "", env: dict[str, str] | None = None) -> None:
        self.home = home
        self.config = home / "toolsd.toml"
        self.address = f"ipc://{home}/s"
        self.log = home / "log"
        self._env = {**os.environ, **(env or {})}
        self._defaults = defaults
        self.write(sources)

    def write(self, sources: Table, more: str = "") -> None:
        """Write the configuration and the sources' files, all that differ."""
        tables = [f'[daemon]\nsocket = "{self.home}/s"\nstop_timeout = "5s"\n[defaults]\n{_OPEN}{self._defaults}']
        for name, (code, table) in sources.items():
            file = self.home / f"{name}.py"
            text = f"import asyncio, ctypes, os, signal, subprocess, sys, threading, time\nimport toolsd\n{code}"
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
            tables.append(f'[source.{name}]\nkind = "python"\npath = "{name}.py"\n{table}')
        self.config.write_text("\n".join([*tables, more]))

    def start(self, *, under: tuple[str, ...] = ()) -> None:
        """`under` is a command that runs the daemon's command, such as one that sets limits."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*under, sys.executable, "-m", "toolsd", "-c", str(self.config), "serve", "--allow-unsandboxed"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._env,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "is ready" in line, self.log.read_text()

    def said(self) -> str:
        return self.log.read_text()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        status = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def close(self) -> None:
        if self.process.returncode is not None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            status = self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        assert status == 0, self.said()
        assert "internal error" not in self.said(), self.said()

    # --- who is there -----------------------------------------------------------------------------------------------

    def forkserver(self) -> psutil.Process:
        (server,) = psutil.Process(self.process.pid).children()
        return server

    def family(self) -> list[psutil.Process]:
        """All that it started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    @contextlib.contextmanager
    def client(self) -> Iterator[toolsd.Client]:
        with toolsd.connect(self.address, timeout=PATIENCE) as made:
            yield made

    def workers(self, source: str) -> list[dict[str, Any]]:
        """The living workers of a source as `ps` shows them."""
        with self.client() as client:
            shown = next(s for s in client.ps()["sources"] if s["name"] == source)
        return [worker for worker in shown["workers"] if worker["pid"] is not None]

    def pid(self, source: str) -> int:
        (worker,) = self.workers(source)
        return int(worker["pid"])

    def state(self, source: str) -> str:
        with self.client() as client:
            return str(next(s["state"] for s in client.ps()["sources"] if s["name"] == source))


Open = Callable[..., House]


@pytest.fixture
def house() -> Iterator[Open]:
    """Open a house: `house({"name": (code, table)}, defaults)`. It ends with the test, and must end well."""
    with contextlib.ExitStack() as stack:

        def make(sources: Table, defaults: str = "", *, env: dict[str, str] | None = None, **more: Any) -> House:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="f-")))
            made = House(home, sources, defaults, env)
            made.start(**more)
            stack.callback(made.close)
            return made

        yield make


def file_appears(file: Path) -> str:
    """Wait until `file` has something in it; gives that."""
    eventually(lambda: file.exists() and file.read_text(), f"{file} has something in it")
    return file.read_text()
