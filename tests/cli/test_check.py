"""`toolsd check`: every mistake with file, line and key, in the configuration and in the sources behind it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from .conftest import EXAMPLES, Running, Toolsd, appeared

GOOD = "import toolsd\nsource = toolsd.Source('s')\n@source.tool\ndef {tool}() -> int:\n    return 1\n"


def write(tmp_path: Path, sources: dict[str, str], more: str = "") -> Path:
    """A configuration with one source for each file; its `path` stands on lines 3, 6, 9, ..."""
    rows = []
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
        rows.append(f'[source.{name}]\nkind = "python"\npath = "{name}.py"\n')
    file = tmp_path / "toolsd.toml"
    file.write_text("".join(rows) + more)
    return file


def test_the_examples_are_good(toolsd: Toolsd) -> None:
    checked = toolsd("check", "-c", EXAMPLES / "toolsd.toml")
    assert (checked.status, checked.err) == (0, "")
    rows = [line.split(maxsplit=2) for line in checked.out.splitlines()]
    assert ["source.files.start", "eager", "[source.files], line 14"] in rows
    assert ["source.notes.batch_timeout", "1m", "[defaults], line 6"] in rows
    assert ["source.notes.replicas", "1", "default"] in rows
    assert "files: ok, find_files, search_text, read_file, wait_for_file" in checked.out
    assert checked.out.endswith("toolsd.toml is good\n")


def test_mistakes_of_the_file(toolsd: Toolsd, tmp_path: Path) -> None:
    file = write(tmp_path, {}, "[source.a]\nkind = 'python'\npath = 'a.py'\nreplcas = 2\nbatch_timeout = 5\n")
    wrong = toolsd("check", "-c", file)
    assert (wrong.status, wrong.out) == (78, "")
    assert f'{file}:4: source.a.replcas: is not known in this version\n    did you mean "replicas"?' in wrong.err
    assert f"{file}:5: source.a.batch_timeout: 5 has no unit" in wrong.err
    document = toolsd("check", "-c", file, "--json")
    assert document.status == 78
    assert document.json == {
        "ok": False,
        "file": str(file),
        "mistakes": [
            {
                "line": 4,
                "key": "source.a.replcas",
                "message": "is not known in this version",
                "hint": 'did you mean "replicas"?',
            },
            {
                "line": 5,
                "key": "source.a.batch_timeout",
                "message": "5 has no unit",
                "hint": 'write "5s" for seconds; units are ms, s, m, h, d',
            },
        ],
        "sources": [],
        "settings": [],
        "offers": {},
    }


def test_mistakes_of_the_sources(toolsd: Toolsd, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "good": GOOD.format(tool="one"),
            "broken": "import nothere",
            "exits": "import sys; sys.exit(3)",
            "hangs": "import time; time.sleep(1000)",
            "empty": "x = 1",
            "syntax": "def f(:",
            "same": GOOD.format(tool="one"),
        },
        '[source.gone]\nkind = "python"\npath = "gone.py"\n[defaults]\nstart_timeout = "2s"\n',
    )
    checked = toolsd("check", "-c", file, "--json")
    assert checked.status == 78
    document = checked.json
    assert document.keys() == {"ok", "file", "mistakes", "sources", "settings", "offers"}
    assert {source["name"]: source["ok"] for source in document["sources"]} == {
        "good": True, "broken": False, "exits": False, "hangs": False, "empty": False, "syntax": False,
        "same": False, "gone": False,
    }  # fmt: skip
    assert document["sources"][0] == {"name": "good", "ok": True, "tools": ["one"], "detail": None}
    told = {mistake["key"].split(".")[1]: (mistake["line"], mistake["message"]) for mistake in document["mistakes"]}
    for name, line, word in (
        ("broken", 6, "nothere"),
        ("exits", 9, "sys.exit(3)"),
        ("hangs", 12, "not ready within 2 s"),
        ("empty", 15, "no tools"),
        ("syntax", 18, "SyntaxError"),
        ("same", 21, "'good' already has"),
        ("gone", 24, "does not exist"),
    ):
        assert told[name][0] == line and word in told[name][1], told[name]
    detail = {source["name"]: source["detail"] for source in document["sources"]}
    assert f'{tmp_path / "hangs.py"}", line 1' in detail["hangs"]


def test_mistakes_of_the_sources_as_text(toolsd: Toolsd, tmp_path: Path) -> None:
    file = write(tmp_path, {"good": GOOD.format(tool="one"), "broken": "import nothere"})
    checked = toolsd("check", "-c", file)
    assert checked.status == 78
    assert f"{file}:6: source.broken.path: " in checked.err.replace("\n", " ")
    assert checked.err.endswith("toolsd: 1 source of 2 cannot be used (-v shows tracebacks)\n")
    assert "good: ok, one" in checked.out


@pytest.mark.parametrize("verb", ["check", "serve"])
def test_no_configuration(toolsd: Toolsd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.chdir(tmp_path)
    missing = toolsd(verb)
    assert missing.status == 78 and "no configuration found" in missing.err and "--config" in missing.err


def test_an_mcp_file_is_recognised(toolsd: Toolsd, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"git": {"command": "uvx"}}}')
    refused = toolsd("check", "-c", file)
    assert refused.status == 78 and "MCP sources come with the MCP runtime" in refused.err


def test_secrets_are_not_shown(toolsd: Toolsd, tmp_path: Path) -> None:
    file = write(tmp_path, {"a": GOOD.format(tool="a")}, 'env = { API_TOKEN = { from_env = "T" } }\n')
    for arguments in ([], ["--json"], ["-v"]):
        shown = toolsd("check", "-c", file, *arguments, T="hunter2")
        assert shown.status == 0 and "hunter2" not in shown.out + shown.err
        assert "(from environment variable T)" in shown.out
    assert toolsd("check", "-c", file).status == 78


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_its_workers(
    start: Callable[..., Running], tmp_path: Path, number: int, status: int
) -> None:
    (tmp_path / "out").mkdir()
    hangs = (
        f"import os, time\nopen({str(tmp_path / 'out' / 'started')!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n"
    )
    checking = start("check", "-c", write(tmp_path, {"hangs": hangs}, 'permissions.write = ["out"]\n'))
    worker = int(appeared(tmp_path / "out" / "started"))
    checking.signal(number)
    ended = checking.end()
    assert (ended.status, ended.out, ended.err) == (status, "", "toolsd: interrupted\n")
    assert not psutil.pid_exists(worker)
