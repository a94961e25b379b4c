"""The async client: the same turns on an event loop, many at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import toolsd
from toolsd import AsyncClient, CoordinatorLost, CoordinatorUnreachable, TurnCancelled, UsageError
from toolsd.client import CallReport

from .conftest import PATIENCE, Daemon, Gate


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE))


def opened(client: AsyncClient, tool: str, arguments: dict[str, Any], **settings: Any) -> toolsd.AsyncTurn:
    turn = client.turn(**settings)
    turn.observe([{"index": 0, "id": "a", "function": {"name": tool, "arguments": json.dumps(arguments)}}])
    return turn


async def until(gate: Gate) -> None:
    await asyncio.to_thread(gate.wait_until_it_runs)


def test_the_whole_surface(daemon: Daemon) -> None:
    async def test() -> None:
        async with AsyncClient.connect(daemon.address) as client:
            assert (await client.call("echo", {"text": "one"})).text == "one"
            assert [r.text for r in await client.run([("echo", {"text": "a"}), ("side_echo", {"text": "b"})])] == [
                "a",
                "b",
            ]
            assert "echo" in [t.name for t in await client.tools()]
            assert (await client.ps())["state"] == "running"
            seen: list[CallReport] = []
            turn = opened(client, "steps", {"count": 2}, on_report=seen.append)
            assert [r.text async for r in turn] == ["done"]
            assert len(seen) == 4
            assert [r.text for r in turn.results] == ["done"]
            assert turn.batches[0].source == "bench"
            async with opened(client, "echo", {"text": "x"}) as left:
                pass
            with pytest.raises(UsageError):
                await left.finish()
        with pytest.raises(UsageError, match="closed"):
            await client.call("echo")

    run(test())


def test_many_turns_share_one_link(daemon: Daemon) -> None:
    async def test() -> None:
        async with AsyncClient.connect(daemon.address) as client:
            calls = [client.call("side_echo", {"text": f"turn {n}"}) for n in range(150)]
            assert [r.text for r in await asyncio.gather(*calls)] == [f"turn {n}" for n in range(150)]
            assert len([c for c in (await client.ps())["clients"] if c["pid"]]) >= 1

    run(test())


def test_a_cancelled_task_cancels_its_turn(daemon: Daemon, gate: Gate) -> None:
    async def test() -> None:
        async with AsyncClient.connect(daemon.address) as client:
            waiting = asyncio.create_task(opened(client, "wait_for", gate.arguments).finish())
            await until(gate)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await client.call("side_echo", {"text": "free"})).text == "free"
            assert (await client.ps())["turns"] == []

    run(test())


def test_a_timeout_of_asyncio_cancels_the_turn(daemon: Daemon, gate: Gate) -> None:
    async def test() -> None:
        async with AsyncClient.connect(daemon.address) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.call("wait_for", gate.arguments)
            assert (await client.call("side_echo", {"text": "free"})).text == "free"

    run(test())


def test_cancel_from_another_task(daemon: Daemon, gate: Gate) -> None:
    async def test() -> None:
        async with AsyncClient.connect(daemon.address) as client:
            turn = opened(client, "wait_for", gate.arguments)
            waiting = asyncio.create_task(turn.finish())
            await until(gate)
            assert await turn.cancel() == "stopped"
            with pytest.raises(TurnCancelled) as caught:
                await waiting
            assert caught.value.cause == "stopped"

    run(test())


def test_a_lost_coordinator_fails_every_waiting_turn_with_an_error_of_its_own(own_daemon: Daemon, gate: Gate) -> None:
    async def test() -> None:
        async with AsyncClient.connect(own_daemon.address) as client:
            turns = [asyncio.create_task(client.call("wait_for", gate.arguments)) for _ in range(10)]
            await until(gate)
            own_daemon.kill()
            errors = await asyncio.gather(*turns, return_exceptions=True)
            assert all(isinstance(error, CoordinatorLost) for error in errors)
            assert len({id(error) for error in errors}) == 10
            with pytest.raises(CoordinatorUnreachable):
                await client.call("echo", {"text": "x"})

    run(test())


def test_nobody_there(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(CoordinatorUnreachable, match="toolsd serve"):
            async with AsyncClient.connect(f"ipc://{tmp_path}/none"):
                pass

    run(test())


def test_a_client_belongs_to_its_loop(daemon: Daemon) -> None:
    client = AsyncClient.connect(daemon.address)

    async def test() -> None:
        assert (await client.call("echo", {"text": "x"})).text == "x"

    with asyncio.Runner() as first:
        first.run(test())
        with pytest.raises(UsageError, match="another event loop"):
            run(test())
        first.run(client.close())
