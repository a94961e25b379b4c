"""Batches through a real worker: order, sizes, cancel, progress, and sources that misuse their slots."""

from __future__ import annotations

import asyncio
import hashlib
import os

from workerbench import started

from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    ProgressReported,
    SlotsFilled,
    WorkerReady,
)
from toolsd.core.instructions import CancelBatch, StopWorker

MiB = 1024 * 1024


def test_ten_thousand_calls_in_one_batch(play):
    async def scenario(bench):
        worker = await bench.start()
        event = await bench.ended(bench.send(worker, *(("echo", str(i)) for i in range(10_000))))
        assert [bytes(outcome) for _, outcome in event.results] == [b"t%d" % i for i in range(10_000)]
        batch = bench.send(worker, *(("echo", "x" * 1000) for i in range(9_999)), ("run", "os._exit(1)"))
        report = await bench.exit(worker)
        assert report.states[batch] == ("finished",) * 9_999 + ("started",)

    play(scenario)


def test_64_mib_both_ways(play):
    async def scenario(bench):
        worker = await bench.start()
        text = os.urandom(32 * MiB).hex()
        event = await bench.ended(bench.send(worker, ("echo", text), ("echo", "small"), ("echo", text.encode())))
        outcomes = [bytes(outcome) for _, outcome in event.results]
        want = hashlib.sha256(b"t" + text.encode()).digest()
        assert hashlib.sha256(outcomes[0]).digest() == want
        assert outcomes[1] == b"tsmall"
        assert hashlib.sha256(outcomes[2]).digest() == want

    play(scenario)


def test_an_error_out_of_the_source_fails_the_batch_only(play):
    async def scenario(bench):
        worker = await bench.start()
        event = await bench.ended(bench.send(worker, ("echo", "x"), ("run", "raise ValueError('oops')")))
        assert event.failure.code == "batch_raised"
        assert "ValueError: oops" in event.failure.message
        assert "do_run" in event.failure.evidence.traceback
        assert event.states == ("finished", "started")
        event = await bench.ended(bench.send(worker, ("echo", "x"), ("nothing", ""), ("nothing", "")))
        assert event.failure.code == "results_incomplete"
        assert "nothing (slot 1), nothing (slot 2)" in event.failure.message
        for code, text in {
            "batch.finished(0, b'tagain')": "filled twice",
            "batch.finished(9, b't')": "no slot 9",
            "batch.finished(-1, b't')": "no slot -1",
            "batch.finished(1, 'text')": "str",
            "batch.finished(1, b'')": "bytes",
            "try: batch.finished(0, b't')\nexcept Exception: pass": "filled twice",
        }.items():
            event = await bench.ended(bench.send(worker, ("echo", "x"), ("run", code)))
            assert event.failure.code == "protocol_violation"
            assert text in event.failure.message
        event = await bench.ended(bench.send(worker, ("run", "raise KeyboardInterrupt")))
        assert event.failure.code == "batch_raised"
        assert await bench.call(worker, "echo", "alive") == "alive"

    play(scenario)


def test_cancel_reaches_blocked_code_and_only_its_batch(play):
    async def scenario(bench):
        worker = await bench.start()
        pid = await bench.pid(worker)
        for code in ("time.sleep(600)", "while True: pass", "threading.Event().wait()"):
            batch = bench.send(worker, ("run", code))
            await started(bench, worker, batch)
            bench.node.execute(CancelBatch(worker, batch))
            event = await bench.ended(batch)
            assert (event.failure.code, event.failure.cause) == ("turn_cancelled", "stopped")
        code = "try: time.sleep(600)\nfinally: batch.progress(0, b'cleaned')"
        batch = bench.send(worker, ("run", code))
        await started(bench, worker, batch)
        bench.node.execute(CancelBatch(worker, batch))
        assert (await bench.ended(batch)).failure.code == "turn_cancelled"
        assert any(isinstance(e, ProgressReported) and e.payload == b"cleaned" for e in bench.events)
        # late and foreign cancels hit nobody
        bench.node.execute(CancelBatch(worker, batch))
        bench.node.execute(CancelBatch(worker, 4711))
        assert await bench.call(worker, "sleep", "0.05") == "slept"
        assert await bench.pid(worker) == pid

    play(scenario)


def test_cancel_racing_with_the_end_is_one_of_the_two(play):
    async def scenario(bench):
        worker = await bench.start()
        for i in range(300):
            batch = bench.send(worker, ("echo", "x"), ("sleep", "0.0005"), flush=i % 2 == 0)
            await asyncio.sleep(0.0001 * (i % 13))
            bench.node.execute(CancelBatch(worker, batch))
            event = await bench.ended(batch)
            if isinstance(event, BatchFailed):
                assert event.failure.code == "turn_cancelled"
        assert await bench.call(worker, "echo", "alive") == "alive"

    play(scenario)


def test_cancel_in_the_same_breath_as_the_batch_is_not_lost(play):
    async def scenario(bench):
        for asynchronous in (False, True):
            worker = await bench.start(asynchronous=asynchronous)
            for i in range(100):
                batch = bench.send(worker, ("sleep", "600"))
                for _ in range(i % 5):
                    await asyncio.sleep(0)
                bench.node.execute(CancelBatch(worker, batch))
                assert (await bench.ended(batch)).failure.code == "turn_cancelled"

    play(scenario)


def test_a_cancel_signal_spares_the_loops_own_callbacks(play):
    """They carry the batch's context too, and what is raised in them is lost, with what they were to bring about."""

    async def scenario(bench):
        worker = await bench.start(asynchronous=True)
        code = """
def callback():
    while not batch.cancelled: pass
    time.sleep(0.1)  # in which the signal comes, again and again
    host.whole = True
asyncio.get_running_loop().call_soon(callback)
"""
        batch = bench.send(worker, ("run", code), ("sleep", "600"))
        await started(bench, worker, batch)
        bench.node.execute(CancelBatch(worker, batch))
        assert (await bench.ended(batch)).failure.cause == "stopped"
        assert await bench.run(worker, "out = getattr(host, 'whole', False)") == "True"

    play(scenario)


def test_cancelled_can_be_asked(play):
    async def scenario(bench):
        worker = await bench.start()
        code = """
from toolsd.host import BatchCancelled
try: time.sleep(600)
except BatchCancelled: out = batch.cancelled
"""
        batch = bench.send(worker, ("run", code))
        await started(bench, worker, batch)
        bench.node.execute(CancelBatch(worker, batch))
        event = await bench.ended(batch)
        assert isinstance(event, BatchFinished)  # it chose to finish
        assert event.results[0][1] == b"tTrue"

    play(scenario)


def test_progress_and_early_results_in_order_from_any_thread(play):
    async def scenario(bench):
        for asynchronous in (False, True):
            worker = await bench.start(asynchronous=asynchronous)
            code = """
def tell():
    for i in range(200): batch.progress(call.slot, str(i).encode())
    batch.progress(call.slot, bytes(100_000))
thread = threading.Thread(target=tell); thread.start(); thread.join()
for i in range(200): batch.progress(call.slot, b'main')
"""
            batch = bench.send(worker, ("echo", "early"), ("run", code), ("echo", "late"), flush=True)
            event = await bench.ended(batch)
            mine = [e for e in bench.events if getattr(e, "batch", 0) == batch]
            told = [bytes(e.payload) for e in mine if isinstance(e, ProgressReported)]
            assert told == [str(i).encode() for i in range(200)] + [bytes(100_000)] + [b"main"] * 200
            early = [slot for e in mine if isinstance(e, SlotsFilled) for slot, _ in e.results]
            assert early == [0, 1]
            assert [slot for slot, _ in event.results] == [2]

    play(scenario)


def test_late_threads_cannot_touch_the_next_batch(play):
    async def scenario(bench):
        worker = await bench.start()
        code = """
host.go, host.gone = threading.Event(), threading.Event()
def late():
    host.go.wait(); batch.progress(0, b'late')
    try: batch.finished(0, b't')
    except Exception as error: host.late = str(error)
    host.gone.set()
threading.Thread(target=late).start()
"""
        await bench.run(worker, code)
        told = await bench.run(worker, "host.go.set(); host.gone.wait(10); out = host.late")
        assert "after its batch had ended" in told
        assert not any(isinstance(e, ProgressReported) for e in bench.events)

    play(scenario)


def test_asynchronous_batches_overlap_and_are_cancelled_one_by_one(play):
    async def scenario(bench):
        worker = await bench.start(asynchronous=True, max_batches=8)
        ready = await bench.until(bench.of(worker, WorkerReady))
        assert ready.reentrant
        slow = [bench.send(worker, ("sleep", "600"), region=i) for i in range(4)]
        assert await bench.call(worker, "echo", "quick", region=4) == "quick"
        bench.node.execute(CancelBatch(worker, slow[2]))
        event = await bench.ended(slow[2])
        assert event.failure.code == "turn_cancelled"
        blocked = bench.send(worker, ("run", "while True: pass"), region=5)
        recorder = bench.node._workers[worker].recorder
        while recorder.read(5, blocked, 1).states != ("started",):
            await asyncio.sleep(0.002)
        bench.node.execute(CancelBatch(worker, blocked))
        assert (await bench.ended(blocked)).failure.code == "turn_cancelled"
        bench.send(worker, ("run", "os._exit(4)"), region=6)
        report = await bench.exit(worker)
        assert report.exit_code == 4
        assert {slow[0], slow[1], slow[3]} <= set(report.states)
        assert report.states[slow[0]] == ("started",)

    play(scenario)


def test_asynchronous_sources_start_fail_exit_and_close(play):
    async def scenario(bench):
        worker = await bench.start(asynchronous=True, close="print('closed')")
        event = await bench.ended(bench.send(worker, ("run", "raise ValueError('oops')")))
        assert event.failure.code == "batch_raised"
        bench.node.execute(StopWorker(worker, 5.0))
        report = await bench.exit(worker)
        assert (report.exit_code, "closed" in report.stderr_tail) == (0, True)
        worker = await bench.start(asynchronous=True)
        bench.send(worker, ("run", "sys.exit(6)"))
        assert (await bench.exit(worker)).exit_code == 6

    play(scenario)


def test_a_deadline_reaches_the_batch(play):
    async def scenario(bench):
        worker = await bench.start()
        left = float(await bench.run(worker, "out = batch.deadline - time.monotonic()", deadline=30.0))
        assert 20 < left <= 30
        assert await bench.run(worker, "out = (batch.deadline, batch.turn, batch.session)", session="s") != ""

    play(scenario)


def test_figures_for_people(play):
    async def scenario(bench):
        worker = await bench.start()
        figures = bench.node.figures()
        assert set(figures) == {worker}
        assert figures[worker].pid == await bench.pid(worker)
        assert figures[worker].rss > MiB
        assert figures[worker].up >= 0

    play(scenario)


def test_no_message_is_overlooked_between_sends(play):
    """A send may swallow the edge of the socket's descriptor; the next batch must be seen all the same."""

    async def scenario(bench):
        worker = await bench.start(asynchronous=True, max_batches=4)
        code = "batch.progress(call.slot, b'p'); out = 'x'"
        for _ in range(500):
            batches = [bench.send(worker, ("run", code), ("sleep", "0.0001"), region=i) for i in range(4)]
            for batch in batches:
                assert isinstance(await bench.ended(batch), BatchFinished)
            bench.events.clear()

    play(scenario)
