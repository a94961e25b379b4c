"""A real node on a real loop, with everything it emits recorded and awaitable."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import toolsd_workers

from toolsd import transport
from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    Event,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
    WorkerStartFailed,
)
from toolsd.core.instructions import KillWorker, Note, SendBatch, StartWorker
from toolsd.core.model import Call, ExitReport
from toolsd.launch import Confinement, Launch, Limits
from toolsd.node import Node

KINDS = str(Path(__file__).parent / "kinds")
# The bound on every wait: far above what is needed, so that it only ends a test that has failed.
BOUND = 20.0


class Bench:
    """Drives one node as the core would."""

    node: Node

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notes: list[Note] = []
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, test: Callable[[Event], bool], bound: float = BOUND) -> Any:
        """The first event for which `test` holds."""
        end = time.monotonic() + bound
        seen = 0
        while True:
            for event in self.events[seen:]:
                if test(event):
                    return event
            seen = len(self.events)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, end - time.monotonic()))
            except TimeoutError:
                raise AssertionError(f"not within {bound} s; seen: {self.events[-8:]}") from None

    def of(self, worker: int, *kinds: type) -> Callable[[Event], bool]:
        return lambda event: isinstance(event, kinds) and event.worker == worker

    def begin(self, *, limits: Limits | None = None, env: dict[str, str] | None = None, max_batches: int = 1,
              confinement: Confinement | None = None, kind: str = "probe", **options: Any) -> int:  # fmt: skip
        worker = next(self._numbers)
        launch = Launch(
            kind, "/nowhere", "/", env or {}, limits or Limits(), confinement or Confinement(), options=options
        )
        self.node.execute(StartWorker(worker, "probe", 0, launch, max_batches))
        return worker

    async def start(self, **settings: Any) -> int:
        worker = self.begin(**settings)
        event = await self.until(self.of(worker, WorkerReady, WorkerStartFailed, WorkerExited))
        assert isinstance(event, WorkerReady), event
        return worker

    async def pid(self, worker: int) -> int:
        return (await self.until(self.of(worker, WorkerStarted))).pid

    def send(self, worker: int, *calls: tuple[str, Any], **settings: Any) -> int:
        batch = next(self._numbers)
        made = tuple(Call(f"call_{i}", tool, arguments) for i, (tool, arguments) in enumerate(calls))
        self.node.execute(SendBatch(worker, batch, f"turn{batch}", made, **settings))
        return batch

    async def ended(self, batch: int) -> BatchFinished | BatchFailed:
        return await self.until(lambda e: isinstance(e, (BatchFinished, BatchFailed)) and e.batch == batch)

    async def call(self, worker: int, tool: str, arguments: Any = "", **settings: Any) -> str:
        """One call in a batch; the text that came back."""
        event = await self.ended(self.send(worker, (tool, arguments), **settings))
        assert isinstance(event, BatchFinished), event
        return bytes(event.results[0][1])[1:].decode()

    async def run(self, worker: int, code: str, **settings: Any) -> str:
        return await self.call(worker, "run", code, **settings)

    async def exit(self, worker: int, bound: float = BOUND) -> ExitReport:
        return (await self.until(self.of(worker, WorkerExited), bound)).exit

    async def kill(self, worker: int) -> ExitReport:
        self.node.execute(KillWorker(worker, "stop"))
        return await self.exit(worker)


@asynccontextmanager
async def bench(long_path: bool = False) -> Any:
    if KINDS not in toolsd_workers.__path__:
        toolsd_workers.__path__.append(KINDS)
    loop = asyncio.get_running_loop()
    ctx = transport.context()
    with tempfile.TemporaryDirectory(prefix="node-") as directory:
        made = Bench()
        place = os.path.join(directory, "x" * 100, "y" * 100) if long_path else directory
        os.makedirs(place, 0o700, exist_ok=True)
        made.node = Node(loop, ctx, place, made.emit, made.notes.append)
        try:
            yield made
        finally:
            await made.node.close()
            left = os.listdir(place)
            await loop.shutdown_default_executor()
            ctx.term()
    assert left == []


def lives(pid: int) -> bool:
    """A zombie does not: it waits for a reaper, which may be an init that takes its time."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def gone(*pids: int) -> None:
    """Until none of the processes is alive."""
    end = time.monotonic() + 10
    while alive := list(filter(lives, pids)):
        assert time.monotonic() < end, alive
        await asyncio.sleep(0.005)


async def started(bench, worker: int, batch: int) -> None:
    """Until the flight recorder says that the batch runs."""
    record = bench.node._workers[worker]
    count = len(record.link.batches[batch].tools)
    end = time.monotonic() + 10
    while "started" not in record.recorder.read(0, batch, count).states:
        assert time.monotonic() < end
        await asyncio.sleep(0.002)


# What a source needs that starts programs.
SPAWNING: dict[str, Any] = {"limits": Limits(processes=8), "confinement": Confinement(exec=("/usr/bin",))}
# For looking at what only the hygiene before the seal does, by ways that the seal closes.
UNSEALED = Confinement(mode="off")

# Python for the `run` tool: hides a daemonised grandchild and leaves a child; gives the pids of both.
HIDE = """
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writing, b'%d ' % os.getpid())
        os.setsid(); os.chdir('/'); os.closerange(0, 3); os.close(reading); os.close(writing)
        os.environ.clear()
        time.sleep(600)
    os._exit(0)
child = os.fork()
if child == 0:
    time.sleep(600)
os.wait3(0)
out = f'{child} {os.read(reading, 100).decode()}'
os.close(reading); os.close(writing)
"""
