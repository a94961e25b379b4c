"""Bugs of toolsd itself, made on purpose: logged, told to whom they concern, survived where the core can be trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import toolsd
from clients.conftest import WORKSHOP, Gate
from toolsd import Client, CoordinatorLost, TurnFailed
from toolsd.core import events
from toolsd.core.coordinator import Coordinator
from toolsd.errors import InternalError

Break = Callable[[Callable[[Any], bool]], None]


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Have the core raise at the first event that fits."""

    def when(fits: Callable[[Any], bool]) -> None:
        real = Coordinator.handle
        done: list[Any] = []

        def handle(self: Coordinator, event: Any, now: float) -> Any:
            if not done and fits(event):
                done.append(event)
                raise InternalError("it cannot be. Its last events:\n  0.1 told here")
            return real(self, event, now)

        monkeypatch.setattr(Coordinator, "handle", handle)

    return when


@pytest.fixture
def embedded() -> Iterator[Client]:
    with toolsd.local(WORKSHOP / "toolsd.toml") as client:
        client.tools()
        yield client


def test_a_bug_in_a_turn_fails_that_turn(embedded: Client, breaking: Break, caplog: pytest.LogCaptureFixture) -> None:
    breaking(lambda event: isinstance(event, events.TurnSubmitted))
    with pytest.raises(TurnFailed) as caught:
        embedded.call("echo", {"text": "x"})
    assert caught.value.code == "internal_error"
    assert any("told here" in record.getMessage() for record in caplog.records if record.levelno == logging.ERROR)
    assert embedded.call("echo", {"text": "on"}).text == "on"


def test_a_bug_with_a_worker_costs_that_worker(embedded: Client, breaking: Break) -> None:
    before = embedded.call("where").content
    breaking(lambda event: isinstance(event, events.BatchFinished))
    with pytest.raises(TurnFailed) as caught:
        embedded.call("echo", {"text": "x"})
    assert caught.value.code == "protocol_violation"
    assert embedded.call("where").content != before


def test_a_bug_that_concerns_nobody_ends_the_service(embedded: Client, breaking: Break, gate: Gate) -> None:
    breaking(lambda event: isinstance(event, events.TimePassed))
    with pytest.raises(CoordinatorLost):
        embedded.call("wait_for", gate.arguments, deadline=0.1)
