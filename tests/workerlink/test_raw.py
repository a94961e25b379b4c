"""A worker in plain JavaScript that knows nothing of toolsd but the protocol, through a real coordinator."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import toolsd_workers

import toolsd

EXAMPLE = Path(toolsd_workers.__path__[0]) / "raw" / "examples" / "toolsd.toml"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def client():
    with toolsd.local(EXAMPLE) as made:
        yield made


def until(test):
    end = time.monotonic() + 20
    while not test():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_calls_return_in_order_with_errors_in_their_slots(client):
    calls = [
        ("upper", {"text": "hi"}),
        ("upper", {"text": 5}),
        ("count", {"text": "to be or not to be"}),
        ("upper", {}),
        ("upper", {"text": "é" * 100_000}),
    ]
    results = client.run(calls)
    assert [result.ok for result in results] == [True, False, True, False, True]
    assert results[0].text == "HI"
    assert results[1].error.code == "arguments_invalid"
    assert results[2].content == {"to": 2, "be": 2, "or": 1, "not": 1}
    assert results[3].error.code == "arguments_invalid"
    assert results[4].text == "É" * 100_000


def test_it_is_asked_to_stop_and_does(client):
    pid = client.ps()["sources"][0]["workers"][0]["pid"]
    turn = client.turn()
    turn.observe([{"index": 0, "id": "a", "function": {"name": "wait", "arguments": '{"seconds": 600}'}}])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(turn.finish)
        until(lambda: client.ps()["turns"])
        assert turn.cancel() == "stopped"
        assert isinstance(waiting.exception(), toolsd.TurnCancelled)
    assert client.ps()["sources"][0]["workers"][0]["pid"] == pid


def test_a_program_that_is_not_there_is_named(tmp_path):
    (tmp_path / "toolsd.toml").write_text('[source.gone]\nkind = "worker"\ncommand = ["./gone"]\n')
    with pytest.raises(toolsd.ConfigError, match=r"no program '\./gone'"), toolsd.local(tmp_path / "toolsd.toml"):
        pass


def test_a_program_that_cannot_be_executed_says_so(tmp_path):
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    (tmp_path / "toolsd.toml").write_text(
        '[source.broken]\nkind = "worker"\ncommand = ["./broken"]\nstart = "eager"\nrequired = true\nrestart.max = 0\n'
    )
    with pytest.raises(toolsd.ToolsdError, match=r"cannot execute .*/broken: Exec format error"):
        toolsd.local(tmp_path / "toolsd.toml").__enter__()
