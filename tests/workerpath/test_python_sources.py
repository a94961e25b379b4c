"""Real Python sources in real workers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from toolsd.core.events import BatchFinished, WorkerReady
from toolsd.core.instructions import CancelBatch, StartWorker
from toolsd.launch import Confinement, Launch, Limits

MiB = 1024 * 1024
SOURCE = """
import asyncio, os, sys, time
import toolsd

print("loaded")
source = toolsd.Source("tried", scheduling={scheduling!r})

@source.tool
{kind}def echo(text: str) -> str:
    "Say it again."
    return text

@source.tool
{kind}def sleep(seconds: float) -> str:
    "Wait."
    {wait}(seconds)
    return "slept"

@source.tool
{kind}def leave(code: int) -> str:
    "End the process."
    os._exit(code)

@source.tool
{kind}def absurd() -> int:
    "Ask for more memory than there is."
    return len(bytearray(1 << 40))

@source.tool
{kind}def hoard() -> str:
    "Use all memory."
    kept = []
    while True:
        kept.append(b"x" * 1_000_000)
"""
FORKS = """
import os, sys, time
import toolsd

source = toolsd.Source("forks")

@source.tool
def fork(end: str, file: str) -> str:
    if os.fork() == 0:
        if end == "exit":
            sys.exit(0)
        if end == "raise":
            raise ValueError
        if end == "interrupt":
            raise KeyboardInterrupt
        return "child"
    while not os.path.exists(file) and os.waitpid(-1, os.WNOHANG)[0] == 0:
        time.sleep(0.001)
    return "parent"

@source.tool
def mark(file: str) -> int:
    with open(file, "a") as opened:
        opened.write("x")
    return os.path.getsize(file)
"""
WAYS = [
    ("sequential", "", "time.sleep"),
    ("concurrent", "async ", "await asyncio.sleep"),
    ("threads", "", "time.sleep"),
]


@pytest.mark.parametrize(("scheduling", "kind", "wait"), WAYS)
def test_a_python_source(play, tmp_path: Path, scheduling, kind, wait):
    file = tmp_path / "tried.py"
    file.write_text(SOURCE.format(scheduling=scheduling, kind=kind, wait=wait))
    os.chmod(file, 0o644)

    async def scenario(bench):
        async def start() -> int:
            worker = next(bench._numbers)
            launch = Launch("python", str(file), str(tmp_path), limits=Limits(memory=256 * MiB))
            bench.node.execute(StartWorker(worker, "tried", 0, launch))
            ready = await bench.until(bench.of(worker, WorkerReady))
            assert sorted(tool.name for tool in ready.tools) == ["absurd", "echo", "hoard", "leave", "sleep"]
            return worker

        worker = await start()
        say = [("echo", json.dumps({"text": str(i)})) for i in range(20)]
        event = await bench.ended(bench.send(worker, *say))
        assert isinstance(event, BatchFinished)
        assert [bytes(outcome) for _, outcome in event.results] == [b"t%d" % i for i in range(20)]

        batch = bench.send(worker, ("echo", '{"text": 5}'), ("sleep", '{"seconds": 0.05}'), flush=True)
        event = await bench.ended(batch)
        assert event.results[-1][1] == b"tslept"

        if scheduling != "threads":  # a thread cannot be stopped
            batch = bench.send(worker, ("sleep", '{"seconds": 600}'))
            bench.node.execute(CancelBatch(worker, batch))
            event = await bench.ended(batch)
            assert event.failure.code == "turn_cancelled"

        bench.send(worker, ("leave", '{"code": 9}'))
        report = await bench.exit(worker)
        assert (report.exit_code, report.running) == (9, "leave")
        assert "loaded" in report.stderr_tail

        worker = await start()
        event = await bench.ended(
            bench.send(worker, ("echo", '{"text": "a"}'), ("absurd", "{}"), ("echo", '{"text": "b"}'))
        )
        before, absurd, after = [bytes(outcome) for _, outcome in event.results]
        assert (before, after) == (b"ta", b"tb")
        assert b"MemoryError" in absurd

        bench.send(worker, ("echo", '{"text": "a"}'), ("hoard", "{}"))
        report = await bench.exit(worker)
        assert "MemoryError" in report.oom

    play(scenario)


def test_a_child_that_a_tool_lets_out_ends_and_runs_nothing_again(play, tmp_path: Path):
    file = tmp_path / "forks.py"
    file.write_text(FORKS)

    async def scenario(bench):
        worker = next(bench._numbers)
        allowed = Limits(processes=8), Confinement(write=(str(tmp_path),))
        bench.node.execute(StartWorker(worker, "forks", 0, Launch("python", str(file), str(tmp_path), {}, *allowed)))
        await bench.until(bench.of(worker, WorkerReady))
        for end in ("return", "raise", "exit", "interrupt"):
            marks = {"file": str(tmp_path / end)}
            batch = bench.send(worker, ("fork", json.dumps({"end": end, **marks})), ("mark", json.dumps(marks)))
            event = await bench.ended(batch)
            assert [bytes(outcome) for _, outcome in event.results] == [b"tparent", b"j1"]

    play(scenario)
