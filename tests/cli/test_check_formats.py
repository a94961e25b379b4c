"""`toolsd check` says what each model provider is not told of the tools."""

from __future__ import annotations

from pathlib import Path

from .conftest import Toolsd
from .test_check import write

SOURCE = """
import toolsd
from typing import Annotated
import msgspec

source = toolsd.Source("s")


@source.tool(name="fs.read")
def read(path: str, count: Annotated[int, msgspec.Meta(multiple_of=2)] = 2) -> int:
    return 1


@source.tool
def plain(text: str) -> str:
    return text
"""


def test_counts_and_details(toolsd: Toolsd, tmp_path: Path) -> None:
    file = write(tmp_path, {"s": SOURCE})
    checked = toolsd("check", "-c", file)
    assert checked.status == 0
    assert "gemini: 1 changed name and 1 cut (--format gemini shows them)\n" in checked.out
    assert "openai-chat: 1 changed name (--format openai-chat shows them)\n" in checked.out
    assert "mcp:" not in checked.out
    shown = toolsd("check", "-c", file, "--format", "gemini", "--format", "mcp").out
    assert "gemini:\n  fs.read: is called fs_read_ib2lya there\n  fs.read: $.count: multipleOf is left out\n" in shown
    assert "mcp: takes everything as it is\n" in shown and "anthropic" not in shown


def test_as_json(toolsd: Toolsd, tmp_path: Path) -> None:
    offers = toolsd("check", "-c", write(tmp_path, {"s": SOURCE}), "--json").json["offers"]
    assert offers["gemini"] == {
        "names": {"fs_read_ib2lya": "fs.read"},
        "cuts": [{"tool": "fs.read", "path": "$.count", "what": "multipleOf is left out"}],
    }
    assert offers["mcp"] == {"names": {}, "cuts": []}
