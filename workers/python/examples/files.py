"""A file searcher: find files by name, search their text, read a part, wait for one to appear.

Serves one folder, `FILES_ROOT` (default: the folder of this file), and never leaves it: a path that would is an error
in that call's slot. Nothing here writes.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

import toolsd

source = toolsd.Source("files")

ROOT = Path(os.environ.get("FILES_ROOT") or Path(__file__).parent).resolve()
# Files above this many bytes, or with a NUL byte near the start, are not searched.
SEARCHED_MAX = 4 * 1024 * 1024
SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", "node_modules"}

Limit = Annotated[int, Meta(ge=1, le=1000, description="How many results at most.")]
Inside = Annotated[str, Meta(description="A path relative to the served folder, such as `src/main.py`.")]


class Match(TypedDict):
    path: str
    line: int
    text: str


@source.tool
def find_files(pattern: str, limit: Limit = 100) -> list[str]:
    """Find files by name.

    Args:
        pattern: A shell pattern for the name (`*.py`) or, with a slash in it, for the whole path (`src/*/test_*.py`).
    """
    found: list[str] = []
    for path in walk(ROOT):
        name = inside(path)
        if fnmatch.fnmatchcase(name if "/" in pattern else path.name, pattern):
            found.append(name)
            if len(found) == limit:
                break
    return found


@source.tool
def search_text(context: toolsd.Context, pattern: str, files: str = "*", limit: Limit = 50) -> list[Match]:
    """Search the text of files line by line.

    Args:
        pattern: A Python regular expression.
        files: Only files whose name matches this shell pattern.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise toolsd.ToolError(f"{pattern!r} is not a regular expression: {error}") from error
    found: list[Match] = []
    for path in walk(ROOT):
        if context.cancelled:
            break
        if not fnmatch.fnmatchcase(path.name, files):
            continue
        for number, line in enumerate(text_of(path).splitlines(), 1):
            if wanted.search(line):
                found.append({"path": inside(path), "line": number, "text": line.strip()[:200]})
                if len(found) == limit:
                    return found
    return found


@source.tool
def read_file(path: Inside, first: Annotated[int, Meta(ge=1)] = 1, lines: Limit = 200) -> str:
    """Read a part of a text file.

    Args:
        first: The first line wanted; lines count from 1.
        lines: How many lines at most.
    """
    file = within_root(path)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise toolsd.ToolError(f"{path} cannot be read: {error.strerror}") from error
    return "\n".join(text.splitlines()[first - 1 : first - 1 + lines])


@source.tool
def wait_for_file(context: toolsd.Context, path: Inside, seconds: Annotated[float, Meta(gt=0, le=600)] = 60) -> str:
    """Wait until a file exists, such as the result of a build.

    Args:
        seconds: How long to wait at most.
    """
    file = within_root(path)
    until = time.monotonic() + seconds
    context.progress(0.0, message=f"waiting for {path}")
    while not file.exists():
        if time.monotonic() > until:
            raise toolsd.ToolError(f"{path} did not appear within {seconds:g} s")
        if context.cancelled:
            raise toolsd.ToolError(f"stopped waiting for {path}")
        time.sleep(0.05)
    return f"{path} is there, {file.stat().st_size} bytes"


def within_root(path: str) -> Path:
    """The file that `path` names, links followed; a ToolError if it is outside the served folder."""
    file = (ROOT / path).resolve()
    if not file.is_relative_to(ROOT):
        raise toolsd.ToolError(f"{path} is outside the served folder; give a path relative to it")
    return file


def inside(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def walk(folder: Path) -> Iterator[Path]:
    """Every regular file below `folder`, sorted, links not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path


def text_of(path: Path) -> str:
    """The text of a file, or nothing if it is not text, too large or unreadable."""
    try:
        if path.stat().st_size > SEARCHED_MAX:
            return ""
        data = path.read_bytes()
    except OSError:
        return ""
    return "" if b"\0" in data[:4096] else data.decode("utf-8", errors="replace")
