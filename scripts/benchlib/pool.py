"""The peer `concurrent.futures.ProcessPoolExecutor`: two workers, a task per call or a task per source."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor

from benchlib import work
from benchlib.measure import repeat


class Pool:
    """`batched`: one task per source and turn; otherwise one task per call."""

    def __init__(self, batched: bool) -> None:
        self.name = "pool, batched" if batched else "pool"
        self._executor = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver"))
        self._submit: Callable[[int], list[Future[list[str]]] | list[Future[str]]]
        self._submit = self._submit_batches if batched else self._submit_calls
        self._batched = batched
        work.verify(self._collect(self._submit(8)))

    def _submit_calls(self, calls: int) -> list[Future[str]]:
        return [self._executor.submit(work.run_one, work.arguments()) for _ in range(calls)]

    def _submit_batches(self, calls: int) -> list[Future[list[str]]]:
        sources = min(calls, 2)
        share = [work.arguments()] * (calls // sources)
        return [self._executor.submit(work.run_batch, share) for _ in range(sources)]

    def _collect(self, futures: list[Future[list[str]]] | list[Future[str]]) -> list[object]:
        if self._batched:
            return [json.loads(text) for future in futures for text in future.result(timeout=10)]
        return [json.loads(future.result(timeout=10)) for future in futures]  # type: ignore[arg-type]

    def latencies(self, calls: int, seconds: float) -> list[float]:
        return repeat(lambda: self._collect(self._submit(calls)), seconds)

    def flood(self, seconds: float) -> float:
        flying = deque(self._submit(8) for _ in range(work.IN_FLIGHT))
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            self._collect(flying.popleft())
            done += 1
            flying.append(self._submit(8))
        rate = done / (time.perf_counter() - begin)
        for futures in flying:
            self._collect(futures)
        return rate

    def close(self) -> None:
        self._executor.shutdown()
