"""A toolsd daemon of the bench's own: its folder, its sources, its processes."""

from __future__ import annotations

import inspect
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

import psutil

from benchlib import leash, work

_REPEAT = '''"""A trivial source."""

from typing import Any

import toolsd

source = toolsd.Source({name!r})


@source.tool(name="{name}_repeat")
{function}
'''

_READY_WITHIN = 60.0


def repeat_source(name: str) -> str:
    """A source with the work's function as its only tool, as text of its file."""
    return _REPEAT.format(name=name, function=inspect.getsource(work.repeat))


class Daemon:
    """`toolsd serve` in a folder of its own. `sources` maps a name to (text of the file, more lines of its table)."""

    def __init__(self, sources: dict[str, tuple[str, str]]) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="toolsd-bench-"))
        self.address = f"ipc://{self.home}/toolsd.sock"
        tables = [f'[daemon]\nsocket = "{self.home}/toolsd.sock"\n']
        for name, (text, more) in sources.items():
            (self.home / f"{name}.py").write_text(text)
            tables.append(f'[source.{name}]\nkind = "python"\npath = "{name}.py"\n{more}\n')
        config = self.home / "toolsd.toml"
        config.write_text("\n".join(tables))
        with (self.home / "log").open("wb") as log:
            self.process = leash.start(
                [sys.executable, "-m", "toolsd", "--config", str(config), "serve"],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "XDG_RUNTIME_DIR": str(self.home)},
            )
        try:
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def _wait_ready(self) -> None:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], _READY_WITHIN)[0] or not self.process.stdout.readline():
            raise RuntimeError("the daemon did not get ready:\n" + (self.home / "log").read_text())

    def close(self) -> None:
        leash.end(self.process, grace=10.0)
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def processes(self) -> list[psutil.Process]:
        """The coordinator, its forkserver and all workers."""
        coordinator = psutil.Process(self.process.pid)
        return [coordinator, *coordinator.children(recursive=True)]

    def workers(self) -> list[int]:
        """The pids of all workers: the forkserver's children."""
        forkservers = psutil.Process(self.process.pid).children()
        return [worker.pid for forkserver in forkservers for worker in forkserver.children()]
