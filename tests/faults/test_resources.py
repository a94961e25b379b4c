"""What a machine runs out of: descriptors, disk. It is said where it was needed, and survived."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import toolsd
from clients.conftest import alive, eventually

from .conftest import Open

CODE = """
source = toolsd.Source("grabs")
grabbed = []


@source.tool
def pid() -> int:
    return os.getpid()


@source.tool
def descriptors() -> int:
    try:
        while True:
            grabbed.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for fd in grabbed:
            os.close(fd)
        grabbed.clear()


@source.tool
def fill(name: str) -> int:
    with open(name, "wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))


@source.tool
def free(name: str) -> None:
    os.remove(name)
"""
SOURCES = {"grabs": (CODE, "restart = { backoff = '10ms..50ms', max = 1000 }\nlimits = { open_files = 64 }")}


def test_a_worker_without_descriptors_has_an_error_in_that_slot(house: Open) -> None:
    one = house(SOURCES)
    with one.client() as client:
        pid = client.call("pid").content
        results = client.run([("descriptors", {}), ("pid", {})])
        assert [result.ok for result in results] == [False, True]
        assert "Too many open files" in results[0].text
        assert client.call("pid").content == pid


def test_a_daemon_without_descriptors_refuses_newcomers_and_serves_who_is_there(house: Open) -> None:
    """A crowd of connections ends neither the daemon nor what its workers need; room that is free again is used."""
    one = house(SOURCES, under=("prlimit", "--nofile=120:120"))
    with one.client() as client:
        pid = client.call("pid").content
        crowd: list[toolsd.Client] = []
        try:
            with pytest.raises(toolsd.CoordinatorUnreachable, match="descriptor"):
                while len(crowd) < 200:
                    crowd.append(toolsd.connect(one.address))
                    crowd[-1].open()
            assert len(crowd) > 10
            os.kill(pid, 9)
            eventually(
                lambda: [w["pid"] for w in client.ps()["sources"][0]["workers"]] not in ([None], [pid]), "another"
            )
            assert client.call("pid").content != pid
        finally:
            for member in crowd:
                member.close()

        def welcome() -> bool:
            with contextlib.suppress(toolsd.CoordinatorUnreachable), one.client() as another:
                return bool(another.call("pid").ok)
            return False

        eventually(welcome, "there is room again")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 1 MiB."""
    with TemporaryDirectory(prefix="t-") as directory:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200,mode=700", "tmpfs", directory],
            check=False,
            capture_output=True,
        )
        if made.returncode:
            pytest.skip("this user cannot mount a disk that can be full")
        yield Path(directory)
        subprocess.run(["umount", "-l", directory], check=True)


def test_a_full_disk_below_runtime_and_scratch_is_named_and_survived(house: Open, small_disk: Path) -> None:
    """A tool that writes has its error; a worker that cannot be started says why; freed, all is well."""
    one = house(SOURCES, env={"XDG_RUNTIME_DIR": str(small_disk)})
    ballast = small_disk / "ballast"
    with one.client() as client:
        pid = client.call("pid").content
        full = client.call("fill", {"name": "big"})
        assert not full.ok and "No space left" in full.text
        assert client.call("pid").content == pid
        client.call("free", {"name": "big"})
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        names = 0
        with contextlib.suppress(OSError):
            while True:
                (small_disk / f"n{names}").touch()
                names += 1
        assert client.call("pid").content == pid  # who is there needs no disk
        os.kill(pid, 9)
        eventually(lambda: not alive(pid), "it died")
        eventually(lambda: "No space left" in one.said(), "the log says why")
        for file_name in [ballast, *small_disk.glob("n*")]:
            file_name.unlink()

        def serves() -> bool:
            with contextlib.suppress(toolsd.TurnFailed):
                return client.call("pid").content != pid
            return False

        eventually(serves, "a new worker serves")


def test_the_wall_clock_decides_nothing() -> None:
    """Clocks are set and jump; only people's figures, log lines and the age of leftovers may use one that does."""
    package = Path(toolsd.__file__).parent
    users = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"\btime\.time\(|\btime_ns\(|datetime\.now|\butcnow\(", file.read_text())
    }
    assert users <= {"node.py", "runtime.py", "telemetry/logs.py"}, users
