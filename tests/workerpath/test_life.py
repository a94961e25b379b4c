"""A worker's life from outside: started, asked, stopped."""

from __future__ import annotations

import asyncio
import os

from workerbench import bench as fresh_bench

from toolsd.core.events import WorkerExited, WorkerReady, WorkerStarted
from toolsd.core.instructions import StopWorker


def test_a_batch_goes_there_and_back(play):
    async def scenario(bench):
        worker = await bench.start()
        batch = bench.send(worker, ("echo", "one"), ("echo", "two"), ("echo", "ünï"))
        event = await bench.ended(batch)
        assert [(slot, bytes(outcome)) for slot, outcome in event.results] == [
            (0, b"tone"),
            (1, b"ttwo"),
            (2, "tünï".encode()),
        ]

    play(scenario)


def test_stop_lets_the_source_close(play):
    async def scenario(bench):
        worker = await bench.start(close="print('closed by itself')")
        bench.node.execute(StopWorker(worker, 5.0))
        report = await bench.exit(worker)
        assert (report.exit_code, report.signal, report.reason) == (0, None, "stop")
        assert "closed by itself" in report.stderr_tail
        kinds = [type(event) for event in bench.events]
        assert kinds == [WorkerStarted, WorkerReady, WorkerExited]

    play(scenario)


def test_a_long_runtime_directory_is_no_problem():
    async def scenario():
        async with fresh_bench(long_path=True) as bench:
            assert await bench.call(await bench.start(), "echo", "x") == "x"

    asyncio.run(scenario())


def test_the_socket_is_gone_once_the_worker_has_answered(play):
    async def scenario(bench):
        await bench.start()
        names = os.listdir(bench.node._root)
        assert [name[0] for name in names] == ["s"]  # the scratch directory

    play(scenario)


def test_many_start_at_once(play):
    async def scenario(bench):
        workers = [bench.begin() for _ in range(60)]
        for worker in workers:
            await bench.until(bench.of(worker, WorkerReady))
        batches = [bench.send(worker, ("echo", str(worker))) for worker in workers]
        for worker, batch in zip(workers, batches, strict=True):
            assert (await bench.ended(batch)).results[0][1] == b"t%d" % worker

    play(scenario)


def test_many_starts_that_cannot_be_fail_one_by_one(play, monkeypatch):
    async def scenario(bench):
        os.rmdir(bench.node._root)  # no socket and no scratch directory can be made
        workers = [bench.begin() for _ in range(1500)]
        for worker in workers:
            await bench.until(bench.of(worker, WorkerExited))
        os.mkdir(bench.node._root, 0o700)

    play(scenario)
