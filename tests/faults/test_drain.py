"""The end of a daemon under load: everybody is answered, and the answer is true."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

import toolsd
from clients.conftest import PATIENCE, eventually

from .conftest import House, Open

WORK = """
source = toolsd.Source("work")
out = os.open(os.environ["RAN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@source.tool
def work(name: str) -> str:
    os.write(out, f"{name}\\n".encode())
    return name
"""


@pytest.mark.parametrize("life", range(4))
def test_to_its_last_moment_a_drain_says_of_each_turn_whether_it_ran(house: Open, tmp_path: Path, life: int) -> None:
    """A turn that came too late is `Draining` (or finds nobody), never a coordinator that was lost."""
    ran = tmp_path / "ran"
    one = house({"work": (WORK, f"env = {{ RAN = '{ran}' }}\nreplicas = 2\n")})
    ends: dict[str, str] = {}

    async def lane(client: toolsd.AsyncClient, lane: str) -> None:
        for number in range(100_000):
            name = f"{lane}.{number}"
            try:
                ends[name] = (await client.call("work", {"name": name})).text
            except toolsd.ToolsdError as error:
                ends[name] = error.code
                if isinstance(error, toolsd.Draining):
                    assert [(entry.tool, entry.state) for entry in error.ledger] == [("work", "not_sent")]
                    assert error.retry == "safe"
                if error.code != "draining":
                    return

    async def scenario() -> None:
        clients = [await toolsd.AsyncClient.connect(one.address).open() for _ in range(2)]
        lanes = [asyncio.create_task(lane(client, f"{n}.{m}")) for n, client in enumerate(clients) for m in range(3)]
        while len(ends) < 40 + 10 * life:
            await asyncio.sleep(0)
        one.signal(signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*lanes), PATIENCE)
        for client in clients:
            await client.close()

    asyncio.run(scenario())
    assert one.wait() == 0
    wrote = Counter(ran.read_text().split())
    answered = {name for name, end in ends.items() if end == name}
    assert {end for name, end in ends.items() if end != name} <= {"draining", "coordinator_unreachable"}
    assert wrote == Counter(answered)


def _reload(one: House, told: list[str]) -> threading.Thread:
    def reload() -> None:
        with one.client() as client:
            try:
                client.reload()
            except toolsd.ConfigError as error:
                told.append(str(error))

    thread = threading.Thread(target=reload)
    thread.start()
    return thread


def test_a_reload_that_is_being_prepared_is_refused_by_a_drain(house: Open) -> None:
    fine = "source = toolsd.Source('fine')\n\n\n@source.tool\ndef fine() -> None: ...\n"
    one = house({"fine": (fine, "")})
    one.write({"fine": (fine, ""), "slow": ("time.sleep(600)\n", "")})
    told: list[str] = []
    thread = _reload(one, told)
    with one.client() as client:
        eventually(lambda: client.ps()["reloading"], "the reload is being prepared")
    one.signal(signal.SIGTERM)
    thread.join(PATIENCE)
    assert told == ["the coordinator is stopping"]
    assert one.wait() == 0


def test_a_configuration_that_cannot_be_read_to_its_end_keeps_no_daemon(house: Open) -> None:
    """As on a disk that hangs: here the file is a pipe that nobody writes to."""
    fine = "source = toolsd.Source('fine')\n\n\n@source.tool\ndef fine() -> None: ...\n"
    one = house({"fine": (fine, "")})
    one.config.unlink()
    os.mkfifo(one.config)
    told: list[str] = []
    thread = _reload(one, told)
    writer = os.open(one.config, os.O_WRONLY)  # opens when the daemon reads
    with one.client() as client:
        assert client.call("fine").ok
    one.signal(signal.SIGTERM)
    thread.join(PATIENCE)
    assert told == ["the coordinator is stopping"]
    assert one.wait() == 0
    os.close(writer)
