"""Death in every phase of a worker's life, seen from a client: named, at once, and the next turn is served."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

import toolsd
from clients.conftest import alive, eventually

from .conftest import House, Open, file_appears

MIB = 1024 * 1024
DIE = 'print("last words", file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGKILL)'

FINE = """
source = toolsd.Source("fine")


@source.tool
def fine() -> int:
    return os.getpid()
"""
BATCHES = f"""
source = toolsd.Source("batches")


@source.tool
def step(how: str = "") -> str:
    return how


@source.invoke_batch
def batch(calls, results):
    for call, slot in zip(calls, results):
        if call.arguments["how"] == "before":
            {DIE}
        slot.ok(call.invoke())
        if call.arguments["how"] == "after":
            {DIE}
"""
LARGE = """
source = toolsd.Source("large")


@source.tool
def large(size: int, ms: float) -> str:
    def die():
        time.sleep(ms / 1000)
        os.kill(os.getpid(), signal.SIGKILL)

    if ms >= 0:
        threading.Thread(target=die).start()
    return "x" * size
"""


@pytest.mark.parametrize("where", ["import", "start"])
def test_a_source_that_dies_before_it_is_ready_says_its_last_words(house: Open, where: str) -> None:
    """A3, A4, A9, C9: named at once with the last line of its stderr; others serve."""
    code = DIE if where == "import" else f"source = toolsd.Source('bad')\n@source.on_start\ndef start():\n    {DIE}\n"
    code += "\n@source.tool\ndef bad() -> None: ...\n"
    one = house({"bad": (code, "restart = { max = 1 }"), "fine": (FINE, "")})
    with one.client() as client:
        eventually(lambda: next(s for s in client.ps()["sources"] if s["name"] == "bad")["failure"], "it failed")
        failure = next(s for s in client.ps()["sources"] if s["name"] == "bad")["failure"]
        assert failure["code"] in ("source_start_failed", "source_unavailable")
        assert "SIGKILL" in failure["message"]
        assert "last words" in one.said() + failure["message"]
        assert client.call("fine").ok


def test_an_idle_worker_that_is_killed_is_replaced_before_anybody_asks(house: Open) -> None:
    """A5, A14, C6: `ps` knows it; one worker and the same tools are there again."""
    one = house({"fine": (FINE, "")})
    with one.client() as client:
        tools, pid = client.tools(), client.call("fine").content
        for _ in range(5):
            psutil.Process(pid).kill()
            before = pid
            eventually(lambda before=before: [w["pid"] for w in one.workers("fine")] not in ([], [before]), "another")
            pid = client.call("fine").content
            assert pid != before
            assert not alive(before)
        assert client.tools() == tools
        assert [worker["pid"] for worker in one.workers("fine")] == [pid]
        assert [child.pid for child in one.forkserver().children()] == [pid]


PHASES = [
    (["before", ""], ["started", "started"]),
    (["", "before"], ["finished", "started"]),
    (["", "after", ""], ["finished", "finished", "started"]),
]


@pytest.mark.parametrize(("how", "ledger"), PHASES, ids=["before the first call", "between calls", "after a call"])
def test_the_ledger_knows_how_far_it_came(house: Open, how: list[str], ledger: list[str]) -> None:
    """C2, C3: per call what is known of it; the proof is there, and the next turn is served.

    A source with its own `invoke_batch` has begun all its calls at once.
    """
    one = house({"batches": (BATCHES, ""), "fine": (FINE, "")})
    with one.client() as client:
        with pytest.raises(toolsd.WorkerCrashed) as failed:
            client.run([*(("step", {"how": step}) for step in how), ("fine", {})])
        said = failed.value
        assert [entry.state for entry in said.ledger[:-1]] == ledger
        assert said.ledger[-1].source == "fine"
        assert said.evidence is not None
        assert said.evidence.signal == "SIGKILL" and "last words" in (said.evidence.stderr_tail or "")
        assert said.retry == "idempotent_only"
        assert [result.ok for result in client.run([("step", {"how": ""}), ("fine", {})])] == [True, True]


def test_the_death_of_the_forkserver_fails_what_ran_and_nothing_else(house: Open, tmp_path: Path) -> None:
    hold = """
source = toolsd.Source("hold")


@source.tool
def hold(ready: str) -> None:
    open(ready, "w").write(str(os.getpid()))
    time.sleep(600)
"""
    one = house({"hold": (hold, ""), "fine": (FINE, "")})

    def kill_when(ready: Path) -> None:
        file_appears(ready)
        one.forkserver().kill()

    with one.client() as client:
        for number in range(3):
            ready, fine = tmp_path / str(number), one.pid("fine")
            killer = threading.Thread(target=kill_when, args=(ready,))
            killer.start()
            with pytest.raises(toolsd.TurnFailed) as failed:
                client.call("hold", {"ready": str(ready)})
            killer.join()
            assert failed.value.code in ("worker_crashed", "worker_lost")
            assert [entry.state for entry in failed.value.ledger] == ["started"]
            eventually(
                lambda fine=fine: [w["pid"] for w in one.workers("fine")] not in ([], [fine]),
                "its other workers are there again",
            )
            assert client.call("fine").ok


@pytest.fixture(scope="module")
def large() -> Iterator[House]:
    with TemporaryDirectory(prefix="f-") as home:
        one = House(Path(home), {"large": (LARGE, "restart = { max = 1000 }")})
        one.start()
        yield one
        one.close()


@pytest.mark.parametrize("ms", [0, 20, 60, 120])
def test_death_while_a_result_of_64_mib_is_sent_gives_all_of_it_or_a_failure(large: House, ms: int) -> None:
    """D8: never a part."""
    with large.client() as client:
        try:
            (result,) = client.run([("large", {"size": 64 * MIB, "ms": ms})])
        except toolsd.TurnFailed as failed:
            assert failed.code == "worker_crashed"
            assert failed.evidence is not None and failed.evidence.signal == "SIGKILL"
            assert failed.ledger[0].state in ("sent", "started", "finished")
        else:
            assert len(result.text) == 64 * MIB and not result.text.strip("x")
        assert client.call("large", {"size": 1, "ms": -1}).text == "x"


@pytest.mark.parametrize("how", ["os._exit(3)", "time.sleep(600)", "raise ValueError('no')", DIE])
def test_a_source_that_dies_or_hangs_while_closing_does_not_keep_the_daemon(house: Open, how: str) -> None:
    code = FINE + f"\n\n@source.on_close\ndef close():\n    {how}\n"
    one = house({"fine": (code, "stop_timeout = '500ms'")})
    pid = one.pid("fine")
    one.signal(signal.SIGTERM)
    assert one.wait() == 0
    assert not alive(pid)
