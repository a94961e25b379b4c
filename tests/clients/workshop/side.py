"""A source that runs its calls at the same time: each can wait for others, in this source or another."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import toolsd

source = toolsd.Source("side", scheduling="concurrent")


@source.tool
async def step(directory: str, number: int, text: str) -> str:
    """Be number `number` to finish of all calls that share the directory."""
    place = Path(directory)
    while number and not (place / str(number - 1)).exists():
        await asyncio.sleep(0.001)
    (place / str(number)).touch()
    return text


@source.tool
async def wait_for(ready: str, release: str) -> str:
    """As `hold`, in a way that can be cancelled."""
    Path(ready).touch()
    while not os.path.exists(release):
        await asyncio.sleep(0.002)
    return "released"


@source.tool
async def side_echo(text: str) -> str:
    """Give the text back."""
    return text
