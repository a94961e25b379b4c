"""Batches on the worker's event loop: coroutines and threads side by side.

Owns who runs when. A batch is cut into *strands*: what has to happen in order is one strand, everything else is a
strand of its own. Strands run at the same time: coroutines as tasks of the loop, plain functions of a `threads`
source and single tools on threads. Must not know what a call is made of.

A thread cannot be stopped. When the batch is cancelled, no further call is begun, and the batch ends when the
running ones have returned (they can look at `Context.cancelled`); the worker's runtime decides how long it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from inspect import isawaitable
from threading import Thread
from typing import Any

from toolsd.content import encode_result
from toolsd.host import BatchCancelled, HostBatch, HostCall
from toolsd.source import BatchFunction, Source

from .calls import PASSED_ON, Runnable
from .handover import hand_over

# How many threads one batch may have at a time, where the author set no bound of their own.
_THREADS = 64


async def run(batch: HostBatch, source: Source | None, tools: dict[str, Runnable]) -> None:
    """Run every call of the batch and fill its slot. What may not stay in a slot is raised, after all has stopped."""
    strands = list(_strands(batch, source, tools))
    if len(strands) == 1:
        await strands[0]
        return
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(strand) for strand in strands]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _strands(
    batch: HostBatch, source: Source | None, tools: dict[str, Runnable]
) -> Iterable[Coroutine[Any, Any, None]]:
    mine: list[HostCall] = []
    on_threads: list[HostCall] = []
    alone: list[HostCall] = []
    for call in batch.calls:
        tool = tools[call.tool]
        if not tool.tool.single:
            mine.append(call)
        elif tool.asynchronous:
            alone.append(call)
        else:
            on_threads.append(call)
    if on_threads:
        yield _threads(batch, on_threads, tools, _THREADS)
    for call in alone:
        yield _attempt(batch, call, tools[call.tool])
    if source is None or not mine:
        return
    if source.batch_function is not None:
        yield _whole(batch, mine, tools, source.batch_function)
    elif source.scheduling == "sequential":
        yield _in_order(batch, mine, tools)
    else:
        yield from _spread(batch, mine, tools, source)


def _spread(
    batch: HostBatch, calls: Sequence[HostCall], tools: dict[str, Runnable], source: Source
) -> Iterable[Coroutine[Any, Any, None]]:
    most = source.max_concurrency
    threaded = [call for call in calls if source.scheduling == "threads" and not tools[call.tool].asynchronous]
    if threaded:
        yield _threads(batch, threaded, tools, most or _THREADS)
    gate = asyncio.Semaphore(most) if most is not None else None
    for call in calls:
        if source.scheduling == "concurrent" or tools[call.tool].asynchronous:
            yield _attempt(batch, call, tools[call.tool], gate)


async def _whole(
    batch: HostBatch, calls: Sequence[HostCall], tools: dict[str, Runnable], function: BatchFunction
) -> None:
    done = hand_over(function, batch, calls, tools)
    if done is not None:
        await done


async def _in_order(batch: HostBatch, calls: Sequence[HostCall], tools: dict[str, Runnable]) -> None:
    for call in calls:
        if batch.cancelled:
            raise BatchCancelled
        await _attempt(batch, call, tools[call.tool])


async def _attempt(batch: HostBatch, call: HostCall, tool: Runnable, gate: asyncio.Semaphore | None = None) -> None:
    """Run one call on the loop and fill its slot."""
    if gate is not None:
        async with gate:
            await _attempt(batch, call, tool)
        return
    arguments = tool.bind(batch, call)
    if arguments is None:
        return
    clock = None if tool.timeout is None else asyncio.timeout(tool.timeout)
    try:
        if clock is None:
            value = await _value(tool.begin(batch, call, arguments))
        else:
            async with clock:
                value = await _value(tool.begin(batch, call, arguments))
        outcome = encode_result(value)
    except PASSED_ON:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        outcome = tool.failed(batch, error)  # the tool awaited something that was cancelled: its own failure
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises stays in its slot
        late = clock is not None and clock.expired() and isinstance(error, TimeoutError)
        outcome = tool.timed_out() if late else tool.failed(batch, error)
    tool.fill(batch, call.slot, outcome)


async def _value(given: Any) -> Any:
    return await given if isawaitable(given) else given


async def _threads(batch: HostBatch, calls: Sequence[HostCall], tools: dict[str, Runnable], most: int) -> None:
    """Run each call on a thread; of more than `most` calls, the later ones take over threads that are done."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    waiting = deque(calls[most:])
    running = 0
    raised: list[BaseException] = []

    def ended(error: BaseException | None) -> None:
        nonlocal running
        running -= 1
        if error is not None:
            raised.append(error)
            waiting.clear()
        if not running:
            over.set()

    def work(call: HostCall) -> None:
        error: BaseException | None = None
        following: HostCall | None = call
        try:
            while following is not None:
                if batch.cancelled:
                    raise BatchCancelled
                tools[following.tool].run(batch, following)
                following = _next(waiting)
        except BaseException as caught:  # noqa: BLE001 - handed to the loop, which raises it
            error = caught
        loop.call_soon_threadsafe(ended, error)

    for call in calls[:most]:
        try:
            Thread(target=work, args=(call,), name=f"tool {call.tool}", daemon=True).start()
        except RuntimeError:  # the system gives no more threads: these have to do
            if not running:
                raise
            break
        running += 1
    left = calls[running:most]
    try:
        await over.wait()
    except asyncio.CancelledError:
        waiting.clear()
        await over.wait()
        raise
    if raised:
        raise raised[0]
    if left:
        await _threads(batch, left, tools, most)


def _next(waiting: deque[HostCall]) -> HostCall | None:
    try:
        return waiting.popleft()
    except IndexError:  # not asked for before: another thread may take the last one in between
        return None
