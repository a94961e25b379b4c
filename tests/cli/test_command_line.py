"""Verbs, options and the one way out: usage errors, broken pipes, interrupts, full disks."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

from toolsd.cli.app import VERBS

from .conftest import COMMAND, Toolsd


def test_help_lists_every_verb_and_every_verb_has_help(toolsd: Toolsd) -> None:
    listed = toolsd("--help")
    assert listed.status == 0
    for verb in VERBS:
        assert verb in listed.out
        assert toolsd(verb, "--help").status == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sreve"], "did you mean 'serve'"),
        (["frobnicate"], "there are check, serve"),
        (["--bogus"], "--bogus"),
        (["assemble"], "FILE"),
        (["assemble", "--format", "morse", "-"], "openai-chat"),
        (["completion"], "bash"),
        (["completion", "tcsh"], "bash"),
    ],
)
def test_a_wrong_command_line_is_usage(toolsd: Toolsd, arguments: list[str], said: str) -> None:
    wrong = toolsd(*arguments)
    assert (wrong.status, wrong.out) == (2, "")
    assert said in wrong.err and "hint:" in wrong.err


def test_no_verb_shows_the_help(toolsd: Toolsd) -> None:
    shown = toolsd()
    assert shown.status == 2 and "serve" in shown.err


def test_version(toolsd: Toolsd) -> None:
    assert toolsd("--version").out.startswith("toolsd 0.")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(toolsd: Toolsd, shell: str) -> None:
    assert "_TOOLSD_COMPLETE" in toolsd("completion", shell).out


def test_completion_completes(toolsd: Toolsd) -> None:
    found = toolsd(_TOOLSD_COMPLETE="bash_complete", COMP_WORDS="toolsd as", COMP_CWORD="1")
    assert found.out.split() == ["plain,assemble"]


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "completion", "bash"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "toolsd: No space left on device\n"


def test_a_reader_that_leaves_is_no_error_to_talk_about() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, "completion", "bash"],
            check=False,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_while_stdin_is_read(number: int, status: int) -> None:
    running = subprocess.Popen(
        [*COMMAND, "assemble", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdin is not None
    # More than a pipe holds: once all of it is written, the program is past its start and reading.
    running.stdin.write('{"choices": []}\n' * 10_000)
    running.stdin.flush()
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (status, "")
    assert "Traceback" not in err


def test_errors_are_json_too(toolsd: Toolsd) -> None:
    failed = toolsd("assemble", "/nowhere", "--json")
    assert failed.status == 2
    assert json.loads(failed.out) == {
        "ok": False,
        "error": {"code": "usage", "message": "/nowhere cannot be read: No such file or directory", "hint": None},
    }


def test_a_terminal_that_knows_few_letters(toolsd: Toolsd) -> None:
    shown = toolsd("assemble", "/\u2603", PYTHONIOENCODING="ascii")
    assert (shown.status, shown.err) == (2, "toolsd: /\\u2603 cannot be read: No such file or directory\n")


def test_no_output_at_all() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$0" -m toolsd completion bash >&-', sys.executable], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_only_on_a_terminal_and_not_with_no_color(no_color: str, coloured: bool) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        done = subprocess.run(
            [*COMMAND, "assemble", "/nowhere"], check=False, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)
        shown = terminal.read(10_000).decode()
    assert done.returncode == 2 and "/nowhere cannot be read" in shown
    assert ("\x1b[" in shown) is coloured
