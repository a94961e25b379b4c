"""Turns through a real daemon and real workers: what goes in, what comes out, in which order."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolsd
from toolsd import (
    Client,
    CompletionDefective,
    LogRecord,
    Output,
    Progress,
    UsageError,
    WorkerCrashed,
    codec,
)
from toolsd.client import CallReport
from toolsd.reception import REPORTS_MESSAGES
from toolsd.streams import StreamBudget

from .conftest import WORKSHOP, Daemon, Gate, eventually


def delta(index: int, id_: str | None = None, name: str | None = None, arguments: str | None = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"index": index, "function": function} | ({} if id_ is None else {"id": id_})


def test_one_call(client: Client) -> None:
    result = client.call("echo", {"text": "hello"})
    assert (result.ok, result.content, result.text, result.tool, result.error) == (True, "hello", "hello", "echo", None)
    assert client.call("echo", '{"text": "as text"}').text == "as text"


def test_deltas_in_any_order_become_results_in_the_order_of_the_calls(client: Client) -> None:
    turn = client.turn(id="deltas-in")
    turn.observe([delta(1, "call_b", "si", None), delta(0, None, "ec", None)])
    turn.observe(None)
    turn.observe([])
    turn.observe([delta(0, None, "ho", '{"text": "o'), delta(1, None, "de_echo", '{"text":')])
    turn.observe([delta(2, "call_c", "size")])
    turn.observe([delta(2, None, None, '{"text": "four"}'), delta(1, None, None, ' "two"}')])
    turn.observe([delta(0, "call_a", None, 'ne"}')])
    results = turn.finish("tool_calls")
    assert [(r.index, r.id, r.tool, r.content) for r in results] == [
        (0, "call_a", "echo", "one"),
        (1, "call_b", "side_echo", "two"),
        (2, "call_c", "size", 4),
    ]
    assert turn.results == results
    records = {record.source: record for record in turn.batches}
    assert records["bench"].indexes == (0, 2)
    assert records["side"].indexes == (1,)
    assert all(record.pid and record.elapsed >= 0 for record in turn.batches)


def test_sdk_chunks_are_fed_as_they_come(client: Client) -> None:
    turn = client.turn()
    first = {"choices": [{"index": 0, "delta": {"tool_calls": [delta(0, "c", "echo", "")]}, "finish_reason": None}]}
    turn.feed(first)
    turn.feed({"choices": [{"index": 0, "delta": {"tool_calls": [delta(0, None, None, '{"text": "fed"}')]}}]})
    turn.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    assert [r.text for r in turn.finish()] == ["fed"]
    assert turn.calls[0].arguments == '{"text": "fed"}'


def test_slot_errors_stay_in_their_slots(client: Client) -> None:
    results = client.run(
        [("echo", {"text": "a"}), ("fail", {"text": "no luck"}), ("ecko", {}), ("size", {}), ("side_echo", "[")]
    )
    assert [r.ok for r in results] == [True, False, False, False, False]
    codes = [r.error.code if r.error else None for r in results]
    assert codes == [None, "tool_error", "unknown_tool", "arguments_invalid", "arguments_malformed"]
    assert results[1].text == "no luck"
    assert "echo" in results[2].text
    assert all(r.content is None for r in results[1:])


def test_calls_come_in_every_usual_shape(client: Client) -> None:
    class Function:
        name, arguments = "echo", '{"text": "object"}'

    class ToolCall:
        id, type, function = "o", "function", Function()

    results = client.run(
        [
            ("echo", {"text": "pair"}),
            {"tool": "echo", "arguments": {"text": "plain"}, "id": "p"},
            {"id": "d", "type": "function", "function": {"name": "echo", "arguments": '{"text": "dict"}'}},
            ToolCall(),
        ]
    )
    assert [(r.id, r.text) for r in results] == [(None, "pair"), ("p", "plain"), ("d", "dict"), ("o", "object")]


@pytest.mark.parametrize("call", [None, 7, "echo", {"tool": 5}, {"tool": "echo", "id": 5}, ("echo", {}, 1)])
def test_what_is_no_call_is_said_to_be_none(client: Client, call: Any) -> None:
    with pytest.raises(UsageError, match="call 1 is not a call"):
        client.run([("echo", {}), call])


@pytest.mark.parametrize("arguments", [{"text": object()}, {"text": float}, ["text"], 5])
def test_arguments_without_a_json_form_are_refused_here(client: Client, arguments: Any) -> None:
    with pytest.raises(UsageError, match="arguments"):
        client.call("echo", arguments)


def test_an_empty_turn_is_a_fine_turn(client: Client) -> None:
    assert client.turn().finish() == []
    assert client.run([]) == []
    assert list(client.turn()) == []
    text = client.turn()
    text.feed({"choices": [{"index": 0, "delta": {"content": "no tools today"}, "finish_reason": "stop"}]})
    assert text.finish() == []


def test_ten_thousand_calls(client: Client) -> None:
    calls = [("echo" if n % 3 else "side_echo", {"text": f"number {n}"}) for n in range(10_000)]
    results = client.run(calls)
    assert [r.text for r in results] == [f"number {n}" for n in range(10_000)]
    assert [r.index for r in results] == list(range(10_000))


def test_many_large_arguments_in_one_turn(client: Client) -> None:
    texts = [chr(ord("a") + n % 26) * 20_000 for n in range(1_000)]
    assert [r.content for r in client.run([("size", {"text": text}) for text in texts])] == [20_000] * 1_000


# --- order ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.permutations(range(6)), st.lists(st.sampled_from(["step", "relay_step"]), min_size=6, max_size=6), st.booleans()
)
def test_results_are_in_call_order_for_every_order_of_finishing(
    daemon: Daemon, ranks: list[int], tools: list[str], streaming: bool
) -> None:
    """Call n finishes as number `ranks[n]`, over two sources in any mixture."""
    with toolsd.connect(daemon.address) as client:
        in_order_of(client, ranks, tools, streaming)


def test_results_are_in_call_order_for_each_order_of_finishing_there_is(client: Client) -> None:
    """All 24 orders of four calls, over two sources."""
    for ranks in itertools.permutations(range(4)):
        in_order_of(client, ranks, ["step", "relay_step"] * 2, streaming=ranks[0] < ranks[1])


def in_order_of(client: Client, ranks: Sequence[int], tools: Sequence[str], streaming: bool) -> None:
    """Run calls that finish in the order of their ranks, and see their results in the order of the calls."""
    with TemporaryDirectory(dir=WORKSHOP / "gates") as directory:
        turn = client.turn()
        for n, (rank, tool) in enumerate(zip(ranks, tools, strict=True)):
            arguments = {"directory": directory, "number": rank, "text": f"call {n}"}
            turn.observe([delta(n, f"id{n}", tool, json.dumps(arguments))])
        if streaming:
            landed = [(result.index, result.text) for result in turn]
            assert sorted(landed) == [(n, f"call {n}") for n in range(len(ranks))]
            results = turn.results
        else:
            results = turn.finish()
    assert [(r.index, r.id, r.text) for r in results] == [(n, f"id{n}", f"call {n}") for n in range(len(ranks))]


def test_results_land_before_the_turn_is_over(client: Client, gate: Gate) -> None:
    turn = client.turn()
    turn.observe([delta(0, "slow", "hold", json.dumps(gate.arguments))])
    turn.observe([delta(1, "fast", "side_echo", '{"text": "x"}')])
    landing = iter(turn)
    first = next(landing)
    assert (first.index, first.id, first.text) == (1, "fast", "x")
    with pytest.raises(UsageError, match="no results"):
        _ = turn.results
    gate.release()
    assert [r.index for r in landing] == [0]
    assert [r.id for r in turn.results] == ["slow", "fast"]


def test_a_loop_that_leaves_early_cancels_the_turn(client: Client, gate: Gate) -> None:
    turn = client.turn(id="left-early")
    turn.observe([delta(0, "w", "wait_for", json.dumps(gate.arguments)), delta(1, "f", "echo", '{"text": "x"}')])
    for result in turn:
        assert result.id == "f"
        break
    assert client.call("side_echo", {"text": "the source is free again"}).ok
    assert client.ps()["turns"] == []


def test_progress_log_and_output_arrive_in_order(client: Client) -> None:
    seen: list[CallReport] = []
    turn = client.turn(on_report=seen.append)
    turn.observe([delta(0, "a", "echo", '{"text": "x"}'), delta(1, "b", "steps", '{"count": 5}')])
    assert [r.text for r in turn.finish()] == ["x", "done"]
    assert {(r.index, r.id, r.tool) for r in seen} == {(1, "b", "steps")}
    assert [r.report for r in seen] == [
        *(Progress(n, 5) for n in range(1, 6)),
        LogRecord("info", "all done", {"steps": 5}),
        Output("some output"),
    ]


def test_a_tool_that_talks_faster_than_its_client_listens_loses_no_result(client: Client, daemon: Daemon) -> None:
    reports: list[Any] = []

    def slow(said: CallReport) -> None:
        if not reports:
            with toolsd.connect(daemon.address) as other:
                eventually(
                    lambda: any(waiting["waiting_messages"] >= REPORTS_MESSAGES for waiting in other.ps()["clients"]),
                    "no more reports are kept for this client",
                )
        reports.append(said.report)

    assert client.call("steps", {"count": 30_000}, on_report=slow).text == "done"
    progress = [report.done for report in reports if isinstance(report, Progress)]
    assert progress == sorted(set(progress))
    notes = [report for report in reports if isinstance(report, LogRecord) and report.level == "warning"]
    left_out = sum(note.fields["left_out"] for note in notes)
    assert left_out > 0
    assert len(reports) - len(notes) + left_out == 30_000 + 2
    assert "left out" in notes[0].message


def test_a_report_handler_that_raises_ends_the_turn_with_its_own_error(client: Client) -> None:
    def refuse(report: CallReport) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.call("steps", {"count": 3}, on_report=refuse)
    assert client.call("echo", {"text": "on"}).text == "on"


# --- misuse ---------------------------------------------------------------------------------------------------------


def test_a_turn_is_used_once(client: Client) -> None:
    turn = client.turn()
    turn.observe([delta(0, "a", "echo", '{"text": "x"}')])
    assert len(turn.finish()) == 1
    for again in (turn.finish, lambda: turn.observe([]), lambda: turn.feed({}), lambda: list(turn)):
        with pytest.raises(UsageError, match="was finished before"):
            again()
    assert turn.cancel() == "finished_first"


def test_a_cancelled_turn_takes_no_deltas(client: Client) -> None:
    turn = client.turn()
    turn.observe([delta(0, "a", "echo", '{"text": "x"}')])
    assert turn.cancel() == "stopped"
    for late in (turn.finish, lambda: turn.observe([]), lambda: turn.feed({})):
        with pytest.raises(UsageError, match="was cancelled"):
            late()


def test_a_turn_id_is_used_once(client: Client, gate: Gate) -> None:
    turn = client.turn(id="twice")
    turn.observe([delta(0, "a", "wait_for", json.dumps(gate.arguments))])
    landing = iter(turn)
    with toolsd.connect(client.address) as other:
        duplicate = other.turn(id="twice")
        duplicate.observe([delta(0, "a", "echo", '{"text": "x"}')])
        submitted = client.turn()
        submitted.observe([delta(0, "f", "echo", '{"text": "x"}')])
        submitted.finish()
        waiting = threading.Thread(target=lambda: list(landing))
        waiting.start()
        gate.wait_until_it_runs()
        with pytest.raises(toolsd.DuplicateTurn):
            duplicate.finish()
        gate.release()
        waiting.join()
    assert [r.text for r in turn.results] == ["released"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("id", ""),
        ("id", "x" * 129),
        ("id", 5),
        ("session", 5),
        ("deadline", -1),
        ("deadline", float("nan")),
        ("deadline", float("inf")),
        ("deadline", "1s"),
        ("on_crash", "explode"),
        ("on_defect", None),
        ("format", "morse"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_is_sent(client: Client, setting: str, value: Any) -> None:
    with pytest.raises(UsageError):
        client.turn(**{setting: value})


def test_lone_surrogates_are_the_defect_of_their_call(client: Client) -> None:
    results = client.run([("echo", '{"text": "\ud800"}'), ("echo", {"text": "fine"}), ("ec\udfffho", "{}")])
    assert [r.ok for r in results] == [False, True, False]
    turn = client.turn()
    turn.observe([delta(0, "a", "echo", '{"text": "\ud800"}'), delta(1, "b\ud800", "echo", '{"text": "x"}')])
    assert [r.ok for r in turn.finish()] == [False, True]


def test_arguments_beyond_the_protocol_are_refused_before_they_are_sent(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "FRAME_MAX", 100_000)
    with pytest.raises(toolsd.LocalProtocolError, match="100000 are allowed"):
        client.call("size", {"text": "x" * 100_000})
    assert client.call("echo", {"text": "the link lives"}).ok


# --- defects, crashes, deadlines, sessions --------------------------------------------------------------------------


def test_a_damaged_completion_is_refused_unless_told_otherwise(client: Client) -> None:
    def cut(**settings: Any) -> toolsd.Turn:
        turn = client.turn(**settings)
        turn.observe([delta(0, "a", "echo", '{"text": "x"}')])
        return turn

    with pytest.raises(CompletionDefective) as caught:
        cut().finish("length")
    assert caught.value.cause == "finish_length"
    assert caught.value.retry == "never"
    assert [r.text for r in cut(on_defect="run").finish("length")] == ["x"]


def test_a_truncated_call_does_not_run_and_says_so_in_its_slot(client: Client) -> None:
    turn = client.turn()
    turn.observe([delta(0, "a", "echo", '{"text": "x'), delta(1, "b", "echo", '{"text": "whole"}')])
    first, second = turn.finish()
    assert (first.ok, second.text) == (False, "whole")


def test_a_stream_beyond_its_budget_ends_the_turn(client: Client) -> None:
    turn = client.turn(budget=StreamBudget(bytes=1000))
    with pytest.raises(CompletionDefective) as caught:
        for _ in range(1000):
            turn.observe([delta(0, None, None, "x" * 100)])
    assert caught.value.cause == "budget_bytes"
    with pytest.raises(UsageError, match="budget_bytes"):
        turn.finish()


def test_a_stream_beyond_its_clock_ends_the_turn(client: Client) -> None:
    turn = client.turn(total=0.0)
    with pytest.raises(CompletionDefective) as caught:
        turn.observe([delta(0, "a", "echo", '{"text": "x"}')])
        turn.observe([])
    assert caught.value.cause == "stream_timeout"


def test_a_dead_worker_fails_the_turn_with_cause_and_ledger(client: Client) -> None:
    before = client.call("where").content
    with pytest.raises(WorkerCrashed) as caught:
        client.run([("echo", {"text": "x"}), ("die", {"status": 9}), ("size", {"text": "x"})])
    failed = caught.value
    assert failed.code == "worker_crashed"
    assert failed.evidence is not None
    assert (failed.evidence.pid, failed.evidence.exit_code) == (before, 9)
    assert [entry.state for entry in failed.ledger] == ["finished", "started", "sent"]
    assert client.call("where").content != before


def test_on_crash_fail_calls_keeps_what_others_did(client: Client) -> None:
    results = client.run([("die", {}), ("side_echo", {"text": "unhurt"})], on_crash="fail_calls")
    assert results[0].error is not None
    assert results[0].error.code == "worker_crashed"
    assert results[1].text == "unhurt"


def test_a_deadline_ends_the_turn(client: Client, gate: Gate) -> None:
    with pytest.raises(toolsd.TurnTimeout) as caught:
        client.call("wait_for", gate.arguments, deadline=0.3)
    assert caught.value.code == "turn_timeout"
    assert client.call("side_echo", {"text": "next"}).text == "next"


def test_sessions_reach_the_tool(client: Client) -> None:
    assert client.call("remember", {"text": "one"}, session="s").text == ""
    assert client.call("remember", {"text": "two"}, session="s").text == "one"
    assert client.call("remember", {"text": "x"}, session="other").text == ""


def test_tools_are_in_the_order_of_the_configuration(client: Client) -> None:
    tools = client.tools()
    assert [t.name for t in tools][:2] == ["echo", "size"]
    assert [t.name for t in tools][-1] == "relay_step"
    assert {t.source for t in tools} == {"bench", "side", "relay"}
    assert tools[0].parameters["properties"]["text"]["type"] == "string"
