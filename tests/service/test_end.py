"""How a daemon begins and ends: signals, drains, a second one, sources that must start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import toolsd
from clients.conftest import PATIENCE, Daemon, Gate, alive, eventually
from toolsd import AlreadyRunning, TurnFailed, daemon


def test_sigterm_lets_turns_finish(own_daemon: Daemon, gate: Gate) -> None:
    with toolsd.connect(own_daemon.address) as client:
        results: list[str] = []
        turn = threading.Thread(target=lambda: results.append(client.call("hold", gate.arguments).text))
        turn.start()
        gate.wait_until_it_runs()
        own_daemon.signal(signal.SIGTERM)
        eventually(lambda: client.ps()["state"] == "draining", "it drains")
        gate.release()
        turn.join(PATIENCE)
    assert results == ["released"]
    assert own_daemon.wait() == 0
    assert not Path(own_daemon.address.removeprefix("ipc://")).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_at_once(own_daemon: Daemon, gate: Gate, number: int) -> None:
    with toolsd.connect(own_daemon.address) as client:
        workers = [w["pid"] for s in client.ps()["sources"] for w in s["workers"] if w["pid"]]
        errors: list[BaseException] = []

        def call() -> None:
            try:
                client.call("stubborn", gate.arguments)
            except TurnFailed as error:
                errors.append(error)

        turn = threading.Thread(target=call)
        turn.start()
        gate.wait_until_it_runs()
        own_daemon.signal(number)
        eventually(lambda: client.ps()["state"] == "draining", "it drains")
        own_daemon.signal(number)
        turn.join(PATIENCE)
    assert [type(error) for error in errors] == [toolsd.Draining]
    assert own_daemon.wait() == 128 + number
    assert not any(alive(pid) for pid in workers)


def test_a_second_daemon_names_the_first(own_daemon: Daemon) -> None:
    with pytest.raises(AlreadyRunning, match=f"pid {own_daemon.process.pid}"):
        daemon.serve((), own_daemon.address)
    with toolsd.connect(own_daemon.address) as client:
        assert client.call("echo", {"text": "the first serves on"}).ok


def test_a_required_source_that_does_not_start_ends_the_daemon(tmp_path: Path, short_dir: Path) -> None:
    (tmp_path / "toolsd.toml").write_text('[source.x]\nkind = "python"\npath = "absent.py"\nrequired = true\n')
    script = """
import sys
from toolsd import config, daemon, ConfigError
loaded = config.load(sys.argv[1])
try:
    daemon.serve(loaded.sources, sys.argv[2], on_ready=lambda service: print("ready", flush=True))
except ConfigError as error:
    print(error)
    sys.exit(error.exit_status)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "toolsd.toml"), str(short_dir / "s")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 78
    assert "ready" not in ran.stdout
    assert "absent.py" in ran.stdout
    assert os.listdir(short_dir) == []


def test_a_daemon_without_sources_serves(short_dir: Path) -> None:
    script = """
import os, signal, sys
from toolsd import daemon
sys.exit(daemon.serve((), sys.argv[1], on_ready=lambda service: os.kill(os.getpid(), signal.SIGTERM)))
"""
    ran = subprocess.run([sys.executable, "-c", script, str(short_dir / "s")], timeout=PATIENCE, check=False)
    assert ran.returncode == 0


def test_the_socket_is_for_its_user_alone(own_daemon: Daemon) -> None:
    assert os.stat(own_daemon.address.removeprefix("ipc://")).st_mode & 0o777 == 0o700
