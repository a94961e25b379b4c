"""The test kit runs a source in memory and gives what a client would get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import toolsd
from toolsd import testing


@pytest.fixture
def notes() -> toolsd.Source:
    source = toolsd.Source("notes")
    kept: list[str] = []

    @source.tool
    def add(text: str) -> int:
        kept.append(text)
        return len(kept)

    @source.tool
    def all_notes() -> list[str]:
        return kept

    @source.tool
    def lose(which: int, context: toolsd.Context) -> None:
        context.progress(1, 2, "looking")
        context.write("a")
        context.write("b")
        context.warning("not there", which=which)
        raise toolsd.ToolError(f"there is no note {which}")

    return source


def test_one_batch_gives_results_in_order(notes: toolsd.Source) -> None:
    results = testing.run(notes, [("add", {"text": "milk"}), "all_notes", ("mine", "add", '{"text": "tea"}')])
    assert [(result.id, result.tool, result.ok, result.content) for result in results] == [
        ("call_0", "add", True, 1),
        ("call_1", "all_notes", True, ["milk"]),
        ("mine", "add", True, 2),
    ]
    assert results[1].text == '["milk"]'


def test_state_lives_across_batches_and_reports_are_kept(notes: toolsd.Source) -> None:
    with testing.Harness(notes) as harness:
        assert set(harness.tools) == {"add", "all_notes", "lose"}
        harness.call("add", text="milk")
        assert harness.call("all_notes").content == ["milk"]
        lost = harness.call("lose", which=3)
        assert (lost.ok, lost.text, lost.error) == (
            False,
            "there is no note 3",
            toolsd.SlotError("tool_error", "there is no note 3"),
        )
        assert harness.progress == [[toolsd.Progress(1, 2, "looking")]]
        assert harness.logs == [[toolsd.LogRecord("warning", "not there", {"which": 3})]]
        assert harness.output == ["ab"]


def test_an_asynchronous_source_needs_its_own_loop() -> None:
    source = toolsd.Source("s")

    @source.tool
    async def wait() -> str:
        return "done"

    async def scenario() -> str:
        with pytest.raises(toolsd.UsageError, match="to_thread"):
            testing.run(source, ["wait"])
        return (await asyncio.to_thread(testing.run, source, ["wait"]))[0].text

    assert asyncio.run(scenario()) == "done"


def test_the_kit_refuses_what_a_coordinator_would_answer_itself(notes: toolsd.Source) -> None:
    with pytest.raises(toolsd.UsageError, match="no nothing"):
        testing.run(notes, ["nothing"])
    unknown: Any = len
    with pytest.raises(toolsd.UsageError, match="no Source"):
        testing.run(unknown, [])
