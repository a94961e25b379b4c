"""Who runs when: in order, side by side on the loop, on threads, or as the author's `invoke_batch` wants it."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolsd_workers.python.host import PythonHost
from toolsd_workers.python.loading import Found, found_in

import toolsd
from toolsd import ProtocolViolation, testing
from toolsd.host import SlotMisuse
from toolsd.launch import Launch

WAIT = 20.0  # seconds a test waits for what must happen; it never takes that long


def manifest(source: Any) -> tuple[bool, bool]:
    with testing.Harness(source) as harness:
        made = harness._manifest
    assert made is not None
    return made.asynchronous, made.reentrant


@pytest.mark.parametrize("kind", ["plain", "async", "mixed"])
def test_a_sequential_source_keeps_the_order_on_one_thread(kind: str) -> None:
    source = toolsd.Source("s")
    seen: list[tuple[int, int]] = []

    def note(i: int) -> int:
        seen.append((i, threading.get_ident()))
        return i

    async def note_later(i: int) -> int:
        await asyncio.sleep(0.01 if i % 2 else 0)
        return note(i)

    source.tool(name="a")(note if kind == "plain" else note_later)
    source.tool(name="b")(note_later if kind == "async" else note)
    results = testing.run(source, [("ab"[i % 2], {"i": i}) for i in range(6)])
    assert [result.content for result in results] == list(range(6))
    assert [i for i, _ in seen] == list(range(6))
    assert len({thread for _, thread in seen}) == 1
    assert manifest(source) == (kind != "plain", False)


def test_wrappers_that_await_are_known_as_asynchronous() -> None:
    def later(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return function(*args, **kwargs)

        return call

    source = toolsd.Source("s")

    @source.tool
    @later
    def add(a: int, b: int) -> int:
        return a + b

    assert testing.run(source, [("add", {"a": 1, "b": 2})])[0].content == 3


@given(st.permutations(range(5)))
def test_concurrent_calls_finish_in_any_order_and_results_keep_the_calls_order(order: list[int]) -> None:
    source = toolsd.Source("s", scheduling="concurrent")
    turns = {i: asyncio.Event() for i in range(6)}
    finished: list[int] = []

    @source.tool
    async def wait(i: int) -> int:
        if i == order[0]:
            turns[i].set()
        await turns[i].wait()
        finished.append(i)
        place = order.index(i) + 1
        if place < len(order):
            turns[order[place]].set()
        return i

    results = testing.run(source, [("wait", {"i": i}) for i in range(5)])
    assert [result.content for result in results] == list(range(5))
    assert finished == order


@pytest.mark.parametrize(("scheduling", "asynchronous"), [("concurrent", True), ("threads", True), ("threads", False)])
def test_max_concurrency_bounds_what_runs_at_a_time(scheduling: Any, asynchronous: bool) -> None:
    source = toolsd.Source("s", scheduling=scheduling, max_concurrency=2)
    lock = threading.Lock()
    pair = threading.Barrier(2)
    running = most = 0

    def enter(change: int) -> None:
        nonlocal running, most
        with lock:
            running += change
            most = max(most, running)

    @source.tool
    async def coroutine() -> None:
        enter(1)
        await asyncio.sleep(0.001)
        enter(-1)

    @source.tool
    def plain() -> None:
        enter(1)
        pair.wait(WAIT)
        enter(-1)

    results = testing.run(source, ["coroutine" if asynchronous else "plain"] * 6)
    assert all(result.ok for result in results)
    assert most == 2
    assert manifest(source) == (True, True)


def test_calls_of_a_threads_source_and_single_tools_run_side_by_side() -> None:
    source = toolsd.Source("s", scheduling="threads")
    together = threading.Barrier(4)

    @source.tool
    def meet(i: int) -> tuple[int, int]:
        together.wait(WAIT)
        return i, threading.get_ident()

    @source.tool
    async def on_loop() -> int:
        return threading.get_ident()

    results = testing.run(source, [*(("meet", {"i": i}) for i in range(4)), "on_loop"])
    assert [result.content[0] for result in results[:4]] == [0, 1, 2, 3]
    threads = {result.content[1] for result in results[:4]}
    assert len(threads) == 4
    assert results[4].content == threading.get_ident()


def test_each_call_of_a_single_tool_has_its_own_thread() -> None:
    @toolsd.tool(name="who")
    def who() -> int:
        return threading.get_ident()

    results = testing.run(who, ["who"] * 5)
    assert all(result.ok for result in results)
    assert threading.get_ident() not in {result.content for result in results}
    assert manifest(who) == (True, True)
    assert isinstance(who(), int)


def test_more_calls_than_threads_all_run() -> None:
    @toolsd.tool
    def twice(i: int) -> int:
        return 2 * i

    results = testing.run(twice, [("twice", {"i": i}) for i in range(500)])
    assert [result.content for result in results] == [2 * i for i in range(500)]


@pytest.mark.parametrize("scheduling", ["threads", "concurrent"])
def test_what_may_not_stay_in_a_slot_ends_the_batch_after_the_others_have_stopped(scheduling: Any) -> None:
    source = toolsd.Source("s", scheduling=scheduling)
    ended = threading.Event()

    @source.tool
    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @source.tool
    def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        testing.run(source, ["waits", "leaves"])
    assert ended.is_set()


def test_a_cancelled_batch_begins_no_further_call() -> None:
    source = toolsd.Source("s")
    begun = []

    with testing.Harness(source_with_stop(source, begun)) as harness, pytest.raises(BaseException) as stopped:
        harness.run(["stop", "after"])
    assert type(stopped.value).__name__ == "BatchCancelled"
    assert begun == ["stop"]


def source_with_stop(source: toolsd.Source, begun: list[str]) -> toolsd.Source:
    @source.tool
    def stop(ctx: toolsd.Context) -> None:
        begun.append("stop")
        ctx._batch.cancelled = True  # type: ignore[misc]  # as the runtime does when it is asked

    @source.tool
    def after() -> None:
        begun.append("after")

    return source


def test_cancelling_waits_for_threads_that_run_and_begins_no_other() -> None:
    """The batch ends only when no thread of it is at work any more: its slots are then nobody's."""
    source = toolsd.Source("s", scheduling="threads", max_concurrency=1)
    begun = threading.Event()
    go_on = threading.Event()
    done: list[str] = []

    @source.tool
    def slow() -> None:
        begun.set()
        assert go_on.wait(WAIT)
        done.append("slow")

    async def scenario(harness: testing.Harness) -> None:
        batch = testing.TestBatch(tuple(testing._call(i, "slow") for i in range(3)), None, None)
        running = harness._host.run(batch)
        assert running is not None
        task = asyncio.ensure_future(running)
        await asyncio.to_thread(begun.wait, WAIT)
        batch.cancelled = True
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["slow"]

    with testing.Harness(source) as harness:
        assert harness._runner is not None
        harness._runner.run(scenario(harness))


# --- invoke_batch ---------------------------------------------------------------------------------------------------


def batch_source(function: Callable[..., Any] | None = None, **options: Any) -> toolsd.Source:
    source = toolsd.Source("s", **options)

    @source.tool
    def double(i: int = 1) -> int:
        return 2 * i

    if function is not None:
        source.invoke_batch = function
    return source


def test_the_author_gets_the_valid_calls_of_the_batch_whole() -> None:
    source = batch_source()

    @source.invoke_batch
    def run(calls: list[toolsd.BatchCall], results: toolsd.BatchResults) -> None:
        assert len(calls) == len(results) == 3
        assert [call.arguments for call in calls] == [{"i": 1}, {"i": 5}, {"i": 7}]
        assert (calls[1].id, calls[1].tool, calls[1].raw) == ("b", "double", '{"i":5}')
        results[2].fail("not today")
        results[0].ok(calls[0].invoke())
        results[1].ok({"sum": sum(call.arguments["i"] for call in calls)})
        assert [slot.filled for slot in results] == [True] * 3

    results = testing.run(source, ["double", ("double", {"j": 1}), ("b", "double", {"i": 5}), ("double", {"i": 7})])
    assert [result.content for result in results] == [2, None, {"sum": 13}, None]
    assert [result.error.code if result.error else "" for result in results] == [
        "",
        "arguments_invalid",
        "",
        "tool_error",
    ]
    assert manifest(source) == (False, False)


def test_an_async_invoke_batch_is_awaited() -> None:
    async def run(calls: Any, results: Any) -> None:
        await asyncio.sleep(0)
        for call, slot in zip(calls, results, strict=True):
            slot.ok(call.invoke())

    source = batch_source(run)
    assert [result.content for result in testing.run(source, ["double", "double"])] == [2, 2]
    assert manifest(source) == (True, False)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("use", "failure", "words"),
    [
        (lambda calls, results: results[0].ok(1), toolsd.ResultsIncomplete, "double (slot 1)"),
        (lambda calls, results: [results[i].ok(1) for i in (0, 1, 1)], ProtocolViolation, "slot 1 (double)"),
        (lambda calls, results: results[2].ok(1), toolsd.BatchRaised, "no slot 2: the batch has 2 calls"),
        (lambda calls, results: 1 / 0, toolsd.BatchRaised, "ZeroDivisionError"),
    ],
)
def test_misuse_of_slots_fails_the_batch_and_names_them(
    use: Callable[[Any, Any], Any], failure: type[toolsd.TurnFailed], words: str, asynchronous: bool
) -> None:
    async def in_loop(calls: Any, results: Any) -> None:
        use(calls, results)

    def blocking(calls: Any, results: Any) -> None:
        use(calls, results)

    with pytest.raises(failure, match=words.replace("(", r"\(").replace(")", r"\)")):
        testing.run(batch_source(in_loop if asynchronous else blocking), ["double", "double"])


def test_filling_twice_is_noticed_though_the_author_swallows_the_exception() -> None:
    def run(calls: Any, results: Any) -> None:
        results[0].ok(1)
        with pytest.raises(SlotMisuse):
            results[0].fail("again")

    with pytest.raises(ProtocolViolation):
        testing.run(batch_source(run), ["double"])


def test_what_a_slot_cannot_hold_is_an_error_in_it() -> None:
    def run(calls: Any, results: Any) -> None:
        results[0].ok(object())
        results[1].ok("x" * 1000)

    results = testing.run(batch_source(run), ["double", "double"], result_max=100)
    assert [result.error.code for result in results if result.error] == ["result_invalid", "result_too_large"]


def test_a_blocking_invoke_batch_runs_beside_single_tools() -> None:
    met = threading.Barrier(2)

    @toolsd.tool
    def single() -> None:
        met.wait(WAIT)

    def run(calls: Any, results: Any) -> None:
        met.wait(WAIT)
        results[0].ok("met")

    source = batch_source(run)
    harness = testing.Harness(source)
    tools = {**found_in(source).tools, **found_in(single).tools}
    harness._host = PythonHost(Launch("python", "", ""), Found(source, tools))
    with harness:
        assert [result.ok for result in harness.run(["single", "double"])] == [True, True]


def test_where_the_system_gives_few_threads_the_calls_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    source = toolsd.Source("s", scheduling="threads")
    source.tool(name="t")(lambda: "done")
    started = 0

    class Few(threading.Thread):
        def start(self) -> None:
            nonlocal started
            started += 1
            if started % 3 == 0:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr("toolsd_workers.python.side_by_side.Thread", Few)
    assert [result.content for result in testing.run(source, ["t"] * 7)] == ["done"] * 7


def test_what_invoke_raised_can_be_put_into_its_slot() -> None:
    source = toolsd.Source("s")

    @source.tool
    def fails(error: str) -> None:
        raise toolsd.ToolError("told") if error == "own" else KeyError("k")

    @source.invoke_batch
    def run(calls: Any, results: Any) -> None:
        for call, slot in zip(calls, results, strict=True):
            try:
                slot.ok(call.invoke())
            except (toolsd.ToolError, KeyError) as error:
                slot.fail(error)

    results = testing.run(source, [("fails", {"error": "own"}), ("fails", {"error": "other"})])
    assert [result.text for result in results] == ["told", "KeyError: 'k'"]


def test_invoke_batch_is_not_called_without_a_valid_call() -> None:
    def run(calls: Any, results: Any) -> None:
        raise AssertionError("called")

    assert not testing.run(batch_source(run), [("double", "{")])[0].ok


def test_single_tools_stand_beside_a_source() -> None:
    source = batch_source(scheduling="concurrent")

    @toolsd.tool
    def single() -> int:
        return threading.get_ident()

    harness = testing.Harness(source)
    tools = {**found_in(source).tools, **found_in(single).tools}
    harness._host = PythonHost(Launch("python", "", ""), Found(source, tools))
    with harness:
        results = harness.run(["single", "double", "single"])
    assert results[1].content == 2
    assert threading.get_ident() not in (results[0].content, results[2].content)
