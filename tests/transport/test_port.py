"""The wake-up rule of `transport.Port`: no message is left lying, whatever happens around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolsd import transport
from toolsd.transport import Port


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[transport.Socket, transport.Socket]]:
    """Two connected DEALERs."""
    ctx = transport.context(sockets=8)
    address = f"ipc://{tmp_path}/s"
    there = transport.dealer(ctx, address)
    here = ctx.socket(there.type)
    here.bind(address)
    yield here, there
    here.close(0)
    there.close(0)
    ctx.term()


def test_a_handler_that_raises_does_not_strand_what_came_after(pair: tuple[transport.Socket, transport.Socket]) -> None:
    here, there = pair
    seen: list[bytes] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        over = asyncio.Event()

        def on_message(frames: list[bytes]) -> None:
            seen.append(frames[0])
            if frames[0] == b"9":
                over.set()
            if frames[0] in (b"0", b"4"):
                raise ValueError("a bug in the handler")

        for number in range(10):
            there.send(b"%d" % number)
        port = Port(loop, here, on_message)
        await asyncio.wait_for(over.wait(), 20)
        port.detach()

    asyncio.run(scenario())
    assert seen == [b"%d" % number for number in range(10)]


def test_a_send_hides_nothing(pair: tuple[transport.Socket, transport.Socket]) -> None:
    """A send may take in the wake-up of messages that came meanwhile (ZMQ_FD is edge-triggered)."""
    here, there = pair

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[bytes] = asyncio.Queue()
        port = Port(loop, here, lambda frames: arrived.put_nowait(frames[0]))
        there.send(b"here I am")
        await asyncio.wait_for(arrived.get(), 20)
        for number in range(200):
            there.send(b"%d" % number)
            assert port.send([b"out"])
            assert await asyncio.wait_for(arrived.get(), 20) == b"%d" % number
            assert there.recv() == b"out"
        port.detach()

    asyncio.run(scenario())
