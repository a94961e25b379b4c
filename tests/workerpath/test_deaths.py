"""How a worker can end, and what is known of it afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import psutil
import pytest
from workerbench import HIDE, SPAWNING, gone, started

from toolsd.core.events import (
    BatchFinished,
    ProgressReported,
    SlotsFilled,
    WorkerExited,
    WorkerMisbehaved,
    WorkerReady,
    WorkerStarted,
    WorkerStartFailed,
)
from toolsd.core.instructions import KillWorker, SendBatch, StopWorker
from toolsd.core.model import Call
from toolsd.launch import Limits

MiB = 1024 * 1024


@pytest.mark.parametrize(
    ("code", "exit_code", "signal_name"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", None, "SIGKILL"),
        ("ctypes.string_at(0)", None, "SIGSEGV"),
        ("os.abort()", None, "SIGABRT"),
        ("os._exit(3)", 3, None),
        ("sys.exit(7)", 7, None),
        ("sys.exit()", 0, None),
        ("sys.exit('enough')", 1, None),
        ("raise SystemExit(256 + 5)", 5, None),
    ],
)
def test_a_death_in_a_batch_is_reported_with_what_was_seen(play, code, exit_code, signal_name):
    async def scenario(bench):
        worker = await bench.start()
        pid = await bench.pid(worker)
        batch = bench.send(worker, ("echo", "a"), ("run", f"print('last words');{code}"), ("echo", "c"))
        report = await bench.exit(worker)
        assert (report.exit_code, report.signal) == (exit_code, signal_name)
        assert report.reason is None
        assert report.oom is None
        assert report.states == {batch: ("finished", "started", "sent")}
        assert report.running == "run"
        assert report.elapsed < 20
        assert report.peak_rss > MiB
        assert "last words" in report.stderr_tail
        assert not any(isinstance(event, BatchFinished) for event in bench.events)
        if signal_name in ("SIGSEGV", "SIGABRT"):
            assert "Fatal Python error" in report.stacks
            assert "do_run" in report.stacks
        assert not psutil.pid_exists(pid)

    play(scenario)


def test_kill_from_outside_is_not_one_of_ours(play):
    async def scenario(bench):
        worker = await bench.start()
        batch = bench.send(worker, ("sleep", "60"))
        pid = await bench.pid(worker)
        os.kill(pid, signal.SIGKILL)
        report = await bench.exit(worker)
        assert (report.signal, report.reason) == ("SIGKILL", None)
        assert set(report.states) == {batch}

    play(scenario)


def test_results_sent_before_a_death_arrive_before_its_report(play):
    """The DONE of a worker that dies at once after sending it."""

    async def scenario(bench):
        for _ in range(20):
            worker = await bench.start()
            code = "threading.Thread(target=lambda: (time.sleep(0.0005), os._exit(9))).start()"
            batch = bench.send(worker, ("run", code))
            report = await bench.exit(worker)
            assert report.exit_code == 9
            states = report.states.get(batch)
            finished = [e for e in bench.events if isinstance(e, BatchFinished) and e.batch == batch]
            if finished:
                assert states is None
            assert [e for e in bench.events if getattr(e, "worker", 0) == worker][-1] == WorkerExited(worker, report)

    play(scenario)


def test_partial_results_count_as_delivered(play):
    async def scenario(bench):
        worker = await bench.start()
        batch = bench.send(worker, ("echo", "a"), ("echo", "b"), ("sleep", "600"), flush=True)
        for slot in (0, 1):
            await bench.until(lambda e, slot=slot: isinstance(e, SlotsFilled) and e.results[0][0] == slot)
        await started(bench, worker, batch)
        os.kill(await bench.pid(worker), signal.SIGKILL)
        report = await bench.exit(worker)
        assert report.states == {batch: ("finished", "finished", "started")}

    play(scenario)


def test_last_words_of_a_worker_that_leaves_by_itself_arrive(play):
    async def scenario(bench):
        for _ in range(10):
            worker = await bench.start()
            batch = bench.send(worker, *[("echo", "x")] * 50, ("run", "sys.exit(3)"), flush=True)
            assert (await bench.exit(worker)).exit_code == 3
            told = [e for e in bench.events if isinstance(e, SlotsFilled) and e.batch == batch]
            assert len(told) == 50

    play(scenario)


@pytest.mark.parametrize("how", ["kill", "crash", "stop"])
def test_nothing_a_worker_started_outlives_it(play, how):
    async def scenario(bench):
        worker = await bench.start(**SPAWNING)
        pids = [int(pid) for pid in (await bench.run(worker, HIDE)).split()]
        assert len(pids) >= 2  # the daemonised grandchild became the worker's own: it is a subreaper
        if how == "kill":
            bench.node.execute(KillWorker(worker, "deadline"))
        elif how == "stop":
            bench.node.execute(StopWorker(worker, 5.0))
        else:
            bench.send(worker, ("run", "os.abort()"))
        await bench.exit(worker)
        await gone(*pids)

    play(scenario)


def test_autopsy_shows_all_threads_then_kills(play):
    async def scenario(bench):
        worker = await bench.start()
        code = (
            "def waits_elsewhere():\n there.set()\n time.sleep(600)\n"
            "there = threading.Event()\n"
            "threading.Thread(target=waits_elsewhere, daemon=True).start()\n"
            "there.wait()\n"
            "def sits_here():\n batch.progress(0, b'here')\n while True: pass\n"
            "sits_here()"
        )
        bench.send(worker, ("run", code))
        await bench.until(bench.of(worker, ProgressReported))
        bench.node.execute(KillWorker(worker, "deadline", autopsy=True))
        report = await bench.exit(worker)
        assert (report.reason, report.signal) == ("deadline", "SIGKILL")
        assert "sits_here" in report.stacks
        assert "waits_elsewhere" in report.stacks
        assert report.running == "run"

    play(scenario)


def test_autopsy_of_c_code_that_holds_the_lock(play):
    async def scenario(bench):
        worker = await bench.start()
        batch = bench.send(worker, ("run", "ctypes.PyDLL(None).pause() or ctypes.PyDLL(None).sleep(600)"))
        await started(bench, worker, batch)
        begin = time.monotonic()
        bench.node.execute(KillWorker(worker, "deadline", autopsy=True))
        report = await bench.exit(worker)
        assert time.monotonic() - begin < 5
        assert report.reason == "deadline"
        assert "do_run" in report.stacks

    play(scenario)


def test_autopsy_of_a_stopped_process_ends_in_its_death_all_the_same(play):
    async def scenario(bench):
        worker = await bench.start()
        os.kill(await bench.pid(worker), signal.SIGSTOP)
        bench.node.execute(KillWorker(worker, "deadline", autopsy=True))
        report = await bench.exit(worker)
        assert (report.reason, report.signal, report.stacks) == ("deadline", "SIGKILL", None)

    play(scenario)


def test_out_of_memory_needs_proof(play):
    async def scenario(bench):
        worker = await bench.start(limits=Limits(memory=200 * MiB))
        batch = bench.send(worker, ("echo", ""), ("run", "hoard = []\nwhile True: hoard.append(b'x' * 1000000)"))
        report = await bench.exit(worker)
        assert "MemoryError" in report.oom
        assert str(200 * MiB) in report.oom
        assert report.exit_code == 1
        assert report.states == {batch: ("finished", "started")}

        worker = await bench.start(limits=Limits(memory=200 * MiB))
        event = await bench.ended(bench.send(worker, ("run", "b'x' * (1 << 40)")))  # absurd, but nothing was used up
        assert event.failure.code == "batch_raised"
        assert await bench.call(worker, "echo", "alive") == "alive"

    play(scenario)


def test_small_memory_limits_leave_room_for_the_runtime(play):
    async def scenario(bench):
        worker = await bench.start(limits=Limits(memory=64 * MiB))
        assert await bench.run(worker, "out = len(b'x' * 10_000_000)") == "10000000"

    play(scenario)


def test_cpu_limit_names_itself(play):
    async def scenario(bench):
        worker = await bench.start(limits=Limits(cpu_time=1))
        bench.send(worker, ("run", "while True: pass"))
        assert (await bench.exit(worker)).signal == "SIGXCPU"

    play(scenario)


def test_a_source_that_does_not_load(play):
    async def scenario(bench):
        cases = {
            "raise SourceLoadError('no tools in it')": "no tools in it",
            "import nonexistent_module": "No module named 'nonexistent_module'",
            "import sys; sys.exit(4)": "sys.exit(4)",
            "raise KeyboardInterrupt": "KeyboardInterrupt",
            "def f(): f()\nf()": "RecursionError",
        }
        for code, text in cases.items():
            worker = bench.begin(load=code)
            event = await bench.until(bench.of(worker, WorkerStartFailed))
            assert text in event.message
            report = await bench.exit(worker)
            assert report.exit_code == (4 if "exit" in code else 1)
        worker = bench.begin(start="raise ValueError('not today')")
        event = await bench.until(bench.of(worker, WorkerStartFailed))
        assert "not today" in event.message
        worker = bench.begin(kind="nonexistent")
        event = await bench.until(bench.of(worker, WorkerStartFailed))
        assert "toolsd_workers.nonexistent" in event.message

    play(scenario)


def test_a_source_that_dies_or_hangs_while_loading(play):
    async def scenario(bench):
        worker = bench.begin(load="import os, sys; print('why it died', file=sys.stderr); os._exit(5)")
        report = await bench.exit(worker)
        assert report.exit_code == 5
        assert "why it died" in report.stderr_tail

        hang = "import sys, time\ndef hangs_here():\n print('in it', file=sys.stderr); time.sleep(600)\nhangs_here()"
        worker = bench.begin(load=hang)
        await bench.pid(worker)
        end = time.monotonic() + 20
        while "in it" not in (bench.node._workers[worker].output.tail or ""):
            assert time.monotonic() < end
            await asyncio.sleep(0.002)
        bench.node.execute(KillWorker(worker, "start_timeout", autopsy=True))
        report = await bench.exit(worker)
        assert report.reason == "start_timeout"
        assert "hangs_here" in report.stacks
        assert not any(isinstance(e, WorkerReady) for e in bench.events)

    play(scenario)


def test_stop_of_a_source_that_does_not_close(play):
    async def scenario(bench):
        worker = await bench.start(close="time.sleep(600)")
        begin = time.monotonic()
        bench.node.execute(StopWorker(worker, 0.2))
        report = await bench.exit(worker)
        assert (report.reason, report.signal) == ("stop", "SIGKILL")
        assert time.monotonic() - begin < 5

        worker = await bench.start(close="raise ValueError('cannot close')")
        bench.node.execute(StopWorker(worker, 5))
        report = await bench.exit(worker)
        assert (report.reason, report.exit_code) == ("stop", 1)
        assert "cannot close" in report.stderr_tail

    play(scenario)


def test_kill_before_birth(play):
    async def scenario(bench):
        workers = [bench.begin() for _ in range(20)]
        for worker in workers:
            bench.node.execute(KillWorker(worker, "stop"))
        for worker in workers:
            assert (await bench.exit(worker)).reason == "stop"
        workers = [bench.begin() for _ in range(20)]
        await asyncio.sleep(0)
        for worker in workers:
            bench.node.execute(StopWorker(worker, 1.0))
        for worker in workers:
            assert (await bench.exit(worker)).reason == "stop"

    play(scenario)


def test_a_batch_for_a_dead_worker_was_not_sent(play):
    async def scenario(bench):
        worker = await bench.start()
        pid = await bench.pid(worker)
        bench.node.execute(KillWorker(worker, "stop"))
        bench.node.execute(SendBatch(worker, 77, "turn", (Call("c", "echo", "x"),)))
        report = await bench.exit(worker)
        assert report.states[77] in (("sent",), ("not_sent",), ("finished",))
        bench.node.execute(SendBatch(worker, 78, "turn", (Call("c", "echo", "x"),)))  # stale: nothing happens
        bench.node.execute(KillWorker(worker, "stop"))
        await gone(pid)

    play(scenario)


def test_two_hundred_kills_in_a_row(play):
    async def scenario(bench):
        base = len(os.listdir("/proc/self/fd"))
        for _ in range(200):
            worker = await bench.start()
            assert await bench.call(worker, "echo", "x") == "x"
            os.kill(await bench.pid(worker), signal.SIGKILL)
            await bench.exit(worker)
        end = time.monotonic() + 10
        while len(os.listdir("/proc/self/fd")) > base + 4:  # libzmq's own thread closes what it no longer needs
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        assert sum(isinstance(e, WorkerStarted) for e in bench.events) == 200

    play(scenario)


def test_the_forkserver_may_die_too(play):
    async def scenario(bench):
        workers = [await bench.start(**SPAWNING) for _ in range(3)]
        assert psutil.Process(bench.node._forkserver.pid).num_threads() == 1  # or forking it would not be sound
        pids = [await bench.pid(worker) for worker in workers]
        pids.append(int(await bench.run(workers[1], "import subprocess; out = subprocess.Popen(['sleep', '600']).pid")))
        code = "out = os.fork()\nif not out: os.setsid(); os.chdir('/'); time.sleep(600)"
        pids.append(int(await bench.run(workers[2], code)))
        batch = bench.send(workers[0], ("echo", "x"), ("sleep", "60"))
        await started(bench, workers[0], batch)
        os.kill(bench.node._forkserver.pid, signal.SIGKILL)
        reports = [await bench.exit(worker) for worker in workers]
        assert reports[0].states == {batch: ("finished", "started")}
        assert all((r.exit_code, r.signal, r.reason) == (None, None, None) for r in reports)
        await gone(*pids)
        assert "forkserver" in bench.notes[0].message
        assert await bench.call(await bench.start(), "echo", "again") == "again"

    play(scenario)


def test_a_forkserver_that_hangs_is_replaced(play, monkeypatch):
    monkeypatch.setattr("toolsd.node._BIRTH", 0.5)

    async def scenario(bench):
        await bench.start()
        frozen = bench.node._forkserver.pid
        os.kill(frozen, signal.SIGSTOP)
        stuck = bench.begin()
        event = await bench.until(bench.of(stuck, WorkerStartFailed))
        assert "forkserver died" in event.message
        await gone(frozen)
        assert "does not answer" in bench.notes[0].message
        monkeypatch.setattr("toolsd.node._BIRTH", 10.0)
        assert await bench.call(await bench.start(), "echo", "again") == "again"

    play(scenario)


SEND = """
import gc, zmq
link = next(o for o in gc.get_objects() if isinstance(o, zmq.Socket))
from toolsd import codec, messages
from toolsd.errors import Failure
send = lambda message: link.send_multipart(codec.encode(message))
"""


@pytest.mark.parametrize(
    ("code", "charge"),
    [
        ("link.send(b'')", "header"),
        ("link.send(b'D')", "not a msgpack header"),
        ("link.send(b'D' + b'\\xff' * 1000)", "BatchDone: Expected `object`"),
        ("link.send(b'D\\x81\\xa4deep' + b'\\x91' * 100000)", "not a msgpack header"),
        ("link.send(b'D\\x81\\xa5batch\\xa3one')", "BatchDone"),
        ("link.send(b'D' + b'x' * (20 << 20))", "20971521"),
        ("send(messages.BatchDone(999))", "batch 999"),
        ("send(messages.Partial(batch.id, ((0, b't'), (0, b't'))))", "twice"),
        ("send(messages.Partial(batch.id, ((5, b't'),)))", "no slot 5"),
        ("send(messages.Partial(batch.id, ((-1, b't'),)))", "no slot -1"),
        ("send(messages.Partial(batch.id, ((0, 3),)))", "binary frame 3"),
        ("send(messages.BatchDone(batch.id))", "1 slots empty"),
        ("send(messages.BatchDone(batch.id, (), Failure('overloaded', 'x')))", "overloaded"),
        ("send(messages.CallProgress(batch.id, 9, b''))", "no slot 9"),
        ("send(messages.Hello((1,)))", "second HELLO"),
        ("send(messages.Ready(()))", "after READY"),
    ],
)
def test_junk_is_misbehaviour_and_nothing_after_it_counts(play, code, charge):
    async def scenario(bench):
        worker = await bench.start()
        bench.send(worker, ("run", SEND + code))
        event = await bench.until(bench.of(worker, WorkerMisbehaved))
        assert charge in event.message
        bench.node.execute(KillWorker(worker, "protocol"))
        assert (await bench.exit(worker)).reason == "protocol"
        assert not any(isinstance(e, BatchFinished) for e in bench.events)

    play(scenario)


def test_other_versions_and_broken_links(play):
    async def scenario(bench):
        worker = bench.begin(load="from toolsd import messages, worker\nworker.PROTOCOL_VERSION")
        await bench.until(bench.of(worker, WorkerReady))
        # unknown kinds are ignored: they belong to a later minor version
        batch = bench.send(worker, ("run", SEND + "link.send(b'\\xf0junk')"))
        assert isinstance(await bench.ended(batch), BatchFinished)
        # a frame above the limit drops the connection, a closed link is no life either
        batch = bench.send(worker, ("run", SEND + "link.send(bytes(257 << 20)); time.sleep(60)"))
        event = await bench.until(bench.of(worker, WorkerMisbehaved))
        assert "link broke" in event.message
        bench.node.execute(KillWorker(worker, "protocol"))
        await bench.exit(worker)

    play(scenario)
