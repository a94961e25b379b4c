"""A source that runs its calls one after the other, with tools that misbehave on request."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import toolsd
from toolsd import Context

source = toolsd.Source("bench")
notes: dict[str, str] = {}


@source.tool
def echo(text: str) -> str:
    """Give the text back."""
    return text


@source.tool
def size(text: str) -> int:
    """The length of the text."""
    return len(text)


@source.tool
def fail(text: str) -> str:
    """Raise the tool's own error."""
    raise toolsd.ToolError(text)


@source.tool
def die(status: int = 3) -> str:
    """End the process."""
    os._exit(status)


@source.tool
def hold(ready: str, release: str) -> str:
    """Say that it runs by making the file `ready`, then wait for the file `release`."""
    Path(ready).touch()
    while not os.path.exists(release):
        time.sleep(0.002)
    return "released"


@source.tool
def steps(context: Context, count: int) -> str:
    """Report progress `count` times."""
    for done in range(1, count + 1):
        context.progress(done, count)
    context.info("all done", steps=count)
    context.write("some output")
    return "done"


@source.tool
def where() -> int:
    """The process this source lives in."""
    return os.getpid()


@source.tool
def big(size: int) -> str:
    """A text of `size` characters."""
    return "x" * size


@source.tool
def remember(context: Context, text: str) -> str:
    """Keep a text for this session; gives the one that was kept before."""
    before = notes.get(context.session or "", "")
    notes[context.session or ""] = text
    return before


@source.tool
def stubborn(ready: str, release: str) -> str:
    """As `hold`, but no request to stop reaches it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return hold(ready, release)
