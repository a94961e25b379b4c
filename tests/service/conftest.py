"""Fixtures of the service tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.conftest import client, daemon, gate, own_daemon

__all__ = ["client", "daemon", "gate", "own_daemon", "short_dir"]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a path short enough for sockets, whatever the test is called."""
    path = Path(tempfile.mkdtemp(prefix="td-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
