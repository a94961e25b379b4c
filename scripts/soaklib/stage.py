"""The processes of the soak: the daemon, its clients, and what both use.

Owns starting, restarting and ending them, and the checks of the machine around: processes, descriptors, memory.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from soaklib import sources

# How long a daemon may take to be ready, and to leave once it was told to. Seconds.
_READY, _LEAVE = 30.0, 40.0
# How long anything it started may outlive a daemon that was killed. Seconds.
_ORPHANS = 2.0
# What a daemon may have gained between its first and its last quarter, in bytes and descriptors.
_GROWTH, _MORE_FILES = 32 * 1024 * 1024, 40


class Sample(NamedTuple):
    """The daemon at one moment. `life` counts its restarts."""

    life: int
    at: float
    rss: int
    files: int
    processes: int


class Stage:
    """Everything that runs. `wrong` is what the machine around the daemon shows."""

    def __init__(self, home: Path, seed: str, clients: int) -> None:
        self.home = home
        self.seed = seed
        self.wrong: list[str] = []
        self.samples: list[Sample] = []
        self.life = 0
        self._clients = clients
        self._made = 0
        self.drivers: list[subprocess.Popen[bytes]] = []
        self.bursts: list[subprocess.Popen[bytes]] = []
        self.config = home / "toolsd.toml"
        self.address = f"ipc://{home}/sock"
        self._env = {**os.environ, "XDG_RUNTIME_DIR": str(home / "run"), "TMPDIR": str(home / "tmp")}

    def open(self) -> None:
        for name in ("run", "tmp", "answers"):
            (self.home / name).mkdir(mode=0o700)
        sources.write(self.home)
        self.config.write_text(sources.config(self.home))
        self.start_daemon()
        for _ in range(self._clients):
            self.drivers.append(self.driver())

    def start_daemon(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "toolsd", "-c", str(self.config), "serve"],
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
            )
        assert self.daemon.stdout is not None
        line = self.daemon.stdout.readline()
        if not line:
            raise RuntimeError(f"the daemon did not start; see {self.home}/log")

    def configure(self, text: str) -> None:
        """Have the daemon read this text, as a whole."""
        beside = self.config.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.config)
        self.daemon.send_signal(signal.SIGHUP)

    def driver(self, burst: int = 0) -> subprocess.Popen[bytes]:
        self._made += 1
        name = f"{self._made}"
        words = [self.address, f"{self.seed}:{name}", str(self.home / "answers" / name)]
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "soaklib.driver", *words, *([str(burst)] if burst else [])],
                stdin=subprocess.PIPE,
                stderr=log,
                env=self._env,
            )

    # --- who is there -----------------------------------------------------------------------------------------------

    def family(self) -> list[psutil.Process]:
        """All that the daemon started."""
        try:
            return psutil.Process(self.daemon.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def forkserver(self) -> psutil.Process | None:
        return next(iter(psutil.Process(self.daemon.pid).children()), None)

    def workers(self) -> list[psutil.Process]:
        server = self.forkserver()
        try:
            return [] if server is None else server.children()
        except psutil.NoSuchProcess:
            return []

    def sample(self) -> None:
        """Look at the daemon, and at the bound on its processes."""
        if self.daemon.poll() is not None:
            raise RuntimeError(f"the daemon ended by itself with {self.daemon.returncode}; see {self.home}/log")
        family = self.family()
        bound = sum(sources.BOUND.values()) + 1
        # A worker is seen for a moment after its exit was reported and its successor was started.
        living = [process for process in family if _lives(process)]
        if len(living) > bound:
            self.wrong.append(f"{len(living)} processes; {bound} are allowed")
        daemon = psutil.Process(self.daemon.pid)
        self.samples.append(
            Sample(self.life, time.monotonic(), daemon.memory_info().rss, daemon.num_fds(), len(living))
        )

    # --- ends -------------------------------------------------------------------------------------------------------

    def kill_daemon(self) -> None:
        """As a crash of the coordinator: whatever it started must be gone soon. Then it is started again."""
        family = self.family()
        self.daemon.kill()
        self._reap()
        _, left = psutil.wait_procs(family, timeout=_ORPHANS)
        if left:
            self.wrong.append(f"{len(left)} processes outlived the killed daemon by {_ORPHANS:g} s")
        self.life += 1
        self.config.write_text(sources.config(self.home))
        self.start_daemon()

    def close(self) -> None:
        """An orderly end: clients first, then a drain."""
        for driver in self.drivers:
            if driver.poll() is not None:
                self.wrong.append(f"a client ended by itself; see {self.home}/log")
            assert driver.stdin is not None
            driver.stdin.close()
        for driver in (*self.drivers, *self.bursts):
            if driver.wait(_LEAVE * 2) not in (0, -signal.SIGKILL):
                self.wrong.append(f"a client ended with {driver.returncode}; see {self.home}/log")
        self._judge_growth()
        family = self.family()
        self.daemon.terminate()
        status = self.daemon.wait(_LEAVE)
        if status != 0:
            self.wrong.append(f"the drained daemon ended with {status}, not 0")
        if any(_lives(process) for process in family):
            self.wrong.append("processes outlived the drained daemon")
        left = [path for name in ("run", "tmp") for path in (self.home / name).rglob("*") if not path.is_dir()]
        if left:
            self.wrong.append(f"files are left behind: {left[:5]}")
        log = (self.home / "log").read_text(errors="replace")
        for sign in ("internal error", "Traceback", "a bug in toolsd"):
            if sign in log:
                self.wrong.append(f"the log has {sign!r} {log.count(sign)} times")

    def abandon(self) -> None:
        """Leave nothing running, however it ended."""
        for process in (*self.drivers, *self.bursts, *([self.daemon] if hasattr(self, "daemon") else [])):
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _reap(self) -> None:
        self.daemon.wait()
        assert self.daemon.stdout is not None
        self.daemon.stdout.close()

    # --- figures ----------------------------------------------------------------------------------------------------

    def _quarters(self) -> tuple[list[Sample], list[Sample]]:
        """The first and the last quarter of the longest life, without its start."""
        lives = [[sample for sample in self.samples if sample.life == life] for life in range(self.life + 1)]
        longest = max(lives, key=len)[10:]
        quarter = max(1, len(longest) // 4)
        return longest[:quarter], longest[-quarter:]

    def _judge_growth(self) -> None:
        first, last = self._quarters()
        if len(first) < 5:
            return
        grown = statistics.median(s.rss for s in last) - statistics.median(s.rss for s in first)
        more = statistics.median(s.files for s in last) - statistics.median(s.files for s in first)
        if grown > _GROWTH:
            self.wrong.append(f"the daemon's memory grew by {grown / 1024**2:.0f} MiB")
        if more > _MORE_FILES:
            self.wrong.append(f"the daemon has {more:.0f} more open files")

    def figures(self) -> str:
        first, last = self._quarters()
        if not first or not last:
            return "too short for figures"

        def middle(samples: list[Sample], field: str) -> float:
            return statistics.median(getattr(sample, field) for sample in samples)

        memory = f"{middle(first, 'rss') / 1024**2:.0f} -> {middle(last, 'rss') / 1024**2:.0f} MiB"
        most = max(sample.rss for sample in self.samples) / 1024**2
        files = f"{middle(first, 'files'):.0f} -> {middle(last, 'files'):.0f}"
        processes = f"{middle(first, 'processes'):.0f} -> {middle(last, 'processes'):.0f}"
        return f"memory {memory} (most {most:.0f}), open files {files}, processes {processes} (medians of quarters)"


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
