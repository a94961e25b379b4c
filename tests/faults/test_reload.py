"""Reload: a whole new generation or nothing, under load, with everything unchanged left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import toolsd
from clients.conftest import PATIENCE, Gate, eventually

from .conftest import House, Open

KEEP = """
source = toolsd.Source("keep")


@source.tool
def keep_pid() -> int:
    return os.getpid()
"""
SWAP = """
source = toolsd.Source("swap")


@source.tool
def swap_echo(text: str) -> str:
    return text


@source.tool
def hold(ready: str, release: str) -> str:
    open(ready, "w").close()
    while not os.path.exists(release):
        time.sleep(0.002)
    return "released"
"""
SOURCES = {"keep": (KEEP, ""), "swap": (SWAP, "")}


def command(house: House, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolsd", "--socket", f"{house.home}/s", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def changed(version: int) -> dict[str, tuple[str, str]]:
    return {"keep": (KEEP, ""), "swap": (SWAP, f"cancel_grace = '{500 + version}ms'\n")}


def test_under_load_no_turn_is_lost_and_unchanged_workers_keep_their_pids(house: Open) -> None:
    """E16, E17: turns go on over ten reloads, each answered by one generation or the other."""
    one = house(SOURCES)
    kept, over = one.pid("keep"), threading.Event()
    trouble: list[BaseException] = []
    done = [0]

    def load() -> None:
        try:
            with one.client() as client:
                while not over.is_set():
                    texts = [r.text for r in client.run([("swap_echo", {"text": "a"}), ("keep_pid", {})])]
                    assert texts == ["a", str(kept)]
                    done[0] += 1
        except BaseException as error:  # noqa: BLE001  # told by the thread that watches
            trouble.append(error)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    before = one.pid("swap")
    with one.client() as client:
        for version in range(10):
            one.write(changed(version))
            changes = {change["stanza"]: change["kind"] for change in client.reload()}
            assert changes == {"source.keep": "unchanged", "source.swap": "changed"}
            seen = done[0]
            eventually(lambda seen=seen: done[0] > seen or trouble, "turns go on")
        assert client.ps()["generation"] == 11
    over.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not trouble
    eventually(lambda: len(one.workers("swap")) == 1 and one.pid("swap") != before, "the old worker left")
    assert one.pid("keep") == kept


def test_a_turn_that_runs_ends_where_it_began(house: Open, gate: Gate) -> None:
    """E15, E16: the successor serves while the predecessor still works."""
    one = house(SOURCES)
    old = one.pid("swap")
    with one.client() as client:
        results: list[toolsd.Result] = []
        turn = threading.Thread(target=lambda: results.append(client.call("hold", gate.arguments)))
        turn.start()
        gate.wait_until_it_runs()
        one.write(changed(1))
        client.reload()
        assert client.call("swap_echo", {"text": "new"}).text == "new"
        assert old in {process.pid for process in one.family()}
        gate.release()
        turn.join(PATIENCE)
    assert results[0].text == "released"
    eventually(lambda: old not in {process.pid for process in one.family()}, "the old worker left")


BROKEN = [
    ("[source", "not valid TOML"),
    ('[source.third]\nkind = "python"\npath = "third.py"\n', "third"),
    ('[source.third]\nkind = "python"\npath = "keep.py"\n', "keep_pid"),
    ('[source.third]\nkind = "pyhton"\npath = "keep.py"\n', "pyhton"),
]


@pytest.mark.parametrize(("more", "said"), BROKEN, ids=["syntax", "missing", "collision", "mistake"])
def test_a_broken_configuration_changes_nothing_and_says_why(house: Open, more: str, said: str) -> None:
    """E16."""
    one = house(SOURCES)
    before = {name: one.pid(name) for name in SOURCES}
    one.write(changed(1), more)
    told = command(one, "reload")
    assert (told.returncode, said in told.stderr) == (78, True), told
    one.signal(signal.SIGHUP)
    eventually(lambda: one.said().count("nothing was changed") >= 1 and said in one.said(), "the log says why")
    with one.client() as client, pytest.raises(toolsd.ConfigError, match=said):
        client.reload()
    assert {name: one.pid(name) for name in SOURCES} == before
    with one.client() as client:
        assert client.ps()["generation"] == 1
        assert client.call("swap_echo", {"text": "still"}).text == "still"


def test_dry_run_shows_the_difference_and_changes_nothing(house: Open) -> None:
    one = house(SOURCES)
    pids = {name: one.pid(name) for name in SOURCES}
    one.write({"swap": (SWAP, "cancel_grace = '1s'\n"), "new": (KEEP, "")})
    told = command(one, "reload", "--dry-run")
    assert told.returncode == 0
    for line in ("~ [source.swap]", "cancel_grace: 2s -> 1s", "+ [source.new]", "- [source.keep]", "would change"):
        assert line in told.stdout, told.stdout
    machine: dict[str, Any] = json.loads(command(one, "reload", "--dry-run", "--json").stdout)
    assert machine["published"] is False
    assert [(change["stanza"], change["kind"]) for change in machine["changes"]] == [
        ("source.swap", "changed"),
        ("source.new", "added"),
        ("source.keep", "removed"),
    ]
    assert {name: one.pid(name) for name in SOURCES} == pids
    assert json.loads(command(one, "reload", "--json").stdout)["published"] is True
    eventually(lambda: one.pid("swap") != pids["swap"], "the changed source has a new worker")


def test_a_changed_file_is_a_change_and_a_touched_setting_of_the_daemon_is_said(house: Open) -> None:
    one = house(SOURCES)
    one.write({"keep": (KEEP, ""), "swap": (SWAP.replace("return text", "return text.upper()"), "")})
    os.utime(one.home / "swap.py", ns=(0, time.time_ns()))
    text = one.config.read_text()
    one.config.write_text(text.replace('stop_timeout = "5s"', 'stop_timeout = "6s"'))
    told = command(one, "reload")
    assert told.returncode == 0
    assert "~ [daemon]  (takes effect when the daemon is started again)" in told.stdout
    assert "the file has changed" in told.stdout
    with one.client() as client:
        assert client.call("swap_echo", {"text": "loud"}).text == "LOUD"


def test_a_hangup_reloads(house: Open) -> None:
    one = house(SOURCES)
    before = one.pid("swap")
    one.write(changed(1))
    one.signal(signal.SIGHUP)
    eventually(lambda: [w["pid"] for w in one.workers("swap")] not in ([before], []), "another worker")
    assert one.state("swap") == "ready"
