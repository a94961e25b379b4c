"""What the SDK tests share: a provider on a loopback port, and a client with a coordinator of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import toolsd

from .server import Provider

WORKSHOP = Path(__file__).parent / "workshop"


@pytest.fixture(scope="package")
def client() -> Iterator[toolsd.Client]:
    with toolsd.local(WORKSHOP / "toolsd.toml") as made:
        yield made


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    running = Provider()
    yield running
    running.close()
