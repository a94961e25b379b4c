"""Turns through a real daemon and real workers: what goes in, what comes out, in which order."""

from __future__ import annotations

from typing import Any

from toolsd import Client


def delta(index: int, id_: str | None = None, name: str | None = None, arguments: str | None = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"index": index, "function": function} | ({} if id_ is None else {"id": id_})


def test_one_call(client: Client) -> None:
    result = client.call("echo", {"text": "hello"})
    assert (result.ok, result.content, result.text, result.tool, result.error) == (True, "hello", "hello", "echo", None)
    assert client.call("echo", '{"text": "as text"}').text == "as text"


def test_deltas_in_any_order_become_results_in_the_order_of_the_calls(client: Client) -> None:
    turn = client.turn(id="deltas-in")
    turn.observe([delta(1, "call_b", "si", None), delta(0, None, "ec", '{"te')])
    turn.observe(None)
    turn.observe([])
    turn.observe(
        [delta(0, None, "ho", 'xt": "one"}'), delta(1, None, "de_echo", '{"text":'), delta(2, "call_c", "size")]
    )
    turn.observe([delta(2, None, None, '{"text": "four"}'), delta(1, None, None, ' "two"}'), delta(0, "call_a")])
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
