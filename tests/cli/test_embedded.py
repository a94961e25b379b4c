"""Verbs with `--config`: a coordinator for one command, and nothing left of it afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from .conftest import COMMAND, EXAMPLES, WORKSHOP, Running, Toolsd, appeared

CONFIG = ("-c", EXAMPLES / "toolsd.toml")
# Real recorded streams, where the checkout lies beside them.
RECORDED = Path(__file__).parents[3] / "shared" / "streams" / "recorded.jsonl"


def test_call_and_tools(toolsd: Toolsd) -> None:
    found = toolsd("call", *CONFIG, "find_files", '{"pattern": "*.toml"}')
    assert found == (0, '["toolsd.toml"]\n', "")
    assert len(toolsd("tools", *CONFIG, "--json").json) == 8


def test_the_recorded_five_calls(toolsd: Toolsd) -> None:
    played = toolsd("turn", *CONFIG, EXAMPLES / "five_calls.jsonl", "--json")
    assert played.status == 1
    turn = played.json
    assert [(result["index"], result["id"], result["tool"], result["ok"]) for result in turn["results"]] == [
        (0, "call_find", "find_files", True),
        (1, "call_note", "save_note", True),
        (2, "call_grep", "search_text", True),
        (3, "call_read", "read_note", False),
        (4, "call_mail", "send_email", False),
    ]
    assert {batch["source"]: batch["calls"] for batch in turn["batches"]} == {"files": [0, 2], "notes": [1, 3]}


@pytest.mark.parametrize("descriptors", [16, 20, 22])
def test_too_few_descriptors_are_an_error_and_no_hang(descriptors: int) -> None:
    """A start that fails half-way leaves sockets open, for which the context's end must not wait."""
    limited = [
        "sh",
        "-c",
        f'ulimit -n {descriptors}; exec "$@"',
        "sh",
        *COMMAND,
        "call",
        *map(str, CONFIG),
        "find_files",
    ]
    ended = subprocess.run(limited, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "Too many open files" in ended.stderr


def test_mistakes_of_the_configuration(toolsd: Toolsd, tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[source.a]\nknid = 1\n")
    wrong = toolsd("call", "-c", file, "x")
    assert wrong.status == 78 and f"{file}:2: source.a.knid" in wrong.err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_takes_the_workers_along(
    start: Callable[..., Running], tmp_path: Path, number: int, status: int
) -> None:
    (tmp_path / "shop.py").write_text(WORKSHOP)
    (tmp_path / "out").mkdir()
    (tmp_path / "t.toml").write_text('[source.shop]\nkind = "python"\npath = "shop.py"\npermissions.write = ["out"]\n')
    arguments = json.dumps({"started": str(tmp_path / "out" / "started"), "until": str(tmp_path / "out" / "never")})
    calling = start("call", "-c", tmp_path / "t.toml", "hold", arguments)
    worker = int(appeared(tmp_path / "out" / "started"))
    calling.signal(number)
    assert calling.end().status == status
    assert not psutil.pid_exists(worker)


@pytest.mark.skipif(not RECORDED.exists(), reason="no recorded streams lie beside this checkout")
def test_recorded_streams_of_real_providers(toolsd: Toolsd, tmp_path: Path) -> None:
    """Each one plays against a source that declares its tools, and every call gets exactly its arguments."""
    cases = [case for case in map(json.loads, RECORDED.read_text().splitlines()) if case["format"] == "openai-chat"]
    assert cases
    for case in cases:
        (tmp_path / "echo.py").write_text(echoing(case["expect"]["calls"]))
        (tmp_path / "t.toml").write_text('[source.echo]\nkind = "python"\npath = "echo.py"\n')
        played = toolsd("turn", "-c", tmp_path / "t.toml", RECORDED, "--case", case["id"], "--json")
        assert played.status == 0, (case["id"], played)
        results = played.json["results"]
        assert [result["tool"] for result in results] == [call["name"] for call in case["expect"]["calls"]]
        assert [result["content"] for result in results] == [call["parsed"] for call in case["expect"]["calls"]]


def echoing(calls: list[dict[str, Any]]) -> str:
    """A source with the tools of `calls`; each gives back the arguments it was called with."""
    names: dict[str, set[str]] = {}
    for call in calls:
        names.setdefault(call["name"], set()).update(call["parsed"])
    text = "from typing import Any\nimport toolsd\nsource = toolsd.Source('echo')\nNONE = object()\n"
    for number, (name, keys) in enumerate(names.items()):
        parameters = ", ".join(f"{key}: Any = '(not given)'" for key in sorted(keys))
        given = ", ".join(f"{key!r}: {key}" for key in sorted(keys))
        text += (
            f"\n@source.tool(name={name!r})\ndef tool_{number}({parameters}) -> dict:\n"
            f"    return {{key: value for key, value in {{{given}}}.items() if value != '(not given)'}}\n"
        )
    return text
