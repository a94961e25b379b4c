"""A worker's life from outside: started, asked, stopped."""

from __future__ import annotations

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
