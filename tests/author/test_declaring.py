"""Declaring sources and tools, and the package's public face."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toolsd


def test_decorators_leave_the_function_as_it_is() -> None:
    source = toolsd.Source("s")

    @source.tool
    def bare(a: int) -> int:
        return a

    @source.tool(name="other", timeout=3, idempotent=True)
    async def named(a: int) -> int:
        return a

    @toolsd.tool
    def single(a: int) -> int:
        return a

    assert bare(1) == single(1) == 1
    assert list(source.tools) == ["bare", "other"]
    assert (source.tools["other"].spec.timeout, source.tools["other"].spec.idempotent) == (3, True)
    assert repr(source) == "Source('s', sequential, tools: bare, other)"


def _twice() -> None:
    source = toolsd.Source("s")
    source.tool(name="a")(lambda: None)
    source.tool(name="a")(lambda: None)


def _generator() -> None:
    @toolsd.tool
    def rows() -> Any:
        yield 1


def _two_batches() -> None:
    source = toolsd.Source("s")
    source.invoke_batch = lambda calls, results: None
    source.invoke_batch(lambda calls, results: None)


class _Shop:
    def buy(self, what: str) -> None: ...


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (_twice, "two tools called a"),
        (_generator, "yields"),
        (_two_batches, "replaced twice"),
        (lambda: toolsd.tool(_Shop().buy), "wrap it in a function"),
        (lambda: toolsd.Source(""), "has a name"),
        (lambda: toolsd.Source("s", scheduling="parallel"), "sequential, concurrent or threads"),  # type: ignore[arg-type]
        (lambda: toolsd.Source("s", max_concurrency=2), "for a concurrent or threads source"),
        (lambda: toolsd.Source("s", scheduling="threads", max_concurrency=0), "above 0"),
        (lambda: toolsd.tool(lambda: None), "'<lambda>' is no tool name"),
        (lambda: toolsd.tool(name="a b")(lambda: None), "'a b' is no tool name"),
        (lambda: toolsd.tool(name="a", timeout=0)(lambda: None), "timeout is 0"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(declare: Any, words: str) -> None:
    with pytest.raises(toolsd.UsageError) as refused:
        declare()
    assert words in str(refused.value)


def test_every_public_name_can_be_imported_and_is_seen_by_type_checkers() -> None:
    typed = Path(toolsd.__file__).read_text().split("if TYPE_CHECKING:")[1]
    for name in toolsd.__all__:
        assert getattr(toolsd, name) is not None
        assert name == "__version__" or f" {name} as {name}" in typed
    assert set(toolsd.__all__) <= set(dir(toolsd))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        toolsd.nothing  # noqa: B018


SOURCE = """
import sys
import toolsd
source = toolsd.Source("s")
@source.tool
def add(text: str, context: toolsd.Context, n: int = 1) -> str:
    "Add a note."
    return text
from toolsd.launch import Launch
from toolsd_workers.python import host_of
class Batch:
    turn, session, deadline, cancelled = "t", None, None, False
    def __init__(self, calls): self.calls = calls
    def started(self, slot): pass
    def finished(self, slot, outcome): assert outcome == b"tx"
from toolsd.host import HostCall
host = host_of(source, Launch("python", "", ""))
host.load()
assert host.run(Batch((HostCall(0, None, "add", '{"text": "x"}'),))) is None
dear = {"zmq", "asyncio", "click", "pydantic", "logging", "docstring_parser", "rich", "psutil"}
print(*sorted(dear & set(sys.modules)))
"""


def test_a_source_of_plain_functions_runs_without_what_it_does_not_need() -> None:
    ran = subprocess.run([sys.executable, "-c", SOURCE], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "", "")
