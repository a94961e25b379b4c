"""What each way a tool can end becomes in its slot, and what may not stay there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import toolsd
from toolsd import testing
from toolsd.host import BatchCancelled
from toolsd.launch import ToolSettings


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> Any:
    raise error


@pytest.fixture(params=["plain", "async"])
def run_one(request: pytest.FixtureRequest) -> Callable[..., toolsd.Result]:
    """Runs one tool, blocking or on the loop; the ways to end must look the same."""

    def run(function: Callable[[], Any], **settings: Any) -> toolsd.Result:
        source = toolsd.Source("s")
        if request.param == "plain":

            @source.tool(name="it")
            def plain() -> Any:
                return function()
        else:

            @source.tool(name="it")
            async def coroutine() -> Any:
                await asyncio.sleep(0)
                return function()

        return testing.run(source, ["it"], **settings)[0]

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (toolsd.ToolError("no such note"), "tool_error", "no such note"),
        (toolsd.ToolError("no such note", hint="list them"), "tool_error", "no such note\n  hint: list them"),
        (KeyError("k"), "tool_error", "KeyError: 'k'"),
        (ValueError(), "tool_error", "ValueError"),
        (Odd(), "tool_error", "Odd: (its message cannot be read: RuntimeError)"),
        (ValueError("x" * 100_000), "tool_error", "ValueError: xxx"),
        (ValueError("\ud800"), "tool_error", "ValueError: ?"),
        (RecursionError("deep"), "tool_error", "RecursionError: deep"),
        (asyncio.CancelledError(), "tool_error", "CancelledError"),
        (TimeoutError("slow server"), "tool_error", "TimeoutError: slow server"),
    ],
)
def test_what_a_tool_raises_stays_in_its_slot(
    run_one: Callable[..., toolsd.Result], error: BaseException, code: str, message: str
) -> None:
    result = run_one(lambda: _raise(error))
    assert not result.ok
    assert result.error is not None
    assert result.error.code == code
    assert result.text.startswith(message)
    assert len(result.text) < 20_000


def test_the_traceback_goes_to_the_log_and_not_to_the_model(
    run_one: Callable[..., toolsd.Result], capsys: pytest.CaptureFixture[str]
) -> None:
    result = run_one(lambda: _raise(KeyError("k")))
    said = capsys.readouterr().err
    assert "it raised:" in said
    assert "raise error" in said
    assert "workers/python/calls.py" not in said
    assert "Traceback" not in result.text


def test_a_tool_error_is_not_logged(run_one: Callable[..., toolsd.Result], capsys: pytest.CaptureFixture[str]) -> None:
    run_one(lambda: _raise(toolsd.ToolError("expected")))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [BatchCancelled(), SystemExit(3), KeyboardInterrupt()])
def test_what_is_the_runtimes_to_decide_is_passed_on(
    run_one: Callable[..., toolsd.Result], error: BaseException
) -> None:
    with pytest.raises((type(error), toolsd.BatchRaised)) as passed:
        run_one(lambda: _raise(error))
    assert passed.value is error or passed.value.__cause__ is error


def test_an_absurd_allocation_is_an_error_in_the_slot(run_one: Callable[..., toolsd.Result]) -> None:
    result = run_one(lambda: bytearray(1 << 60))
    assert result.error is not None
    assert (result.error.code, result.error.details) == ("tool_error", {"type": "MemoryError"})
    assert "more memory than there is" in result.text


def test_a_result_that_cannot_be_sent_is_an_error_in_the_slot(run_one: Callable[..., toolsd.Result]) -> None:
    result = run_one(lambda: {"rows": [1, object()]})
    assert result.error is not None
    assert result.error.code == "result_invalid"
    assert result.error.details == {"path": "$.rows[1]"}
    assert "$.rows[1]" in result.text


def test_a_result_over_the_limit_names_size_and_limit(run_one: Callable[..., toolsd.Result]) -> None:
    for whole in ("x" * 100, b"x" * 100, ["x" * 96], [toolsd.Text("x" * 50), b"x" * 50]):
        assert run_one(lambda whole=whole: whole, result_max=100).ok
    assert not run_one(lambda: b"x" * 101, result_max=100).ok
    result = run_one(lambda: "x" * 101, result_max=100)
    assert result.error is not None
    assert result.error.code == "result_too_large"
    assert result.error.details == {"size": 101, "limit": 100, "key": "result_max"}
    assert "101" in result.text
    assert "100" in result.text


def test_an_argument_type_whose_own_code_breaks_is_an_error_in_the_slot() -> None:
    @dataclass
    class Broken:
        x: int

        def __post_init__(self) -> None:
            raise KeyError("bug")

    source = toolsd.Source("s")

    @source.tool
    def takes(value: Broken) -> None: ...

    result = testing.run(source, [("takes", {"value": {"x": 1}})])[0]
    assert result.error is not None
    assert (result.error.code, result.text) == ("tool_error", "KeyError: 'bug'")


def test_settings_of_the_operator_win_over_the_author() -> None:
    source = toolsd.Source("s")

    @source.tool(timeout=60, idempotent=True, description="Said.", name="slow")
    async def forever() -> None:
        """Not said."""
        await asyncio.Event().wait()

    with testing.Harness(source, tools={"slow": ToolSettings(timeout=0.01)}) as harness:
        spec = harness.tools["slow"]
        assert (spec.timeout, spec.idempotent, spec.description) == (0.01, True, "Said.")
        result = harness.call("slow")
    assert result.error is not None
    assert result.error.code == "tool_timeout"
    assert "0.01 seconds" in result.text


def test_a_timeout_stops_only_its_own_call() -> None:
    source = toolsd.Source("s", scheduling="concurrent")
    stopped = []

    @source.tool(timeout=0.01)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("slow")

    @source.tool
    async def quick() -> str:
        while not stopped:
            await asyncio.sleep(0.001)
        return "done"

    results = testing.run(source, ["slow", "quick", "slow"])
    assert [result.error.code if result.error else result.content for result in results] == [
        "tool_timeout",
        "done",
        "tool_timeout",
    ]


def test_arguments_reach_every_kind_of_parameter() -> None:
    source = toolsd.Source("s")

    @source.tool
    def tool(a: int, /, b: int, c: toolsd.Context, *, d: int = 4) -> list[Any]:
        return [a, b, c.tool, d]

    @source.tool
    def given(ctx: toolsd.Context) -> list[Any]:
        assert ctx.deadline is not None
        return [ctx.call_id, ctx.turn, ctx.session, ctx.cancelled, 0 < ctx.deadline <= 5]

    with testing.Harness(source) as harness:
        results = harness.run([("tool", {"a": 1, "b": 2}), ("x1", "given", {})], session="s1", deadline=5)
    assert [result.content for result in results] == [[1, 2, "tool", 4], ["x1", "turn-test", "s1", False, True]]
    other: Any = SimpleNamespace(tool="mine")
    assert tool(1, 2, other, d=3) == [1, 2, "mine", 3]  # the function itself stays what it was


def test_a_tools_own_timeout_bounds_the_deadline_it_sees() -> None:
    source = toolsd.Source("s")

    @source.tool(timeout=2)
    def left(ctx: toolsd.Context) -> float | None:
        return ctx.deadline

    with testing.Harness(source) as harness:
        assert 0 < harness.call("left").content <= 2
        assert harness.run(["left"], deadline=1)[0].content <= 1
        assert harness.run(["left"], deadline=-1)[0].content == 0
