"""What importing costs, by what it pulls in: a source file pays for no client, `toolsd` alone for next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_LIST = "import {module}, json, sys; print(json.dumps(sorted(sys.modules)))"


def imported(module: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _LIST.format(module=module)], check=True, capture_output=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("module", "budget", "forbidden"),
    [
        ("toolsd", 25, {"asyncio", "zmq", "msgspec", "msgpack", "click", "rich", "psutil"}),
        ("toolsd.cli", 25, {"asyncio", "zmq", "msgspec", "click", "rich", "psutil"}),
        ("toolsd.cli.app", 160, {"asyncio", "zmq", "rich", "psutil"}),
        ("toolsd.cli.assemble", 190, {"asyncio", "zmq", "rich", "psutil"}),
        ("toolsd.streams", 120, {"asyncio", "zmq", "click", "rich", "psutil"}),
        (
            "toolsd.core.coordinator",
            100,
            {"asyncio", "zmq", "click", "rich", "psutil", "logging", "socket", "subprocess"},
        ),
        ("toolsd.config", 160, {"asyncio", "zmq", "click", "rich", "psutil"}),
        ("toolsd.source", 200, {"asyncio", "zmq", "click", "rich", "psutil", "pydantic"}),
        ("toolsd.worker", 330, {"click", "rich", "psutil", "pydantic"}),
    ],
)
def test_budget(module: str, budget: int, forbidden: set[str]) -> None:
    bare = imported("sys")
    added = imported(module) - bare
    assert not forbidden & added
    assert len(added) <= budget, f"{module} imports {len(added)} modules: {', '.join(sorted(added))}"
