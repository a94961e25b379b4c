"""How a number is taken: bounded loops, medians, and rounds that alternate between contenders.

The machine's noise is never constant, so contenders that are compared take turns in short rounds: what disturbs one
disturbs the other. A figure is the median over the rounds of each round's own statistic.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from benchlib import work


class Contender(Protocol):
    """Something that can run turns."""

    name: str

    def latencies(self, calls: int, seconds: float) -> list[float]:
        """Run turns of 1 or 8 calls one after the other for `seconds`; each one's duration in seconds."""
        ...

    def flood(self, seconds: float) -> float:
        """Turns of 8 calls a second, with `work.IN_FLIGHT` of them in flight."""
        ...

    def close(self) -> None: ...


def repeat(action: Callable[[], object], seconds: float, at_least: int = 3) -> list[float]:
    """Durations in seconds of `action`, repeated until `seconds` have passed."""
    taken: list[float] = []
    clock = time.perf_counter
    end = clock() + seconds
    while True:
        begin = clock()
        action()
        done = clock()
        taken.append(done - begin)
        if done >= end and len(taken) >= at_least:
            return taken


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Latency:
    """Durations of one contender over all rounds."""

    def __init__(self) -> None:
        self._rounds: list[list[float]] = []

    def add(self, taken: list[float]) -> None:
        self._rounds.append(taken)

    @property
    def median(self) -> float:
        return statistics.median(statistics.median(taken) for taken in self._rounds)

    def percentile(self, percent: float) -> float:
        return statistics.median(percentile(taken, percent) for taken in self._rounds)


def latency_rounds(contenders: Sequence[Contender], calls: int, rounds: int, seconds: float) -> dict[str, Latency]:
    """Alternate `rounds` times over the contenders, `seconds` each; a short unmeasured round goes before."""
    taken = {contender.name: Latency() for contender in contenders}
    for contender in contenders:
        contender.latencies(calls, seconds / 3)
    for _ in range(rounds):
        for contender in contenders:
            taken[contender.name].add(contender.latencies(calls, seconds))
    return taken


def flood_rounds(contenders: Sequence[Contender], rounds: int, seconds: float) -> dict[str, float]:
    """Turns a second with many in flight: as `latency_rounds`, the median of the rounds."""
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for contender in contenders:
        contender.flood(seconds / 3)
    for _ in range(rounds):
        for contender in contenders:
            rates[contender.name].append(contender.flood(seconds))
    return {name: statistics.median(values) for name, values in rates.items()}


async def flood(turn: Callable[[], Awaitable[object]], seconds: float) -> float:
    """Turns a second of an async contender: `work.IN_FLIGHT` tasks, each running one turn after the other."""
    begin = time.perf_counter()
    end = begin + seconds

    async def lane() -> int:
        done = 0
        while time.perf_counter() < end:
            await turn()
            done += 1
        return done

    counts = await asyncio.gather(*(lane() for _ in range(work.IN_FLIGHT)))
    return sum(counts) / (time.perf_counter() - begin)
