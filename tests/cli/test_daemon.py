"""Verbs against a running daemon: what they print, their JSON, their exit status, and how it all ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import COMMAND, PATIENCE, Daemon, Running, Toolsd, appeared


def test_one_ready_line(shop: Daemon) -> None:
    assert re.fullmatch(
        r"toolsd \S+ is ready: pid \d+, 1 source, 5 tools, socket " + re.escape(shop.socket) + r"\n", shop.ready
    )


def test_call(shop: Daemon) -> None:
    assert shop.toolsd("call", "add", '{"a": 2}') == (0, "3\n", "")
    assert shop.toolsd("call", "add", "-", stdin='{"a": 2, "b": 5}').out == "7\n"
    assert shop.toolsd("call", "add", '{"a": 2}', "--json").json == {
        "ok": True, "index": 0, "id": None, "tool": "add", "content": 3, "text": "3", "error": None,
    }  # fmt: skip


def test_call_that_fails(shop: Daemon) -> None:
    failed = shop.toolsd("call", "fail")
    assert (failed.status, failed.out) == (1, "")
    assert failed.err == "toolsd: tool_error: out of \\x1b[31mluck\n"
    unknown = shop.toolsd("call", "ad", "--json")
    assert unknown.status == 1 and unknown.json["error"]["code"] == "unknown_tool"
    assert "add" in unknown.json["text"]
    assert shop.toolsd("call", "add", '{"a": "two"}', "--json").json["error"]["code"] == "arguments_invalid"
    assert shop.toolsd("call", "add", '{"a": ', "--json").json["error"]["code"] == "arguments_malformed"


def test_bytes_are_base64_in_json(shop: Daemon) -> None:
    assert shop.toolsd("call", "picture", "--json").json["content"] == [
        {"data": "AP8=", "mime": "image/x-test"},
    ]  # fmt: skip


@pytest.mark.parametrize("stdin", [b"", b"\xff"])
def test_call_with_bad_stdin_is_usage(shop: Daemon, stdin: bytes) -> None:
    bad = shop.toolsd("call", "add", "-", stdin=stdin)
    assert bad.status == 2 and "stdin" in bad.err


def test_tools(shop: Daemon) -> None:
    listed = shop.toolsd("tools").out.splitlines()
    assert listed[0].split() == ["TOOL", "SOURCE", "DESCRIPTION"]
    assert listed[1].split(maxsplit=2) == ["add", "shop", "Add two numbers."]
    add = shop.toolsd("tools", "--json").json[0]
    assert add.keys() == {"name", "source", "description", "parameters", "idempotent", "timeout", "sandbox"}
    assert add["parameters"]["required"] == ["a"]
    assert '"description": "The first one."' in shop.toolsd("tools", "--schema", "add").out
    assert shop.toolsd("tools", "add", "nope").status == 1


def test_completion_knows_the_tools(shop: Daemon, toolsd: Toolsd) -> None:
    words = f"toolsd --socket {shop.socket} call a"
    found = toolsd(_TOOLSD_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="4")
    assert found == (0, "plain,add\n", "")
    nobody = toolsd(_TOOLSD_COMPLETE="bash_complete", COMP_WORDS="toolsd --socket /no/where call a", COMP_CWORD="4")
    assert (nobody.status, nobody.out.strip(), nobody.err) == (0, "", "")


def test_ps(shop: Daemon) -> None:
    shop.toolsd("call", "add", '{"a": 1}')
    state = shop.toolsd("ps", "--json").json
    assert state.keys() >= {"pid", "version", "socket", "up", "state", "sources", "turns", "clients", "counters"}
    (source,) = state["sources"]
    assert (source["name"], source["state"], source["tools"], source["failure"]) == ("shop", "ready", 5, None)
    (worker,) = source["workers"]
    assert worker.keys() >= {"replica", "pid", "state", "batches", "capacity", "rss", "cpu", "age"}
    text = shop.toolsd("ps").out
    assert str(worker["pid"]) in text and str(state["pid"]) in text


def stream(*calls: tuple[str, str], finish: str = "tool_calls") -> str:
    deltas = [
        {"index": number, "id": f"call_{number}", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def test_turn(shop: Daemon) -> None:
    calls = stream(("add", '{"a": 1}'), ("fail", "{}"), ("nope", "{}"), ("add", '{"a": 2}'))
    played = shop.toolsd("turn", "-", "--json", stdin=calls)
    assert played.status == 1
    turn = played.json
    assert turn.keys() == {"ok", "results", "batches"} and turn["ok"] is False
    assert [result["id"] for result in turn["results"]] == ["call_0", "call_1", "call_2", "call_3"]
    assert [result["content"] for result in turn["results"]] == [2, None, None, 3]
    (batch,) = turn["batches"]
    assert batch.keys() == {"source", "replica", "pid", "calls", "elapsed"}
    assert (batch["source"], batch["calls"]) == ("shop", [0, 1, 3])
    text = shop.toolsd("turn", "-", stdin=calls).out
    assert re.search(r"^0  add  ok  shop \(pid \d+\)\n   2$", text, re.MULTILINE)
    assert re.search(r"^2  nope  error$", text, re.MULTILINE)
    assert shop.toolsd("turn", "-", stdin=stream(("add", '{"a": 1}'))).status == 0


def test_a_turn_whose_worker_dies(shop: Daemon) -> None:
    calls = stream(("add", '{"a": 1}'), ("die", "{}"), ("add", '{"a": 2}'))
    failed = shop.toolsd("turn", "-", "--json", stdin=calls)
    assert failed.status == 1
    assert failed.json["ok"] is False
    error = failed.json["error"]
    assert error.keys() == {
        "code", "message", "hint", "source", "cause", "retry", "retry_after", "evidence", "ledger",
    }  # fmt: skip
    assert (error["code"], error["source"], error["retry"]) == ("worker_crashed", "shop", "idempotent_only")
    assert error["evidence"]["signal"] == "SIGKILL" and error["evidence"]["oom"] is None
    assert [entry["state"] for entry in error["ledger"]] == ["finished", "started", "sent"]
    text = shop.toolsd("call", "die")
    assert (text.status, text.out) == (1, "") and "worker_crashed" in text.err and "SIGKILL" in text.err
    assert shop.toolsd("call", "die", "--json").json["error"]["ledger"][0]["state"] == "started"
    assert shop.toolsd("call", "add", '{"a": 1}').out == "2\n"


def test_a_damaged_completion_runs_nothing_unless_told_to(shop: Daemon) -> None:
    cut = stream(("add", '{"a": 1}'), ("add", '{"a": '), finish="length")
    refused = shop.toolsd("turn", "-", "--json", stdin=cut)
    assert refused.status == 1 and refused.json["error"]["code"] == "completion_defective"
    run = shop.toolsd("turn", "-", "--json", "--run-defective", stdin=cut).json
    assert [result["content"] for result in run["results"]] == [2, None]


def test_an_empty_turn_is_a_fine_turn(shop: Daemon) -> None:
    played = shop.toolsd("turn", "-", "--json", stdin=stream(finish="stop"))
    assert (played.status, played.json) == (0, {"ok": True, "results": [], "batches": []})


def test_a_deadline(shop: Daemon, tmp_path: Path) -> None:
    arguments = json.dumps({"started": str(tmp_path / "started"), "until": str(tmp_path / "never")})
    late = shop.toolsd("call", "hold", arguments, "--deadline", "200ms", "--json")
    assert late.status == 1 and late.json["error"]["code"] == "turn_timeout"
    assert shop.toolsd("call", "add", "{}", "--deadline", "5").status == 2


def test_a_second_daemon_is_told_who_has_the_socket(daemon: Daemon) -> None:
    second = daemon.toolsd("serve", "-c", daemon.config)
    assert second.status == 75 and str(daemon.running.process.pid) in second.err
    assert daemon.toolsd("ps").status == 0


def test_stop(daemon: Daemon) -> None:
    stopped = daemon.toolsd("stop", "--json")
    assert stopped.json == {"ok": True, "pid": daemon.running.process.pid}
    assert daemon.running.end().status == 0
    for verb in ("ps", "stop", "tools"):
        assert daemon.toolsd(verb).status == 69
    nobody = daemon.toolsd("call", "add", "{}", "--json")
    assert nobody.status == 69 and nobody.json["error"]["code"] == "coordinator_unreachable"
    assert "toolsd serve" in nobody.err


@pytest.fixture
def holding(daemon: Daemon, start: Callable[..., Running], tmp_path: Path) -> Running:
    """A call that runs and waits for the file `until`."""
    arguments = json.dumps({"started": str(tmp_path / "started"), "until": str(tmp_path / "until")})
    calling = start("call", "hold", arguments, "--socket", daemon.socket)
    appeared(tmp_path / "started")
    return calling


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_turns_finish(daemon: Daemon, holding: Running, tmp_path: Path, number: int) -> None:
    daemon.running.signal(number)
    deadline_free = daemon.toolsd("call", "add", '{"a": 1}')
    assert deadline_free.status == 75 and "draining" in deadline_free.err
    (tmp_path / "until").write_text("x")
    assert holding.end() == (0, "done\n", "")
    assert daemon.running.end().status == 0
    assert not os.path.exists(daemon.socket)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_second_signal_ends_it_at_once(daemon: Daemon, holding: Running, number: int, status: int) -> None:
    daemon.running.signal(number)
    assert daemon.toolsd("call", "add", '{"a": 1}').status == 75  # so the first one was taken
    daemon.running.signal(number)
    assert daemon.running.end().status == status
    assert holding.end().status in (1, 69, 75)


def test_stop_now(daemon: Daemon, holding: Running) -> None:
    assert daemon.toolsd("stop", "--now").status == 0
    assert daemon.running.end().status == 0
    assert holding.end().status in (1, 69, 75)


def test_ctrl_c_in_a_call_stops_the_work(daemon: Daemon, holding: Running, tmp_path: Path) -> None:
    holding.signal(signal.SIGINT)
    interrupted = holding.end()
    assert (interrupted.status, interrupted.out) == (130, "") and "interrupted" in interrupted.err
    assert daemon.toolsd("call", "add", '{"a": 1}').out == "2\n"  # its worker is free again


def test_a_reader_that_leaves(shop: Daemon) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, "tools", "--socket", shop.socket], check=False, stdout=pipe, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_the_configuration_says_where_the_daemon_is(
    start: Callable[..., Running], toolsd: Toolsd, socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text(
        "import toolsd\nsource = toolsd.Source('a')\n@source.tool\ndef a() -> int:\n    return 1\n"
    )
    (tmp_path / "toolsd.toml").write_text(
        f'[daemon]\nsocket = "{socket}"\n[source.a]\nkind = "python"\npath = "a.py"\n'
    )
    monkeypatch.chdir(tmp_path)
    start("serve").line()
    assert toolsd("call", "a").out == "1\n"
    assert toolsd("ps", "-c", "toolsd.toml", "--json").json["socket"] == socket


def test_a_daemon_whose_output_nobody_reads_serves_all_the_same(shop: Daemon, toolsd: Toolsd, socket: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        serving = subprocess.Popen([*COMMAND, "serve", "-c", shop.config, "--socket", socket], stdout=pipe)
    try:
        deadline = time.monotonic() + PATIENCE
        while toolsd("ps", "--socket", socket).status == 69:
            assert time.monotonic() < deadline and serving.poll() is None
        assert toolsd("call", "add", '{"a": 1}', "--socket", socket).out == "2\n"
        assert toolsd("stop", "--socket", socket).status == 0
        assert serving.wait(PATIENCE) == 0
    finally:
        serving.kill()
        serving.wait()


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_failing_sources_do_not_stop_the_others(
    start: Callable[..., Running], toolsd: Toolsd, socket: str, tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "a.py").write_text(
        "import toolsd\nsource = toolsd.Source('a')\n@source.tool\ndef a() -> int:\n    return 1\n"
    )
    (tmp_path / "t.toml").write_text(
        '[source.a]\nkind = "python"\npath = "a.py"\nrequired = true\n[source.b]\nkind = "python"\npath = "gone.py"\n'
    )
    ready = start("serve", "-c", tmp_path / "t.toml", "--socket", socket, *arguments).line()
    if arguments:
        document = json.loads(ready)
        assert document.keys() == {"ready", "version", "pid", "address", "sources", "tools", "failed", "starting"}
        assert (document["sources"], document["tools"], document["failed"] + document["starting"]) == (1, 1, ["b"])
    else:
        assert ready.endswith(("; not available: b\n", "; still starting: b\n"))
    assert toolsd("call", "a", "--socket", socket).out == "1\n"
    assert toolsd("tools", "--socket", socket).status == 0  # this waits until all sources were looked at
    shown = toolsd("ps", "--socket", socket)
    assert shown.status == 0 and "gone.py does not exist" in shown.out


def test_a_source_that_never_answers_delays_nobody(
    start: Callable[..., Running], toolsd: Toolsd, socket: str, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("import toolsd\n@toolsd.tool\ndef a() -> int:\n    return 1\n")
    (tmp_path / "hangs.py").write_text("import time\nwhile True:\n    time.sleep(600)\n")
    (tmp_path / "t.toml").write_text(
        '[source.a]\nkind = "python"\npath = "a.py"\nrequired = true\n'
        '[source.b]\nkind = "python"\npath = "hangs.py"\nstart_timeout = "10m"\n'
    )
    ready = start("serve", "-c", tmp_path / "t.toml", "--socket", socket).line()
    assert ready.endswith("; still starting: b\n")
    assert toolsd("call", "a", "--socket", socket).out == "1\n"
    assert toolsd("stop", "--now", "--socket", socket).status == 0


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ('[source.b]\nkind = "python"\npath = "a.py"\n', ["'a'", "'b'"]),
        ('[source.b]\nkind = "python"\npath = "gone.py"\nrequired = true\n', ["b", "gone.py"]),
    ],
    ids=["collision", "required"],
)
def test_what_keeps_a_daemon_from_starting(
    toolsd: Toolsd, socket: str, tmp_path: Path, second: str, said: list[str]
) -> None:
    (tmp_path / "a.py").write_text(
        "import toolsd\nsource = toolsd.Source('a')\n@source.tool\ndef a() -> int:\n    return 1\n"
    )
    (tmp_path / "t.toml").write_text('[source.a]\nkind = "python"\npath = "a.py"\n' + second)
    refused = toolsd("serve", "-c", tmp_path / "t.toml", "--socket", socket)
    assert (refused.status, refused.out) == (78, "")
    complaint = refused.err.splitlines()[-1]
    assert complaint.startswith("toolsd: ") and all(word in complaint for word in said)
