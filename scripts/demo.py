"""The demo: real daemon, real workers, a recorded stream, a real SIGKILL. It believes nothing: every line it prints is
checked, and it ends with status 0 only if all of it held.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from toolsd_workers.python import examples

import toolsd
from toolsd.cli import output
from toolsd.content import Progress

EXAMPLES = Path(examples.__file__).parent
TOOLSD = [sys.executable, "-m", "toolsd"]
PATIENCE = 60.0
WIDTH = min(120, shutil.get_terminal_size((100, 24)).columns)

checked = 0


class Untrue(Exception):
    """Something the demo was about to tell did not happen."""


def check(held: bool, what: str) -> None:
    """Everything the demo claims goes through here."""
    global checked
    if not held:
        raise Untrue(what)
    checked += 1


def title(text: str) -> None:
    output.say()
    output.styled((text, "bold"))


def say(text: str, *more: str | tuple[str, str]) -> None:
    output.styled("  ", text, *more)


# --- the daemon -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def daemon(home: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`toolsd serve` with the example sources, in a runtime directory of its own; gives its ready line."""
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(home)}
    log = (home / "log").open("w+")
    process = subprocess.Popen(
        [*TOOLSD, "serve", "--json", "--config", str(EXAMPLES / "toolsd.toml")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=environ,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Untrue(f"the daemon did not start:\n{(home / 'log').read_text()}")
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        log.close()


# --- the acts -------------------------------------------------------------------------------------------------------


def act_one(client: toolsd.Client, ready: dict[str, Any]) -> None:
    title("1. A daemon with two sources")
    say("toolsd serve --config workers/python/examples/toolsd.toml")
    say(f"ready: pid {ready['pid']}, {ready['sources']} sources, {ready['tools']} tools, at {ready['address']}")
    by_source: dict[str, list[str]] = {}
    for tool in client.tools():
        by_source.setdefault(tool.source, []).append(tool.name)
    for source, names in by_source.items():
        say(f"{source:6} ", (", ".join(names), "cyan"))
    check(set(by_source) == {"files", "notes"}, "the daemon serves the two example sources")
    check(sum(map(len, by_source.values())) == ready["tools"], "the ready line counted the tools")


def act_two(client: toolsd.Client, ready: dict[str, Any]) -> dict[str, int]:
    title("2. A model streams five calls: interleaved, ids late, names in pieces")
    chunks = [json.loads(line) for line in (EXAMPLES / "five_calls.jsonl").read_text().splitlines()]
    turn = client.turn()
    for number, chunk in enumerate(chunks):
        turn.feed(chunk)
        for delta in chunk["choices"][0]["delta"].get("tool_calls", ()):
            function = delta.get("function", {})
            pieces = {"id": delta.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
            shown = "  ".join(f"{key} {value!r}" for key, value in pieces.items() if value)
            say(f"chunk {number:2}  ", (f"call {delta['index']}  ", "bold"), shown)
    began = time.perf_counter()
    results = turn.finish()
    took = time.perf_counter() - began
    output.say()
    say(f"{len(chunks)} chunks became {len(results)} calls, and those of one source one batch:")
    for batch in turn.batches:
        calls = ", ".join(str(index) for index in batch.indexes)
        say(
            f"{batch.source:6} got calls {calls} as one batch in worker pid {batch.pid}, ",
            (f"{batch.elapsed * 1000:.1f} ms", "bold"),
        )
    say(f"the whole turn took {took * 1000:.1f} ms; results in the model's order:")
    output.say()
    for result in results:
        tell(result)

    wanted = ["find_files", "save_note", "search_text", "read_note", "send_email"]
    check([result.tool for result in results] == wanted, "the results are in the model's order")
    ids = ["call_find", "call_note", "call_grep", "call_read", "call_mail"]
    check([result.id for result in results] == ids, "each result has the id of its call")
    check([result.ok for result in results] == [True, True, True, False, False], "three calls ended well, two did not")
    check("notes.py" in results[0].content, "the searcher found the file of the notebook")
    check(all("source.tool" in match["text"] for match in results[2].content), "the searcher found the decorators")
    check(error_of(results[3]) == "tool_error" and "groceries" in results[3].text, "one slot has a tool's own error")
    check(error_of(results[4]) == "unknown_tool", "one slot names an unknown tool")
    batches = {batch.source: batch for batch in turn.batches}
    check(len(turn.batches) == 2, "each source got one batch")
    check(tuple(batches["files"].indexes) == (0, 2) and tuple(batches["notes"].indexes) == (1, 3), "with all its calls")
    pids = {source: batch.pid for source, batch in batches.items()}
    check(len({*pids.values(), os.getpid(), ready["pid"]}) == 4, "each source has a process of its own")
    family = {child.pid for child in psutil.Process(ready["pid"]).children(recursive=True)}
    check({pid for pid in pids.values() if pid} <= family, "the workers are children of the daemon")
    return {source: pid for source, pid in pids.items() if pid is not None}


def act_three(client: toolsd.Client, pids: dict[str, int]) -> None:
    title("3. A worker dies in the middle of a turn")
    victim = pids["files"]
    killed_at = 0.0

    def kill_it(said: Any) -> None:
        nonlocal killed_at
        if said.tool == "wait_for_file" and isinstance(said.report, Progress) and not killed_at:
            say(f'wait_for_file says: "{said.report.message}"')
            killed_at = time.perf_counter()
            os.kill(victim, signal.SIGKILL)
            say(("$ ", "dim"), (f"kill -9 {victim}", "bold"))

    calls = [
        ("find_files", {"pattern": "*.toml"}),
        ("wait_for_file", {"path": "build/done", "seconds": 60}),
        ("search_text", {"pattern": "never reached"}),
        ("find_notes", {"words": "examples"}),
    ]
    say(f"four calls: three for files (pid {victim}), where the second one waits, and one for notes")
    try:
        client.run(calls, on_report=kill_it)
    except toolsd.TurnFailed as error:
        failed = error
    else:
        raise Untrue("the turn failed")
    took = time.perf_counter() - killed_at
    evidence = failed.evidence
    say(("turn failed ", "red"), f"{took * 1000:.1f} ms after the kill: ", (failed.code, "bold"))
    for line in textwrap.wrap(failed.message, WIDTH - 6):
        say(f"  {line}")
    check(killed_at > 0, "the kill came while the turn ran")
    check(isinstance(failed, toolsd.WorkerCrashed) and failed.code == "worker_crashed", "the failure is a crash")
    check(
        evidence is not None and evidence.signal == "SIGKILL" and evidence.pid == victim, "by SIGKILL, of that worker"
    )
    check(failed.failure.source == "files", "the failure names the source")
    assert evidence is not None
    say(f"  signal {evidence.signal}, pid {evidence.pid}, out of memory: {evidence.oom or 'no sign of it'}")
    say("  what is known of each call (the ledger):")
    for entry in failed.ledger:
        say(f"    {entry.index}  {entry.tool:14} ", (entry.state, "bold"))
    states = {entry.tool: entry.state for entry in failed.ledger}
    check(states["find_files"] == "finished", "the ledger has the call before as finished")
    check(states["wait_for_file"] == "started", "the ledger has the running call as started")
    check(states["search_text"] == "sent", "the ledger has the call after as sent, never started")
    check(states["find_notes"] in ("finished", "started", "sent"), "the ledger has the call of the other source")
    check(failed.retry == "idempotent_only", "the failure says that sending it again could run something twice")
    say("  so it is safe to send again only if running a call twice does no harm")


def act_four(client: toolsd.Client, pids: dict[str, int]) -> None:
    title("4. The next turn")
    turn = client.turn()
    for index, (tool, arguments) in enumerate(
        [("find_notes", {"words": "examples"}), ("find_files", {"pattern": "*.py"})]
    ):
        function = {"name": tool, "arguments": json.dumps(arguments)}
        turn.observe([{"index": index, "id": f"call_{index}", "function": function}])
    began = time.perf_counter()
    results = turn.finish("tool_calls")
    took = time.perf_counter() - began
    for result in results:
        tell(result)
    now = {batch.source: batch.pid for batch in turn.batches}
    check([result.ok for result in results] == [True, True], "the next turn succeeds")
    check(now["files"] != pids["files"], "files has a new worker")
    check(now["notes"] == pids["notes"], "the worker of notes was not touched")
    check([note["title"] for note in results[0].content] == ["examples"], "the note of turn 1 is still there")
    say(
        f"{took * 1000:.1f} ms: files has a new worker (pid {now['files']}), "
        f"notes kept its own (pid {now['notes']}) and its note"
    )


def act_five(process: subprocess.Popen[str], home: Path) -> None:
    title("5. The end")
    family = psutil.Process(process.pid).children(recursive=True)
    say(("$ ", "dim"), ("toolsd stop", "bold"))
    stopped = subprocess.run(
        [*TOOLSD, "stop"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(home)},
        timeout=PATIENCE,
    )
    say(stopped.stdout.strip() or stopped.stderr.strip())
    check(stopped.returncode == 0, "toolsd stop stops the daemon")
    check(process.wait(PATIENCE) == 0, "the daemon ends with status 0")
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    check(not alive, "no worker outlives the daemon")
    check(not list((home / "toolsd").iterdir()), "no socket is left behind")
    say("the daemon is gone, and so are its workers and its socket")


def error_of(result: toolsd.Result) -> str | None:
    return result.error.code if result.error is not None else None


def tell(result: toolsd.Result) -> None:
    """One result on one line."""
    verdict = ("ok   ", "green") if result.ok else ("error", "red")
    line = " ".join(result.text.split())
    room = max(20, WIDTH - 38)
    say(
        f"{result.index}  {result.tool:12} {result.id or '':10} ",
        verdict,
        "  " + (line if len(line) <= room else line[: room - 3] + "..."),
    )


def main() -> int:
    output.prepare_streams()
    home = Path(tempfile.mkdtemp(prefix="toolsd-demo-"))
    try:
        with daemon(home) as (process, ready), toolsd.connect(ready["address"]) as client:
            act_one(client, ready)
            pids = act_two(client, ready)
            act_three(client, pids)
            act_four(client, pids)
            act_five(process, home)
    except Untrue as untrue:
        output.complain(f"the demo failed. This did not hold: {untrue}")
        return 1
    except (toolsd.ToolsdError, subprocess.TimeoutExpired) as error:
        output.complain(f"the demo failed: {error}")
        return 1
    except KeyboardInterrupt:
        output.complain("interrupted")
        return 130
    finally:
        shutil.rmtree(home, ignore_errors=True)
    output.say()
    output.styled(("All of it happened", "bold green"), f": {checked} facts checked.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
