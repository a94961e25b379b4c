"""For all tests: a runtime directory and a temp directory of their own, and a check that nothing is left behind.

The check runs once, after the last test: no process that the suite started may be alive, and no file or socket may
lie in its directories.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

# The machine that runs the tests is shared and slow at times: how long a single example takes proves nothing.
# No database of examples: the checkout may belong to somebody else, and the blob that is printed does the same.
settings.register_profile("toolsd", deadline=None, print_blob=True, database=None)
settings.load_profile("toolsd")

# Long enough for every bounded shutdown in the product, short enough to notice a leak.
_GRACE = 10.0
_pytest_files = tempfile.gettempdir()
# Short, because socket paths below it have at most 107 bytes.
_home = Path(tempfile.mkdtemp(prefix="tt-"))


def pytest_configure(config: pytest.Config) -> None:
    """Before any test module is imported: what they start must inherit these."""
    for name in ("run", "tmp"):
        (_home / name).mkdir(mode=0o700)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = _pytest_files
    os.environ["XDG_RUNTIME_DIR"] = str(_home / "run")
    os.environ["TMPDIR"] = tempfile.tempdir = str(_home / "tmp")
    os.environ["XDG_CONFIG_HOME"] = str(_home / "no-config")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        os.environ.pop(name, None)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Every process, socket and temp file of the suite is gone at its end."""
    yield
    until = time.monotonic() + _GRACE
    pause = 0.02
    while (left := _processes() + _files()) and time.monotonic() < until:
        time.sleep(pause)  # a condition with a deadline: the system reports no "everything is gone"
        pause = min(pause * 2, 0.5)
    if left:
        pytest.fail("the suite left behind:\n  " + "\n  ".join(left), pytrace=False)


def _processes() -> list[str]:
    me = psutil.Process()
    ours = {child.pid: child for child in me.children(recursive=True)}
    for process in psutil.process_iter():
        if process.pid not in ours and process.pid != me.pid and _belongs(process):
            ours[process.pid] = process
    return [f"process {pid}: {_describe(process)}" for pid, process in sorted(ours.items())]


def _belongs(process: psutil.Process) -> bool:
    """Whether a process that is no child any more was started by the suite: it names our directory somewhere."""
    mark = os.fsencode(_home)
    for name in ("environ", "cmdline"):
        try:
            if mark in Path(f"/proc/{process.pid}/{name}").read_bytes():
                return True
        except OSError:
            continue
    try:
        return os.readlink(f"/proc/{process.pid}/cwd").startswith(str(_home))
    except OSError:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{' '.join(process.cmdline())[:200]} (parent {process.ppid()}, {process.status()})"
    except psutil.Error:
        return "going"


def _files() -> list[str]:
    return [f"file {path}" for name in ("run", "tmp") for path in sorted((_home / name).rglob("*")) if path != _toolsd]


# The runtime directory itself stays; what is in it does not.
_toolsd = _home / "run" / "toolsd"
