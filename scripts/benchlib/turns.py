"""Turns through a running daemon: how long one takes and how many a second, beside the limit program and the peers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import toolsd
from benchlib import work
from benchlib.daemon import Daemon, repeat_source
from benchlib.figures import Figure
from benchlib.limit import Limit
from benchlib.mcp_peer import Mcp
from benchlib.measure import flood, flood_rounds, latency_rounds, repeat
from benchlib.pool import Pool

if TYPE_CHECKING:
    from benchlib.__main__ import Effort


class Toolsd:
    """The sync client for turns one after the other, the async one for many in flight."""

    name = "toolsd"

    def __init__(self, address: str) -> None:
        self._client = toolsd.connect(address)
        self._runner = asyncio.Runner()
        self._many = self._runner.run(toolsd.AsyncClient.connect(address).open())
        self._calls = {
            count: [
                {"id": f"call_{i:024d}", "tool": tool, "arguments": work.arguments()}
                for i, (_, tool) in enumerate(work.tools(count))
            ]
            for count in (1, 8)
        }
        work.verify([result.content for result in self._client.run(self._calls[8])])

    def latencies(self, calls: int, seconds: float) -> list[float]:
        run, given = self._client.run, self._calls[calls]
        return repeat(lambda: run(given), seconds)

    def flood(self, seconds: float) -> float:
        run, given = self._many.run, self._calls[8]
        return self._runner.run(flood(lambda: run(given), seconds))

    def close(self) -> None:
        self._client.close()
        self._runner.run(self._many.close())
        self._runner.close()


def figures(effort: Effort) -> list[Figure]:
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon({name: (repeat_source(name), 'start = "eager"') for name in work.SOURCES}))
        contenders: list[Any] = []
        for make in (lambda: Toolsd(daemon.address), Limit, lambda: Pool(False), lambda: Pool(True), Mcp):
            contenders.append(stack.enter_context(contextlib.closing(make())))
        one = latency_rounds(contenders, 1, effort.rounds, effort.seconds)
        eight = latency_rounds(contenders, 8, effort.rounds, effort.seconds)
        rates = flood_rounds([*contenders, contenders[1].messages], effort.rounds, effort.seconds)
    single = Figure("turn of 1 call, median", one["toolsd"].median, "s")
    single.beside("limit", one["limit"].median, at_most=1.4)
    single.beside("pool", one["pool"].median).beside("mcp", one["mcp"].median)
    turn = Figure("turn of 8 calls over 2 sources, median", eight["toolsd"].median, "s")
    turn.beside("limit", eight["limit"].median, at_most=1.5)
    turn.beside("mcp", eight["mcp"].median, at_most=1 / 15)
    turn.beside("pool", eight["pool"].median, at_most=1).beside("pool, batched", eight["pool, batched"].median)
    tail = Figure("turn of 8 calls over 2 sources, p99", eight["toolsd"].percentile(99), "s")
    for name in ("limit", "mcp", "pool", "pool, batched"):
        tail.beside(name, eight[name].percentile(99))
    rate = Figure(f"turns of 8 calls over 2 sources, {work.IN_FLIGHT} in flight", rates["toolsd"], "per_s")
    rate.beside("limit messages", rates["limit messages"], at_least=0.25).beside("limit", rates["limit"])
    rate.beside("mcp", rates["mcp"], at_least=50)
    rate.beside("pool", rates["pool"], at_least=2.5).beside("pool, batched", rates["pool, batched"])
    return [single, turn, tail, rate]
