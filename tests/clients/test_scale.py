"""Much at once: payloads of 64 MiB beside small turns, a thousand clients, questions while all workers are busy."""

from __future__ import annotations

import subprocess
import sys
import threading

import toolsd
from toolsd import Client

from .conftest import PATIENCE, Daemon, Gate

MIB = 1024 * 1024


def test_64_mib_in_and_out_are_byte_equal_while_others_proceed(daemon: Daemon) -> None:
    text = "".join(chr(0x20 + n * 7 % 95) for n in range(4099)).replace("\\", "/").replace('"', "'")
    text = (text * (64 * MIB // len(text) + 1))[: 64 * MIB]
    done = threading.Event()
    small: list[str] = []

    def others() -> None:
        with toolsd.connect(daemon.address) as other:
            while not done.is_set() or not small:
                small.append(other.call("side_echo", {"text": f"small {len(small)}"}).text)

    beside = threading.Thread(target=others)
    beside.start()
    try:
        with toolsd.connect(daemon.address) as client:
            result = client.call("echo", {"text": text})
            assert result.ok, result.text
            equal = result.content == text  # not in the assertion: a difference of 64 MiB explains nothing
            assert equal
    finally:
        done.set()
        beside.join(PATIENCE)
    assert small == [f"small {n}" for n in range(len(small))]


_CROWD = """
import asyncio, resource, sys, toolsd

async def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients = [toolsd.AsyncClient.connect(sys.argv[1], timeout=60) for _ in range(int(sys.argv[2]))]
    await asyncio.gather(*(client.open() for client in clients))
    print("open", flush=True)
    sys.stdin.readline()

    async def work(n, client):
        result = await client.call("echo" if n % 2 else "side_echo", {"text": str(n)})
        assert result.text == str(n), result

    gate = asyncio.Semaphore(20)  # the queues of the sources are bounded, and meant to be
    async def one(n, client):
        async with gate:
            await work(n, client)
    await asyncio.gather(*(one(n, client) for n, client in enumerate(clients)))
    for client in clients:
        await client.close()

asyncio.run(main())
"""


def test_a_thousand_clients(client: Client) -> None:
    crowds = [
        subprocess.Popen(
            [sys.executable, "-c", _CROWD, client.address, "500"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for crowd in crowds:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == "open\n"
    assert len(client.ps()["clients"]) >= 1000
    for crowd in crowds:
        crowd.communicate("go\n", timeout=PATIENCE)
    assert [crowd.returncode for crowd in crowds] == [0, 0]
    assert client.call("echo", {"text": "and still"}).text == "and still"


def test_questions_are_answered_while_every_worker_is_stuck(client: Client, gate: Gate) -> None:
    turns = [threading.Thread(target=client.call, args=("hold", gate.arguments)) for _ in range(3)]
    for turn in turns:
        turn.start()
    gate.wait_until_it_runs()
    picture = client.ps()
    bench = next(s for s in picture["sources"] if s["name"] == "bench")
    assert (bench["batches"], bench["queued"] <= 2) == (1, True)
    assert [t.name for t in client.tools()]
    assert client.call("side_echo", {"text": "another source"}).ok
    gate.release()
    for turn in turns:
        turn.join(PATIENCE)
