"""A second source whose calls run at the same time, in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import toolsd

source = toolsd.Source("relay", scheduling="concurrent")


@source.tool
async def relay_step(directory: str, number: int, text: str) -> str:
    """As `step`: be number `number` to finish of all calls that share the directory."""
    place = Path(directory)
    while number and not (place / str(number - 1)).exists():
        await asyncio.sleep(0.001)
    (place / str(number)).touch()
    return text
