"""What is done to a running daemon, at random and in an order that its seed repeats.

Owns the faults. Which process a fault hits depends on who is alive then, so a seed gives the same kinds of faults in
the same order, not the same run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import psutil

from soaklib import sources
from soaklib.stage import Stage

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGHUP)
_FLOOD = 400
_SAMPLE = 1.0


class Chaos:
    """`done` counts the faults by kind."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._stage = stage
        self._rng = rng
        self._frozen: list[tuple[float, psutil.Process]] = []
        self._until = 0.0
        self._version = 0
        self._faults: tuple[tuple[int, Callable[[], object]], ...] = (
            (40, self.worker_killed),
            (10, self.worker_frozen),
            (15, self.worker_paused),
            (4, self.forkserver_killed),
            (6, self.client_killed),
            (6, self.client_paused),
            (6, self.daemon_paused),
            (4, self.flood),
            (8, self.reload),
            (3, self.broken_reload),
            (1, self.daemon_killed),
        )

    def run(self, seconds: float) -> None:
        """Do one thing after the other for so long; then let everything frozen go on."""
        self._until = time.monotonic() + seconds
        sampled = 0.0
        weights = [weight for weight, _ in self._faults]
        while (now := time.monotonic()) < self._until:
            if now - sampled >= _SAMPLE:
                self._stage.sample()
                sampled = now
            self._thaw(now)
            (_, fault), pause = self._rng.choices(self._faults, weights)[0], self._rng.expovariate(4)
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if fault() is not False:
                    self.done[fault.__name__.replace("_", " ")] += 1
            time.sleep(min(pause, 2.0))
        self._thaw(float("inf"))

    def _thaw(self, now: float) -> None:
        for at, process in self._frozen:
            if at <= now:
                # Not psutil's resume(), which does nothing when it doubts that the process is still the same one.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
        self._frozen = [(at, process) for at, process in self._frozen if at > now]

    def _pause(self, process: psutil.Process, longest: float) -> None:
        process.suspend()
        self._frozen.append((time.monotonic() + self._rng.uniform(0.02, longest), process))

    def _worker(self) -> psutil.Process | None:
        workers = self._stage.workers()
        return self._rng.choice(workers) if workers else None

    # --- faults: False when there was nobody to hit -------------------------------------------------------------------

    def worker_killed(self) -> bool:
        worker, number = self._worker(), self._rng.choice(_SIGNALS)
        if worker is None:
            return False
        worker.send_signal(number)
        return True

    def worker_frozen(self) -> bool:
        """For good: only a deadline ends it."""
        worker = self._worker()
        if worker is None:
            return False
        worker.suspend()
        return True

    def worker_paused(self) -> bool:
        worker = self._worker()
        if worker is None:
            return False
        self._pause(worker, 0.5)
        return True

    def forkserver_killed(self) -> bool:
        server = self._stage.forkserver()
        if server is None:
            return False
        server.kill()
        return True

    def client_killed(self) -> None:
        drivers = self._stage.drivers
        victim = self._rng.randrange(len(drivers))
        drivers[victim].kill()
        drivers[victim].wait()
        assert drivers[victim].stdin is not None
        drivers[victim].stdin.close()
        drivers[victim] = self._stage.driver()

    def client_paused(self) -> None:
        self._pause(psutil.Process(self._rng.choice(self._stage.drivers).pid), 1.0)

    def daemon_paused(self) -> None:
        self._pause(psutil.Process(self._stage.daemon.pid), 0.5)

    def flood(self) -> bool:
        """Far more turns at once than the queue of their source takes."""
        bursts = self._stage.bursts
        bursts[:] = [burst for burst in bursts if burst.poll() is None or burst.returncode]
        if sum(burst.returncode is None for burst in bursts) >= 2:
            return False
        bursts.append(self._stage.driver(_FLOOD))
        return True

    def reload(self) -> None:
        """`swift` gets another setting, and `visitor` comes or goes."""
        self._version += 1
        self._stage.configure(sources.config(self._stage.home, version=self._version, visitor=self._version % 2 == 0))

    def broken_reload(self) -> None:
        """Another mistake each time: the text, a value, a source that does not start."""
        text = sources.config(self._stage.home)
        bad = ("[source", 'colour = "blue"', '[source.nobody]\nkind = "python"\npath = "nobody.py"')
        self._stage.configure(f"{text}\n{self._rng.choice(bad)}\n")

    def daemon_killed(self) -> None:
        self._stage.kill_daemon()
