"""The loops that the README shows, run as they stand there, with the real SDKs and real workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import test_anthropic, test_openai_chat
from .server import PATIENCE, Provider, sse

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCK = re.compile(r"^```(?:python|toml)\n(# (\S+)\n.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {name: text for text, name in BLOCK.findall(README)}
RESULT = '{"city":"Oslo","sky":["sun","sun","sun"]}'


def run(folder: Path, name: str, provider: Provider) -> str:
    """What the program prints. It sees the provider where it would see the real one."""
    for file, text in FILES.items():
        (folder / file).write_text(text)
    service = re.match(r"ask_(\w+)\.py", name)
    assert service is not None
    access = {f"{service[1].upper()}_{what}": value for what, value in (("BASE_URL", provider.url), ("API_KEY", "k"))}
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder, env=os.environ | access, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["ask_openai.py", "ask_anthropic.py"])
def test_a_loop_has_less_than_15_lines(name: str) -> None:
    _, *code = FILES[name].splitlines()  # the first line is the name of the file
    assert len(code) < 15


def test_openai(tmp_path: Path, provider: Provider) -> None:
    pytest.importorskip("openai")
    make = test_openai_chat
    calls = [make.call(0, "call_a", "forecast", '{"city": "Oslo"}')]
    provider.will_say(sse([make.chunk({"tool_calls": calls}), make.chunk({}, "tool_calls")], done=True))
    provider.will_say(sse(make.said("It is sunny."), done=True))
    assert run(tmp_path, "ask_openai.py", provider) == "It is sunny."
    assert provider.requests[0].body["tools"][0]["function"]["name"] == "forecast"
    assert provider.requests[1].body["messages"][2] == {"role": "tool", "tool_call_id": "call_a", "content": RESULT}


def test_anthropic_(tmp_path: Path, provider: Provider) -> None:
    pytest.importorskip("anthropic")
    make = test_anthropic
    first = [make.start(), *make.tool(0, "toolu_a", "forecast", '{"city":', ' "Oslo"}'), *make.end("tool_use")]
    provider.will_say(sse(first, named=True))
    second = [make.start(), *make.text(0, "It is ", "sunny."), *make.end("end_turn")]
    provider.will_say(sse(second, named=True))
    assert run(tmp_path, "ask_anthropic.py", provider) == "It is sunny."
    assert provider.requests[0].body["tools"][0]["name"] == "forecast"
    assert provider.requests[1].body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_a", "content": RESULT}
    ]
