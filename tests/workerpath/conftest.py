"""A fresh node for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from workerbench import Bench, bench

Scenario = Callable[[Bench], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[[Scenario], None]:
    """Run a scenario against a fresh node; everything must be gone afterwards."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            async with bench() as made:
                await asyncio.wait_for(scenario(made), 60)

        asyncio.run(whole())

    return run
