"""Native code that works, that fails, that dies, and that attacks; real libraries in real workers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import toolsd
from clients.conftest import PATIENCE
from toolsd.content import Image

from .conftest import EXAMPLES, HERE, Build, Serve


def test_the_example_in_c(build: Build, serve: Serve) -> None:
    client = serve(build(EXAMPLES / "greet.c"))
    assert {tool.name: tool.idempotent for tool in client.tools()} == {"greet": False, "count_greetings": True}
    results = client.run([("greet", {"times": 2}), ("count_greetings", {}), ("greet", {"times": 99})])
    assert [result.content for result in results] == ["hello hello", {"greeted": 2}, None]
    assert results[2].error is not None and results[2].error.code == "tool_error"
    assert client.call("count_greetings").content == {"greeted": 2}, "state lives across turns"


def test_the_example_in_rust(build: Build, serve: Serve) -> None:
    client = serve(build(EXAMPLES / "words.rs", "-O", language="rs"))
    counted, panicked = client.run([("count_words", {"text": "one two\nthree"}), ("panic", {"text": "now"})])
    assert counted.content == {"words": 3}
    assert panicked.error is not None and panicked.error.code == "tool_error" and "panicked" in panicked.text


def test_the_readme(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are written and its commands are run, as a newcomer would."""
    build(EXAMPLES / "greet.c")  # where there is no compiler, this skips
    text = (HERE.parents[1] / "README.md").read_text()
    for file, language in (("machine.c", "c"), ("native.toml", "toml")):
        (block,) = re.findall(
            rf"^```{language}\n(?:# |/\* ){re.escape(file)}.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL
        )
        (tmp_path / file).write_text(block)
    (commands,) = re.findall(r"^```sh\n(cc .*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["online"] >= 1


def test_results_of_every_kind(odd: toolsd.Client) -> None:
    echo, picture, text, broken, kind = odd.run(
        [
            ("echo", {"text": "grüße\n", "size": 2**62}),
            ("picture", {}),
            ("no_utf8", {}),
            ("no_json", {}),
            ("no_kind", {}),
        ]
    )
    assert echo.content == {"text": "grüße\n", "size": 2**62}
    assert picture.content == [Image(b"\x89PNG\0data", "image/png")]
    for result, what in ((text, "utf-8"), (broken, "JSON"), (kind, "kind is 77")):
        assert result.error is not None and result.error.code == "result_invalid" and what in result.text


def test_reports_reach_the_client(odd: toolsd.Client) -> None:
    seen = []
    (result,) = odd.run([("speak", {})], on_report=lambda said: seen.append(said.report))
    assert seen == [toolsd.Progress(1, 2, "half"), toolsd.Output("piece"), toolsd.LogRecord("warning", "careful")]
    assert result.ok


@pytest.mark.parametrize(
    ("tool", "signal", "said"),
    [
        ("segfault", "SIGSEGV", "about to write to address 0"),
        ("abort_it", "SIGABRT", "assertion of the author failed"),
        ("double_free", "SIGABRT", "double free"),
        ("overflow", "SIGSEGV", ""),
    ],
)
def test_a_death_fails_one_turn_and_names_the_call(odd: toolsd.Client, tool: str, signal: str, said: str) -> None:
    with pytest.raises(toolsd.WorkerCrashed) as failed:
        odd.run([("echo", {}), (tool, {}), ("echo", {})])
    evidence = failed.value.evidence
    assert evidence is not None and evidence.signal == signal
    assert said in (evidence.stderr_tail or "")
    assert evidence.running == tool
    assert [entry.state for entry in failed.value.ledger] == ["finished", "started", "sent"]
    assert odd.call("echo").ok, "the next turn has a new worker"


def test_a_library_that_ends_the_process(odd: toolsd.Client) -> None:
    with pytest.raises(toolsd.WorkerCrashed) as failed:
        odd.call("leave")
    assert failed.value.evidence is not None and failed.value.evidence.exit_code == 7


def test_an_exception_of_another_language(build: Build, serve: Serve) -> None:
    thrown = """
        #include "toolsd_source.h"
        #include <stdexcept>
        static const toolsd_tool tools[] = {{"throw_it", "", nullptr, 0}};
        static int32_t invoke(void *, const toolsd_context *context, const toolsd_call *, toolsd_result *, size_t,
                              const toolsd_allocator *) {
            context->started(context, 0);
            throw std::runtime_error("nobody catches this");
        }
        static const toolsd_source source = {TOOLSD_ABI, TOOLSD_TELLS, "thrower", tools, 1, nullptr, invoke, nullptr};
        extern "C" TOOLSD_EXPORT const toolsd_source *toolsd_source_entry(const toolsd_host *) { return &source; }
    """
    client = serve(build(thrown, language="cpp"))
    with pytest.raises(toolsd.WorkerCrashed) as failed:
        client.call("throw_it")
    evidence = failed.value.evidence
    assert evidence is not None and evidence.signal == "SIGABRT"
    assert "nobody catches this" in (evidence.stderr_tail or "")


def test_what_fails_the_batch(odd: toolsd.Client) -> None:
    with pytest.raises(toolsd.BatchRaised, match="the licence server is gone"):
        odd.run([("fail_batch", {}), ("echo", {})])
    with pytest.raises(toolsd.ResultsIncomplete, match=r"empty \(slot 1\)"):
        odd.run([("echo", {}), ("empty", {})])
    with pytest.raises(toolsd.ProtocolViolation, match="filled twice"):
        odd.call("twice")
    with pytest.raises(toolsd.BatchRaised, match="call 4711 of 1"):
        odd.call("nowhere")


def test_cancel_is_seen_by_code_that_looks(odd: toolsd.Client) -> None:
    assert _cancelled(odd, "cooperate") == "stopped"
    assert odd.call("echo").ok


def test_cancel_kills_code_that_does_not_look(build: Build, serve: Serve) -> None:
    client = serve(build(HERE / "odd.c"), 'cancel_grace = "200ms"')
    assert _cancelled(client, "spin") == "killed"
    assert client.call("echo").ok


@pytest.mark.parametrize("tool", ["spin", "cooperate"])
def test_a_deadline_kills(build: Build, serve: Serve, tool: str) -> None:
    client = serve(build(HERE / "odd.c"), 'batch_timeout = "300ms"')
    with pytest.raises(toolsd.BatchTimeout) as late:
        client.call(tool)
    assert late.value.evidence is not None and late.value.evidence.running == tool
    assert client.call("echo").ok


def test_a_deadline_can_be_met(build: Build, serve: Serve) -> None:
    client = serve(build(HERE / "odd.c"), 'batch_timeout = "1100ms"')
    assert client.call("until_deadline").content == "in time"


def test_a_flood_on_stdout_harms_nothing(odd: toolsd.Client) -> None:
    assert odd.call("flood").content == "printed"


def test_64_mib_come_whole_and_more_is_told(build: Build, serve: Serve) -> None:
    size = 64 * 1024 * 1024
    client = serve(build(HERE / "odd.c"), 'result_max = "64MiB"')
    assert client.call("large", {"size": size}).content == "x" * size
    refused = client.call("large", {"size": size + 1})
    assert refused.error is not None and refused.error.code == "result_too_large"


def test_memory_that_is_not_there(build: Build, serve: Serve) -> None:
    client = serve(build(HERE / "odd.c"), 'limits = { memory = "256MiB" }')
    result = client.call("large", {"size": 2**40})
    assert result.error is not None and result.error.code == "tool_error" and "1099511627776 bytes" in result.text


def test_attacks(build: Build, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoy = tmp_path / "decoy"
    decoy.write_text("hunter2")
    os.chmod(decoy, 0o644)
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "hunter2")
    library = build(HERE / "odd.c")
    attacks = [
        ("read_file", decoy, "EACCES"),
        ("read_by_syscall", decoy, "EACCES"),
        ("write_file", library, "EACCES"),
        ("open_socket", "", "EACCES"),
        ("connect_unix", "", "EACCES"),
        ("trace_parent", "", "EPERM"),
        ("kill_parent", "", "EPERM"),
        ("run_program", "", "EPERM"),
        ("fork_it", "", "EPERM"),
        ("io_ring", "", "ENOSYS"),
        ("read_environment", "", "not there"),
    ]
    results = serve(library).run([(tool, {"text": str(aim)}) for tool, aim, _ in attacks])
    assert [(result.tool, result.content) for result in results] == [(tool, answer) for tool, _, answer in attacks]


def _cancelled(client: toolsd.Client, tool: str) -> str | None:
    """Cancel a turn once its call runs; how it ended."""
    runs = threading.Event()
    turn = client.turn(on_report=lambda _: runs.set())
    turn.observe([{"index": 0, "id": "c", "function": {"name": tool, "arguments": "{}"}}])
    failures: list[toolsd.TurnFailed] = []

    def finish() -> None:
        try:
            turn.finish("tool_calls")
        except toolsd.TurnFailed as error:
            failures.append(error)

    waiting = threading.Thread(target=finish)
    waiting.start()
    assert runs.wait(PATIENCE)
    outcome = turn.cancel()
    waiting.join(PATIENCE)
    assert [failure.cause for failure in failures] == [outcome]
    return outcome
