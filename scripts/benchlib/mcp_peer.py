"""The peer `mcp`: the official SDK's client over stdio with two servers, the calls of a turn fanned out with gather."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from typing import Any

from benchlib import work
from benchlib.measure import flood


class Mcp:
    name = "mcp"

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._clients: dict[str, Any] = {}
        self._stop: asyncio.Event | None = None
        self._serving = self._runner.get_loop().create_task(self._serve())
        self._runner.run(self._started())

    async def _serve(self) -> None:
        """Enter and leave the clients in one task: their task groups demand it."""
        from mcp import Client, StdioServerParameters

        self._stop = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            for source in work.SOURCES:
                parameters = StdioServerParameters(
                    command=sys.executable,
                    args=["-m", "benchlib.mcp_server", source],
                    env={**os.environ},
                )
                self._clients[source] = await stack.enter_async_context(Client(parameters))
            await self._stop.wait()

    async def _started(self) -> None:
        async with asyncio.timeout(30):
            while len(self._clients) < len(work.SOURCES):
                if self._serving.done():
                    self._serving.result()
                await asyncio.sleep(0.02)
            work.verify(await self._turn(8))

    async def _call(self, source: str, tool: str) -> object:
        result = await self._clients[source].call_tool(tool, json.loads(work.arguments()))
        return json.loads(result.content[0].text)

    async def _turn(self, calls: int) -> list[object]:
        return await asyncio.gather(*(self._call(source, tool) for source, tool in work.tools(calls)))

    def latencies(self, calls: int, seconds: float) -> list[float]:
        async def rounds() -> list[float]:
            taken: list[float] = []
            end = time.perf_counter() + seconds
            while (begin := time.perf_counter()) < end or len(taken) < 3:
                await self._turn(calls)
                taken.append(time.perf_counter() - begin)
            return taken

        return self._runner.run(rounds())

    def flood(self, seconds: float) -> float:
        return self._runner.run(flood(lambda: self._turn(8), seconds))

    def close(self) -> None:
        async def stop() -> None:
            assert self._stop is not None
            self._stop.set()
            await self._serving

        self._runner.run(stop())
        self._runner.close()
