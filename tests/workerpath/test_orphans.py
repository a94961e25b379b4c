"""What is left when the process that holds the node goes, however it goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from workerbench import HIDE, SPAWNING, gone, lives


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "end"])
def test_nothing_outlives_the_holder_by_two_seconds(how, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a holder that is killed cannot remove its files
    holder = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("holder.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder, holder.stdin, holder.stdout:
        pids = json.loads(holder.stdout.readline())
        assert len(list(filter(lives, pids))) >= 1 + 3 * 3
        if how == "end":
            holder.stdin.close()
        else:
            holder.send_signal(signal.Signals[how])
        holder.wait(20)
        end = time.monotonic() + 2
        while alive := list(filter(lives, pids)):
            assert time.monotonic() < end, alive
            time.sleep(0.005)
        if how == "end":
            assert list(tmp_path.iterdir()) == []


def test_a_forkserver_that_is_told_to_leave_takes_everything_with_it(play):
    async def scenario(bench):
        worker = await bench.start(**SPAWNING)
        pids = [int(pid) for pid in (await bench.run(worker, HIDE)).split()]
        os.kill(bench.node._forkserver.pid, signal.SIGTERM)
        await bench.exit(worker)
        await gone(*pids)
        assert await bench.call(await bench.start(), "echo", "again") == "again"

    play(scenario)


STOPPED = """
import asyncio, os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from workerbench import HIDE, SPAWNING, bench

LOADED = {"while it imports": "_asyncio"}


async def main():
    async with bench() as made:
        server = made.node._forkserver.pid
        pids = [server]
        if sys.argv[2] == "while it serves":
            worker = await made.start(**SPAWNING)
            pids += [await made.pid(worker), *map(int, (await made.run(worker, HIDE)).split())]
        while LOADED.get(sys.argv[2], "") not in open(f"/proc/{server}/maps").read():
            pass
        os.kill(server, signal.SIGSTOP)
        print(*pids, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["before its first line", "while it imports", "while it serves"])
def test_a_stopped_forkserver_does_not_outlive_the_holder(when, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    holder = subprocess.run(
        [sys.executable, "-c", STOPPED, str(Path(__file__).parent), when],
        check=False,
        capture_output=True,
        start_new_session=True,  # its orphans get a parent of another session, wherever the suite runs
        timeout=30,
    )
    pids = [int(pid) for pid in holder.stdout.split()]
    assert (holder.returncode, len(pids)) == (-signal.SIGKILL, 4 if when == "while it serves" else 1), holder
    end = time.monotonic() + 10
    while alive := list(filter(lives, pids)):
        assert time.monotonic() < end, alive
        time.sleep(0.005)
