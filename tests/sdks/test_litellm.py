"""litellm as a gateway to OpenAI's API and to Anthropic's, through whole loops of two rounds.

Whatever it speaks to, its stream and its messages are those of Chat Completions. It runs in a process of its own,
because it leaves event loops behind where it was imported.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from . import test_anthropic, test_openai_chat
from .conftest import WORKSHOP
from .server import PATIENCE, PICTURE, Provider, sse

if importlib.util.find_spec("litellm") is None:
    pytest.skip("litellm is not installed", allow_module_level=True)

LOOP = """
import json, os, sys
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch a list of prices
import litellm, toolsd

model, url, config = sys.argv[1:]
messages = [{"role": "user", "content": "How is the weather?"}]
with toolsd.local(config) as client:
    tools = client.tools("openai-chat")
    ask = {"model": model, "messages": messages, "tools": tools, "api_base": url, "api_key": "k", "max_retries": 0}
    while True:
        turn = client.turn()
        for chunk in litellm.completion(**ask, stream=True):
            turn.feed(chunk)
        if not turn.finish():
            break
        messages += turn.messages()
print(json.dumps(messages[1:]))
"""


def two_rounds(provider: Provider, model: str) -> tuple[list[Any], list[Any]]:
    """What was appended, and the messages of the second request as the server got them."""
    done = subprocess.run(
        [sys.executable, "-c", LOOP, model, provider.url, str(WORKSHOP / "toolsd.toml")],
        capture_output=True, text=True, timeout=2 * PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), provider.requests[1].body["messages"][1:]


def test_openai(provider: Provider) -> None:
    make = test_openai_chat
    calls = [
        make.call(0, "call_a", "forecast", '{"city": "Oslo", "days": 1}'),
        make.call(1, "call_b", PICTURE, '{"city": "Rome"}'),
    ]
    first = [make.chunk({"content": "Let me look."}), make.chunk({"tool_calls": calls}), make.chunk({}, "tool_calls")]
    provider.will_say(sse(first, done=True))
    provider.will_say(sse(make.said("It is sunny."), done=True))
    appended, sent = two_rounds(provider, "openai/gpt-4o")
    assert sent == appended
    assert appended[0]["content"] == "Let me look."
    assert [result["tool_call_id"] for result in appended[1:]] == ["call_a", "call_b"]
    assert appended[1]["content"] == '{"city":"Oslo","sky":["sun"]}'


def test_anthropic_behind_it(provider: Provider) -> None:
    make = test_anthropic
    first = [
        make.start(),
        *make.text(0, "Let me look."),
        *make.tool(1, "toolu_a", "forecast", '{"city": "Oslo", ', '"days": 1}'),
        *make.tool(2, "toolu_b", PICTURE, '{"city": "Rome"}'),
        *make.end("tool_use"),
    ]
    provider.will_say(sse(first, named=True))
    provider.will_say(sse([make.start(), *make.text(0, "It is sunny."), *make.end("end_turn")], named=True))
    appended, sent = two_rounds(provider, "anthropic/claude-sonnet-4-5")
    assert [result["tool_call_id"] for result in appended[1:]] == ["toolu_a", "toolu_b"]
    assert [part["type"] for part in sent[0]["content"]] == ["text", "tool_use", "tool_use"]
    assert [part["tool_use_id"] for part in sent[1]["content"]] == ["toolu_a", "toolu_b"]
