"""More than it can take: refused at once with a hint, fair between clients, and flat in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import psutil

import toolsd
from clients.conftest import Gate, eventually

from .conftest import Open

HOLD = """
source = toolsd.Source("hold")


@source.tool
def hold(ready: str, release: str, text: str = "") -> str:
    open(ready, "w").close()
    while not os.path.exists(release):
        time.sleep(0.002)
    return "released"


@source.tool
def quick(text: str = "") -> int:
    return len(text)
"""
STARTS = """
open(os.path.join(os.environ["WHERE"], str(os.getpid())), "w").close()
source = toolsd.Source("cold")


@source.tool
def cold() -> int:
    return os.getpid()


@source.tool
def keep(name: str) -> list[str]:
    open(name, "w").close()
    return sorted(os.listdir("."))
"""


def _turn(client: toolsd.AsyncClient, tool: str, **arguments: str) -> asyncio.Task[toolsd.Result]:
    return asyncio.create_task(client.call(tool, arguments))


def test_a_flood_is_refused_with_a_hint_and_leaves_places_to_others(house: Open, gate: Gate) -> None:
    """Every turn is answered once, the refused ones at once; one client's flood does not shut others out."""
    one = house({"hold": (HOLD, "queue = { turns = 40 }")})

    async def scenario() -> None:
        async with (
            toolsd.AsyncClient.connect(one.address) as flooding,
            toolsd.AsyncClient.connect(one.address) as other,
        ):
            first = _turn(flooding, "hold", **gate.arguments)
            await asyncio.to_thread(gate.wait_until_it_runs)
            flood = [_turn(flooding, "quick", text="x") for _ in range(400)]
            while sum(task.done() for task in flood) < 370:
                await asyncio.sleep(0.005)  # until the refused ones are answered, while the source still holds
            refused = [task.exception() for task in flood if task.done()]
            for error in refused:
                assert isinstance(error, toolsd.Overloaded)
                assert error.failure.retry_after and error.retry == "safe"
                assert [entry.state for entry in error.ledger] == ["not_sent"]
            polite = [_turn(other, "quick", text="x") for _ in range(5)]
            while (await other.ps())["sources"][0]["queued"] < 35:
                await asyncio.sleep(0.005)
            gate.release()
            assert [(await task).content for task in polite] == [1] * 5
            rest = [task for task in flood if task not in [t for t in flood if t.done() and t.exception()]]
            assert [(await task).content for task in rest] == [1] * len(rest)
            assert (await first).text == "released"
            assert len(refused) + len(rest) == 400 and len(rest) == 30

    asyncio.run(scenario())


def test_a_long_flood_keeps_memory_flat(house: Open) -> None:
    """Ten times what it takes, large arguments; nothing piles up in the daemon."""
    one = house({"hold": (HOLD, "queue = { turns = 20, bytes = '4MiB' }")})
    daemon = psutil.Process(one.process.pid)
    text = "x" * 200_000
    outcomes: Counter[str] = Counter()

    async def turn(client: toolsd.AsyncClient) -> None:
        try:
            result = await client.call("quick", {"text": text})
            outcomes["ok" if result.content == len(text) else "wrong"] += 1
        except toolsd.Overloaded:
            outcomes["overloaded"] += 1

    async def round_(clients: list[toolsd.AsyncClient]) -> None:
        await asyncio.gather(*(turn(client) for client in clients for _ in range(50)))

    async def scenario() -> None:
        clients = [toolsd.AsyncClient.connect(one.address) for _ in range(4)]
        for client in clients:
            await client.open()
        await round_(clients)
        before = daemon.memory_info().rss
        for _ in range(5):
            await round_(clients)
        assert daemon.memory_info().rss < before + 64 * 1024 * 1024
        assert outcomes["wrong"] == 0 and outcomes["ok"] and outcomes["overloaded"]
        assert outcomes.total() == 1200
        for client in clients:
            await client.close()

    asyncio.run(scenario())


def test_many_turns_to_a_cold_source_start_it_once(house: Open, tmp_path: Path) -> None:
    """E8: however many ask. E9: it keeps its worker and its scratch directory between turns."""
    one = house({"cold": (STARTS, f"start = 'lazy'\nenv = {{ WHERE = '{tmp_path}' }}")})
    discovered = len(list(tmp_path.iterdir()))
    eventually(lambda: not one.workers("cold"), "the lazy source sleeps")

    async def scenario() -> None:
        async with toolsd.AsyncClient.connect(one.address) as client:
            pids = {(await task).content for task in [_turn(client, "cold") for _ in range(30)]}
            assert len(pids) == 1
            assert (await client.call("keep", {"name": "a"})).content == ["a"]
            assert (await client.call("keep", {"name": "b"})).content == ["a", "b"]

    asyncio.run(scenario())
    assert len(list(tmp_path.iterdir())) == discovered + 1


def test_thousands_of_turns_leave_descriptors_and_threads_flat(house: Open) -> None:
    """E10: one handshake in a worker's life."""
    one = house({"hold": (HOLD, "")})
    daemon, worker = psutil.Process(one.process.pid), psutil.Process(one.pid("hold"))

    def figures() -> list[int]:
        return [daemon.num_fds(), daemon.num_threads(), worker.num_fds(), worker.num_threads()]

    with one.client() as client:
        client.call("quick")
        before = figures()
        for _ in range(2000):
            client.call("quick")
        assert figures() == before
    assert worker.is_running() and one.pid("hold") == worker.pid


def test_a_source_that_never_starts_disturbs_nobody(house: Open) -> None:
    """C10, E6: start after start fails; never more than two processes of it, and the neighbour goes on."""
    bad = "source = toolsd.Source('bad')\n\n\n@source.tool\ndef bad() -> None: ...\n\n\nos._exit(3)\n"
    restart = "restart = { backoff = '1ms..2ms', max = 1000 }"
    one = house({"bad": (bad, restart), "hold": (HOLD, "")})
    worker = one.pid("hold")
    with one.client() as client:

        def bad_source() -> dict[str, object]:
            return next(s for s in client.ps()["sources"] if s["name"] == "bad")

        while int(str(bad_source()["restarts"])) < 60:
            assert int(str(bad_source()["processes"])) <= 2
            assert client.call("quick", {"text": "abc"}).content == 3
    assert one.pid("hold") == worker
