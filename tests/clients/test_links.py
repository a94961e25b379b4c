"""Coordinators that are not there, go away, hang or come back; threads, forks and Ctrl-C on the client's side."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import toolsd
from toolsd import Client, CoordinatorLost, CoordinatorUnreachable, StateLost, TurnCancelled, UsageError
from toolsd.client import routes

from .conftest import PATIENCE, Daemon, Gate, alive, eventually


def gate_text(gate: Gate) -> str:
    return json.dumps(gate.arguments)


class Background:
    """Runs something in a thread and keeps what came of it."""

    def __init__(self, work: object) -> None:
        self._work = work
        self.result: object = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def _main(self) -> None:
        try:
            self.result = self._work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001  # looked at by the test
            self.error = error

    def join(self) -> Background:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self


# --- no coordinator -------------------------------------------------------------------------------------------------


def test_no_socket_says_how_to_start_a_daemon(tmp_path: Path) -> None:
    client = toolsd.connect(f"ipc://{tmp_path}/none")
    with pytest.raises(CoordinatorUnreachable, match="toolsd serve"):
        client.call("echo")
    with pytest.raises(CoordinatorUnreachable), client:
        pass


def test_a_stale_socket_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with pytest.raises(CoordinatorUnreachable, match="nobody listens"):
        toolsd.connect(f"ipc://{path}").open()


def test_the_default_address_is_this_users_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(CoordinatorUnreachable, match=r"toolsd/toolsd\.sock"):
        toolsd.connect().tools()


def test_somebody_who_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(CoordinatorUnreachable, match="did not answer in time"):
            toolsd.connect(f"ipc://{tmp_path}/s", timeout=0.2).open()


# --- a coordinator that goes ----------------------------------------------------------------------------------------


def test_a_killed_coordinator_is_seen_and_its_successor_used(own_daemon: Daemon, gate: Gate) -> None:
    with toolsd.connect(own_daemon.address) as client:
        workers = [w["pid"] for s in client.ps()["sources"] for w in s["workers"] if w["pid"]]
        turn = Background(lambda: client.call("hold", gate.arguments))
        gate.wait_until_it_runs()
        own_daemon.kill()
        assert isinstance(turn.join().error, CoordinatorLost)
        eventually(lambda: not any(alive(pid) for pid in workers), "no worker outlives the daemon")
        with pytest.raises((CoordinatorUnreachable, CoordinatorLost)):
            client.call("echo", {"text": "nobody"})
        own_daemon.start()
        assert client.call("echo", {"text": "back"}).text == "back"


def test_a_session_does_not_go_on_with_a_fresh_state_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(
        "import toolsd\nseen = []\n@toolsd.tool\ndef count() -> int:\n    seen.append(1)\n    return len(seen)\n"
    )
    (tmp_path / "toolsd.toml").write_text('[source.c]\nkind = "python"\npath = "count.py"\naffinity = "session"\n')
    with tempfile.TemporaryDirectory(prefix="d-") as directory:
        daemon = Daemon(tmp_path / "toolsd.toml", Path(directory, "s"))
        try:
            with toolsd.connect(daemon.address) as client, toolsd.connect(daemon.address) as other:
                assert [client.call("count", session="mine").content for _ in range(2)] == [1, 2]
                daemon.kill()
                daemon.start()
                eventually(lambda: _reaches(client) and _reaches(other), "both have noticed")
                assert other.call("count", session="theirs").content == 1
                with pytest.raises(StateLost, match="'mine'") as lost:
                    client.call("count", session="mine")
                assert [entry.state for entry in lost.value.ledger] == ["not_sent"]
                assert client.call("count", session="mine").content == 2
        finally:
            daemon.close()


def _reaches(client: toolsd.Client) -> bool:
    try:
        return client.ps()["state"] == "running"
    except (CoordinatorLost, CoordinatorUnreachable):
        return False


def test_a_turn_opened_before_a_restart_runs_on_the_new_coordinator(own_daemon: Daemon) -> None:
    with toolsd.connect(own_daemon.address) as client:
        turn = client.turn()
        turn.observe([{"index": 0, "id": "a", "function": {"name": "echo", "arguments": '{"text":'}}])
        own_daemon.kill()
        own_daemon.start()
        turn.observe([{"index": 0, "function": {"arguments": ' "still here"}'}}])

        def finish() -> list[toolsd.Result]:
            try:
                return turn.finish()
            except CoordinatorLost:  # the loss had not been noticed yet; nothing of the turn ran
                return client.run([("echo", {"text": "still here"})])

        assert [r.text for r in finish()] == ["still here"]


def test_a_coordinator_that_hangs_is_given_up(own_daemon: Daemon, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "SILENCE", 0.6)
    with toolsd.connect(own_daemon.address) as client:
        turn = Background(lambda: client.call("hold", gate.arguments))
        gate.wait_until_it_runs()
        own_daemon.signal(signal.SIGSTOP)
        try:
            assert isinstance(turn.join().error, CoordinatorLost)
        finally:
            own_daemon.signal(signal.SIGCONT)


def test_a_closed_client_says_so(daemon: Daemon) -> None:
    client = toolsd.connect(daemon.address)
    assert client.call("echo", {"text": "x"}).ok
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.call("echo", {"text": "x"})


def test_stop_ends_the_coordinator_after_its_turns(own_daemon: Daemon, gate: Gate) -> None:
    with toolsd.connect(own_daemon.address) as client:
        turn = Background(lambda: client.call("hold", gate.arguments))
        gate.wait_until_it_runs()
        stop = Background(client.stop)
        eventually(lambda: client.ps()["state"] == "draining", "it drains")
        with pytest.raises(toolsd.Draining) as caught:
            client.call("echo", {"text": "late"})
        assert caught.value.retry == "safe"
        gate.release()
        result = turn.join().result
        assert isinstance(result, toolsd.Result)
        assert result.text == "released"
        assert stop.join().error is None
    assert own_daemon.wait() == 0


def test_stop_now_does_not_wait(own_daemon: Daemon, gate: Gate) -> None:
    with toolsd.connect(own_daemon.address) as client:
        turn = Background(lambda: client.call("hold", gate.arguments))
        gate.wait_until_it_runs()
        client.stop(now=True)
        error = turn.join().error
        assert isinstance(error, toolsd.TurnFailed)
    assert own_daemon.wait() == 0


def test_an_unknown_question_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="no answer"):
        client._ask("the meaning of life")
    assert client.ps()["state"] == "running"


# --- threads --------------------------------------------------------------------------------------------------------


def test_every_thread_has_its_own_link(client: Client) -> None:
    def work(n: int) -> list[str]:
        return [client.call("side_echo", {"text": f"{n}.{i}"}).text for i in range(20)]

    before = len(client.ps()["clients"])
    running = [Background(lambda n=n: work(n)) for n in range(8)]
    assert [b.join().result for b in running] == [[f"{n}.{i}" for i in range(20)] for n in range(8)]
    eventually(lambda: len(client.ps()["clients"]) == before, "links end with their threads")


def test_a_turn_may_be_finished_in_another_thread(client: Client, gate: Gate) -> None:
    turn = client.turn()
    turn.observe([{"index": 0, "id": "a", "function": {"name": "wait_for"}}])
    other = Background(
        lambda: turn.observe([{"index": 0, "function": {"arguments": gate_text(gate)}}]) or turn.finish()
    )
    gate.wait_until_it_runs()
    # Both threads now wait on one link.
    assert client.call("echo", {"text": "meanwhile"}).text == "meanwhile"
    gate.release()
    results = other.join().result
    assert isinstance(results, list)
    assert [r.text for r in results] == ["released"]


@pytest.mark.parametrize(("tool", "outcome"), [("wait_for", "stopped"), ("hold", "stopped")])
def test_cancel_from_another_thread(client: Client, gate: Gate, tool: str, outcome: str) -> None:
    turn = client.turn()
    turn.observe([{"index": 0, "id": "a", "function": {"name": tool, "arguments": gate_text(gate)}}])
    waiting = Background(turn.finish)
    gate.wait_until_it_runs()
    assert turn.cancel() == outcome
    error = waiting.join().error
    assert isinstance(error, TurnCancelled)
    assert error.cause == outcome
    assert client.call("echo", {"text": "next"}).text == "next"


def test_cancel_of_code_that_cannot_stop_kills_its_worker(client: Client, gate: Gate) -> None:
    before = client.call("where").content
    turn = client.turn()
    turn.observe([{"index": 0, "id": "a", "function": {"name": "stubborn", "arguments": gate_text(gate)}}])
    waiting = Background(turn.finish)
    gate.wait_until_it_runs()
    assert turn.cancel() == "killed"
    assert isinstance(waiting.join().error, TurnCancelled)
    assert client.call("where").content != before


def test_cancel_after_the_end_says_so(client: Client) -> None:
    turn = client.turn()
    turn.observe([{"index": 0, "id": "a", "function": {"name": "echo", "arguments": '{"text": "x"}'}}])
    turn.finish()
    assert turn.cancel() == "finished_first"


# --- forks and signals ----------------------------------------------------------------------------------------------


def test_a_fork_gets_a_clear_error_and_leaves_the_parent_alone(client: Client) -> None:
    script = """
import os, sys, toolsd
client = toolsd.connect(sys.argv[1])
assert client.call("echo", {"text": "parent"}).ok
pid = os.fork()
if not pid:
    try:
        client.call("echo", {"text": "child"})
    except toolsd.UsageError as error:
        os._exit(0 if "fork" in str(error) else 2)
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
pid = os.fork()
if not pid:
    with toolsd.connect(sys.argv[1]) as own:
        os._exit(0 if own.call("echo", {"text": "own"}).ok else 4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert client.call("echo", {"text": "parent"}).text == "parent"
"""
    ran = subprocess.run([sys.executable, "-c", script, client.address], timeout=PATIENCE, check=False)
    assert ran.returncode == 0


_CALLER = """
import sys, toolsd
client = toolsd.connect(sys.argv[1])
try:
    client.call("wait_for", {"ready": sys.argv[2], "release": sys.argv[3]})
except KeyboardInterrupt:
    print(client.call("side_echo", {"text": "still usable"}).text, flush=True)
    sys.exit(130)
"""


def test_ctrl_c_cancels_the_turn_and_leaves_the_client_usable(client: Client, gate: Gate) -> None:
    arguments = [client.address, gate.arguments["ready"], gate.arguments["release"]]
    with subprocess.Popen([sys.executable, "-c", _CALLER, *arguments], stdout=subprocess.PIPE, text=True) as caller:
        gate.wait_until_it_runs()
        caller.send_signal(signal.SIGINT)
        out, _ = caller.communicate(timeout=PATIENCE)
    assert (caller.returncode, out) == (130, "still usable\n")
    eventually(lambda: client.ps()["turns"] == [], "its turn is over")


def test_a_client_killed_in_mid_turn_frees_what_it_held(client: Client, gate: Gate) -> None:
    arguments = [client.address, gate.arguments["ready"], gate.arguments["release"]]
    with subprocess.Popen([sys.executable, "-c", _CALLER, *arguments]) as caller:
        gate.wait_until_it_runs()
        assert len(client.ps()["turns"]) == 1
        caller.kill()
    eventually(lambda: client.ps()["turns"] == [], "its turn is over")
    assert [c["pid"] for c in client.ps()["clients"]].count(caller.pid) == 0
    assert client.call("side_echo", {"text": "free"}).text == "free"
    assert not os.path.exists(gate.arguments["release"])
