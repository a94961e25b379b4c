"""Code that does not stop by itself: frozen, busy in C, hidden in other sessions. Nothing waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import toolsd
from clients.conftest import PATIENCE, Gate, alive, eventually

from .conftest import House, Open, file_appears

STUCK = """
import itertools

source = toolsd.Source("stuck")


@source.tool
def sleeps(ready: str) -> None:
    open(ready, "w").write(str(os.getpid()))
    time.sleep(600)


@source.tool
def in_c(ready: str) -> None:
    open(ready, "w").write(str(os.getpid()))
    sum(itertools.repeat(1))


@source.tool
def hides(ready: str) -> None:
    first = os.fork()
    if not first:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        open(ready, "w").write(f"{os.getppid()} {os.getpid()}")
        time.sleep(600)
    os.waitpid(first, 0)
    time.sleep(600)


@source.tool
def pid() -> int:
    return os.getpid()
"""
BUSY = """
source = toolsd.Source("busy", scheduling="concurrent")


@source.tool
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


@source.tool
async def left() -> list[int]:
    await asyncio.sleep(0)
    return [sum(task.get_name().startswith("Task") for task in asyncio.all_tasks()), threading.active_count()]
"""
FINE = """
source = toolsd.Source("fine")


@source.tool
def fine(text: str = "") -> str:
    return text
"""
DEFAULTS = "batch_timeout = '500ms'\nlimits = { processes = 20 }\n"


@pytest.fixture(scope="module")
def one() -> Iterator[House]:
    with TemporaryDirectory(prefix="f-") as home:
        made = House(Path(home), {"stuck": (STUCK, ""), "fine": (FINE, ""), "busy": (BUSY, "")}, DEFAULTS)
        made.start()
        yield made
        made.close()


@pytest.mark.parametrize("tool", ["sleeps", "in_c", "hides"])
def test_a_blown_deadline_ends_it_with_everything_it_started(one: House, tmp_path: Path, tool: str) -> None:
    """B2, B3, B7: the autopsy names the call and shows its stack; nothing of it lives; the next turn is served."""
    ready = tmp_path / "ready"
    with one.client() as client:
        with pytest.raises(toolsd.BatchTimeout) as failed:
            client.call(tool, {"ready": str(ready)})
        evidence = failed.value.evidence
        assert evidence is not None
        assert (evidence.running, evidence.limit) == (tool, 0.5)
        assert tool in (evidence.stacks or "")
        for pid in ready.read_text().split():
            eventually(lambda pid=pid: not alive(int(pid)), "nothing of it lives")
        assert client.call("pid").ok


def test_a_frozen_worker_is_ended_by_its_deadline(one: House) -> None:
    """A process that is stopped cannot show its stacks, and is killed all the same."""
    with one.client() as client:
        pid = client.call("pid").content
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(toolsd.BatchTimeout):
            client.call("pid")
        assert not alive(pid)
        assert client.call("pid").content != pid


def test_a_timeout_and_a_death_are_different_errors_and_neither_repeats_the_call(one: House, tmp_path: Path) -> None:
    """B5, E18."""
    with one.client() as client:
        ready = tmp_path / "a"
        with pytest.raises(toolsd.BatchTimeout):
            client.call("sleeps", {"ready": str(ready)})
        victim = threading.Thread(target=lambda: os.kill(int(file_appears(tmp_path / "b")), signal.SIGKILL))
        victim.start()
        with pytest.raises(toolsd.WorkerCrashed):
            client.call("sleeps", {"ready": str(tmp_path / "b")})
        victim.join()


def test_after_fifty_cancelled_calls_nothing_runs_in_the_worker(one: House) -> None:
    """B1, B4: asked inside the worker, which lives on."""
    with one.client() as client:
        worker = one.pid("busy")
        before = client.call("left").content
        for _ in range(5):
            turn = client.turn(deadline=0.02)
            turn.observe(
                [
                    {"index": n, "id": f"c{n}", "function": {"name": "wait", "arguments": '{"seconds": 0.4}'}}
                    for n in range(10)
                ]
            )
            with pytest.raises(toolsd.TurnTimeout):
                turn.finish("tool_calls")
        eventually(lambda: client.call("left").content[0] <= before[0], "no task of a cancelled call is left")
        assert client.call("left").content[1] <= before[1] + 1
        assert one.pid("busy") == worker


def test_questions_and_other_sources_are_answered_while_workers_are_stuck_in_c(one: House, tmp_path: Path) -> None:
    """C4, C5: the loop of the coordinator waits for nobody."""
    ready = tmp_path / "ready"
    codes: list[str] = []

    def stuck() -> None:
        with one.client() as client, pytest.raises(toolsd.TurnFailed) as failed:
            client.call("in_c", {"ready": str(ready)})
        codes.append(failed.value.code)

    thread = threading.Thread(target=stuck)
    thread.start()
    file_appears(ready)
    with one.client() as client:
        for number in range(50):
            assert client.call("fine", {"text": str(number)}).text == str(number)
        assert client.ps()["state"] == "running"
    thread.join(PATIENCE)
    assert codes == ["batch_timeout"]


def test_a_pause_of_the_whole_daemon_costs_nobody_the_result_that_is_there(house: Open, gate: Gate) -> None:
    """Clocks jump over a suspended machine: what had finished by then is an answer, not a timeout."""
    hold = STUCK + '\n\n@source.tool\ndef hold(ready: str, release: str) -> str:\n    open(ready, "w").close()\n'
    hold += "    while not os.path.exists(release):\n        time.sleep(0.002)\n    open(release, 'a').write('over')\n"
    hold += "    return 'released'\n"
    one = house({"stuck": (hold, "batch_timeout = '700ms'")})
    with one.client() as client:
        results: list[toolsd.Result] = []
        thread = threading.Thread(target=lambda: results.append(client.call("hold", gate.arguments)))
        thread.start()
        gate.wait_until_it_runs()
        one.signal(signal.SIGSTOP)
        gate.release()
        file_appears(Path(gate.arguments["release"]))
        threading.Event().wait(1.0)  # the deadline passes while nobody can act on it: that is the fault
        one.signal(signal.SIGCONT)
        thread.join(PATIENCE)
    assert [result.text for result in results] == ["released"]


def test_ctrl_c_in_the_terminal_reaches_the_daemon_alone(house: Open, gate: Gate) -> None:
    """E5: workers are in sessions of their own; what runs finishes."""
    hold = """
source = toolsd.Source("hold")


@source.tool
def hold(ready: str, release: str) -> str:
    open(ready, "w").close()
    while not os.path.exists(release):
        time.sleep(0.002)
    return "released"
"""
    one = house({"hold": (hold, "")}, under=("setsid",))
    with one.client() as client:
        results: list[toolsd.Result] = []
        thread = threading.Thread(target=lambda: results.append(client.call("hold", gate.arguments)))
        thread.start()
        gate.wait_until_it_runs()
        os.killpg(one.process.pid, signal.SIGINT)
        eventually(lambda: client.ps()["state"] == "draining", "the drain began")
        gate.release()
        thread.join(PATIENCE)
    assert [result.text for result in results] == ["released"]
    assert one.wait() == 0


def test_nothing_outlives_a_killed_daemon_by_two_seconds(house: Open, tmp_path: Path) -> None:
    """E1, E2: also what called setsid and let itself be adopted; its clients hear of it."""
    one = house({"stuck": (STUCK, "limits = { processes = 20 }")})
    family: list[int] = []

    def kill() -> None:
        family.extend(int(pid) for pid in file_appears(tmp_path / "ready").split())
        family.extend(process.pid for process in one.family())
        one.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with one.client() as client, pytest.raises(toolsd.CoordinatorLost):
        client.call("hides", {"ready": str(tmp_path / "ready")})
    killer.join()
    one.wait()
    assert len(family) >= 4
    eventually(lambda: not any(alive(pid) for pid in family), "all of it is gone")


def test_a_client_that_was_stopped_does_not_hold_up_the_end(house: Open) -> None:
    """G2, G7: answers for a client that does not read are not waited for."""
    one = house({"fine": (FINE, "")})

    code = "import sys, toolsd; c = toolsd.connect(sys.argv[1]).__enter__(); print('open', flush=True); c.call('fine')"
    code += "\nwhile True: c.run([('fine', {'text': 'x' * 100_000})] * 20)"
    with subprocess.Popen([sys.executable, "-c", code, one.address], stdout=subprocess.PIPE) as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == b"open\n"
        slow.send_signal(signal.SIGSTOP)
        one.signal(signal.SIGTERM)
        assert one.wait() == 0
        slow.kill()
