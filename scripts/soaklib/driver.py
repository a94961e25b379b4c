"""A client of the soak: runs turns until its stdin is closed, and writes down what it asked for and was told.

`python -m soaklib.driver ADDRESS SEED FILE [BURST]`. One JSON object a line: `begin` before a turn is submitted, `end`
after it ended, `wrong` for what no later comparison could see. With BURST it submits so many turns at once and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from typing import Any

import toolsd
from toolsd import messages
from toolsd.client.routes import Routes

# No turn may take longer, whatever is done to the daemon.
PATIENCE = 60.0
_AT_ONCE = 4

_PLAIN = ("steady_work", "swift_work", "fragile_work", "stuck_work", "twice_work")
_ODD = ("steady_error", "steady_large", "fragile_death", "stuck_deaf", "stuck_in_c", "visitor_work", "no_such_tool")
_DEATHS = ("exit", "sys.exit", "null", "SIGKILL", "SIGTERM", "SIGABRT", "SIGSEGV")


class Driver:
    """One client process. `told` counts the ends the coordinator reported of each turn."""

    def __init__(self, address: str, seed: str, file: str) -> None:
        self.rng = random.Random(seed)
        self.name = seed.rpartition(":")[2]
        self.out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.client = toolsd.AsyncClient.connect(address)
        self.told: Counter[str] = Counter()
        self.number = 0
        self.sessions: dict[str, int | None] = {}
        self.busy: set[str] = set()
        self.life = ""
        self._count_ends()

    def write(self, **line: Any) -> None:
        os.write(self.out, (json.dumps(line) + "\n").encode())

    def _count_ends(self) -> None:
        """A second end of a turn would find nobody waiting: look at the messages themselves."""
        deliver, decoder = Routes.deliver, toolsd.codec.Decoder(messages.TO_CLIENT)

        def counting(routes: Routes, frames: list[Any]) -> None:
            message = decoder.decode(frames[0])
            if isinstance(message, messages.Done | messages.Failed):
                self.told[message.turn] += 1
                if self.told[message.turn] > 1:
                    self.write(wrong=f"turn {message.turn} was ended twice")
            deliver(routes, frames)

        Routes.deliver = counting  # type: ignore[method-assign]

    # --- turns ------------------------------------------------------------------------------------------------------

    def next_turn(self) -> str:
        self.number += 1
        return f"{self.name}.{os.getpid()}.{self.number}"

    def calls(self, turn: str) -> list[tuple[str, dict[str, Any]]]:
        rng = self.rng
        made: list[tuple[str, dict[str, Any]]] = []
        for index in range(rng.choice((1, 1, 2, 3, 4, 8))):
            tool = rng.choice(_ODD) if rng.random() < 0.12 else rng.choice(_PLAIN)
            arguments: dict[str, Any] = {"token": f"{turn}/{index}"}
            if tool in _PLAIN:
                arguments["ms"] = rng.choice((0, 0, 1, 5, 20, 60))
            elif tool == "steady_large":
                arguments["size"] = rng.choice((1, 70_000, 3_000_000))
            elif tool == "fragile_death":
                arguments["how"] = rng.choice(_DEATHS)
            elif tool == "no_such_tool":
                arguments = {}
            made.append((tool, arguments))
        return made

    async def one(self) -> None:
        rng, turn = self.rng, self.next_turn()
        session = None
        if rng.random() < 0.15:
            session = f"{self.name}-{os.getpid()}-{rng.randrange(6)}"
            if session in self.busy:
                session = None
        if session is None:
            calls, settings = self.calls(turn), {}
            if rng.random() < 0.1:
                settings["deadline"] = rng.uniform(0.01, 0.2)
            if rng.random() < 0.1:
                settings["on_crash"] = rng.choice(("fail_turn", "fail_calls"))
            await self.run(turn, calls, cancel_after=rng.uniform(0, 0.05) if rng.random() < 0.15 else None, **settings)
            return
        self.busy.add(session)
        calls = [("keeper_count", {"token": f"{turn}/{index}"}) for index in range(rng.choice((1, 2)))]
        results = await self.run(turn, calls, session=session)
        self.remember(session, results)
        self.busy.discard(session)

    def remember(self, session: str, results: list[toolsd.Result] | None) -> None:
        """The state of a session goes on, or its loss was said. It cannot survive the coordinator."""
        link = self.client.existing_link()
        life = link.routes.welcome.incarnation if link is not None and link.routes.welcome is not None else ""
        if life != self.life:
            self.life = life
            self.sessions.clear()
        before = self.sessions.get(session)
        if results is None or not all(result.ok for result in results):
            self.sessions[session] = None
            return
        counts = [int(result.text.rpartition(" ")[2]) for result in results]
        first = counts[0] if before is None else before + 1
        if counts != list(range(first, first + len(counts))):
            self.write(wrong=f"session {session} stood at {before} and then at {counts}: a silent fresh state")
        self.sessions[session] = counts[-1]

    async def run(
        self, turn: str, calls: list[tuple[str, dict[str, Any]]], *, cancel_after: float | None = None, **settings: Any
    ) -> list[toolsd.Result] | None:
        self.write(begin=turn, calls=[[arguments.get("token"), tool] for tool, arguments in calls], at=time.monotonic())
        try:
            made = self.client.turn(id=turn, **settings)
            canceller = asyncio.create_task(self.cancel(made, cancel_after)) if cancel_after is not None else None
            results, end = await self.finish(made, calls)
            if canceller is not None:
                end["cancel"], end["cancelled_at"] = await canceller
        except TimeoutError:
            self.write(wrong=f"turn {turn} did not end within {PATIENCE:g} s")
            return None
        self.write(end=turn, at=time.monotonic(), **end)
        if end["how"] in ("coordinator_lost", "coordinator_unreachable"):
            await asyncio.sleep(0.05)  # until somebody has started it again
        return results

    async def finish(self, made: Any, calls: Any) -> tuple[list[toolsd.Result] | None, dict[str, Any]]:
        finished = [
            {"index": index, "id": f"c{index}", "function": {"name": tool, "arguments": json.dumps(arguments)}}
            for index, (tool, arguments) in enumerate(calls)
        ]
        try:
            made.observe(finished)
            async with asyncio.timeout(PATIENCE):
                if self.rng.random() < 0.2:
                    async for _ in made.landed("tool_calls"):
                        pass
                    results = made.results
                else:
                    results = await made.finish("tool_calls")
        except toolsd.TurnFailed as failed:
            ledger = [entry.state for entry in failed.ledger]
            return None, {"how": failed.code, "ledger": ledger, "retry_after": failed.failure.retry_after}
        except toolsd.ToolsdError as error:
            return None, {"how": error.code, "text": error.message}
        slots = [[r.id, r.ok, r.text.split(" ")[0] if r.ok else r.error.code] for r in results]
        return results, {"how": "ok", "slots": slots}

    async def cancel(self, made: Any, after: float) -> tuple[str, float]:
        await asyncio.sleep(after)
        try:
            async with asyncio.timeout(PATIENCE):
                return await made.cancel(), time.monotonic()
        except toolsd.ToolsdError as error:
            return error.code, time.monotonic()

    # --- the whole --------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Turns, a few at a time, until stdin ends."""
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(0, over.set)

        async def lane() -> None:
            while not over.is_set():
                await self.one()

        await asyncio.gather(*(lane() for _ in range(_AT_ONCE)))
        await self.client.close()

    async def burst(self, turns: int) -> None:
        """All at once."""

        async def small() -> None:
            turn = self.next_turn()
            await self.run(turn, [("steady_work", {"token": f"{turn}/0"})])

        await asyncio.gather(*(small() for _ in range(turns)))
        await self.client.close()


def main() -> None:
    address, seed, file, *burst = sys.argv[1:]
    driver = Driver(address, seed, file)
    asyncio.run(driver.burst(int(burst[0])) if burst else driver.serve())


if __name__ == "__main__":
    main()
