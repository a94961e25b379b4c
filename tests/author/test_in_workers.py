"""Sources in real workers: what the test kit cannot show, because it needs a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import toolsd

PATIENCE = 30.0  # seconds a test waits for what must happen; never reached when all is well

PLAIN = """
import os, time
import toolsd

source = toolsd.Source("plain")

@source.on_close
def leave() -> None:
    with open(os.path.join(os.path.dirname(__file__), "out", "closed"), "w") as file:
        file.write("plain")

@source.tool
def blocks(ctx: toolsd.Context) -> None:
    ctx.write("begun")
    time.sleep(600)

@source.tool
def swallows(ctx: toolsd.Context) -> str:
    try:
        ctx.write("begun")
        time.sleep(600)
    except BaseException:
        return "swallowed"

@source.tool
def large(size: int) -> str:
    return "ß" * size

@source.tool
def reports(ctx: toolsd.Context) -> str:
    for i in range(50):
        ctx.progress(i, 50)
        ctx.info("at", i=i)
    ctx.write("end")
    return "done"
"""

LOOP = """
import asyncio, os, threading, time
import toolsd

source = toolsd.Source("loop", scheduling="threads")
met = asyncio.Event()

@source.on_start
async def begin() -> None:
    await asyncio.sleep(0)

@source.on_close
async def leave() -> None:
    await asyncio.sleep(0)
    with open(os.path.join(os.path.dirname(__file__), "out", "left"), "w") as file:
        file.write("loop")

@source.tool
async def waits(ctx: toolsd.Context) -> None:
    ctx.write("begun")
    await asyncio.Event().wait()

@source.tool
def looks(ctx: toolsd.Context) -> None:
    ctx.write("begun")
    while not ctx.cancelled:
        time.sleep(0.005)

@source.tool
async def meets() -> str:
    met.set()
    return "met"

@source.tool
async def awaits_meeting(ctx: toolsd.Context) -> str:
    ctx.write("begun")
    await met.wait()
    return "met"

@toolsd.tool
def single() -> int:
    return threading.get_ident()
"""

CONFIG = """
[defaults]
permissions.write = ["out"]
cancel_grace = "20s"

[source.plain]
kind = "python"
path = "plain.py"
result_max = "8MiB"

[source.loop]
kind = "python"
path = "loop.py"
max_batches = 4
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "out").mkdir()
    for name, text in (("plain.py", PLAIN), ("loop.py", LOOP), ("toolsd.toml", CONFIG)):
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[toolsd.Client]:
    with toolsd.local(folder / "toolsd.toml") as client:
        yield client


class Begun:
    """Waits until a call has said that it runs."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self, said: toolsd.CallReport) -> None:
        if said.report == toolsd.Output("begun"):
            self._event.set()

    def wait(self) -> None:
        assert self._event.wait(PATIENCE)


def in_thread(function: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(function())
        except toolsd.TurnFailed as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("tool", ["blocks", "swallows", "waits", "looks"])
def test_a_running_call_stops_when_it_is_cancelled(client: toolsd.Client, tool: str) -> None:
    begun = Begun()
    turn = client.turn(on_report=begun)
    turn.observe([{"index": i, "id": str(i), "function": {"name": tool, "arguments": ""}} for i in range(2)])
    thread, outcome = in_thread(lambda: turn.finish("tool_calls"))
    begun.wait()
    assert turn.cancel() == "stopped"
    thread.join(PATIENCE)
    assert isinstance(outcome[0], toolsd.TurnCancelled)


def test_reports_arrive_in_order_and_before_the_result(client: toolsd.Client) -> None:
    said: list[Any] = []
    assert client.call("reports", on_report=lambda call: said.append(call.report)).text == "done"
    expected: list[Any] = []
    for i in range(50):
        expected += [toolsd.Progress(i, 50), toolsd.LogRecord("info", "at", {"i": i})]
    assert said == [*expected, toolsd.Output("end")]


def test_a_large_result_arrives_equal(client: toolsd.Client) -> None:
    assert client.call("large", {"size": 4 * 1024 * 1024}).content == "ß" * 4 * 1024 * 1024
    refused = client.call("large", {"size": 4 * 1024 * 1024 + 1})
    assert refused.error is not None
    assert refused.error.code == "result_too_large"


def test_a_reentrant_source_holds_two_turns_at_a_time(client: toolsd.Client) -> None:
    begun = Begun()
    thread, outcome = in_thread(lambda: client.call("awaits_meeting", on_report=begun).text)
    begun.wait()
    assert client.call("meets").text == "met"
    thread.join(PATIENCE)
    assert outcome == ["met"]


def test_closing_runs_the_hooks(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("plain.py", "loop.py", "toolsd.toml"):
        (tmp_path / name).write_text((folder / name).read_text())
    with toolsd.local(tmp_path / "toolsd.toml") as client:
        results = client.run([("reports", {}), ("meets", {}), ("single", {})])
        assert all(result.ok for result in results)
        client.stop()
    assert (tmp_path / "out" / "closed").read_text() == "plain"
    assert (tmp_path / "out" / "left").read_text() == "loop"
