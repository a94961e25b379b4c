"""Where a coordinator lives: what is accepted, what is refused and never deleted, and who may be second."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolsd import runtime
from toolsd.errors import AlreadyRunning, ConfigError, UsageError
from toolsd.runtime import Place


@pytest.fixture
def base(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    yield short_dir
    leftovers = [p for p in short_dir.rglob("*") if p.name.startswith("run-") or p.suffix == ".lock"]
    assert not leftovers


def test_the_directory_is_made_for_its_user_alone(base: Path) -> None:
    made = runtime.directory()
    assert made == base / "toolsd"
    assert made.stat().st_mode & 0o777 == 0o700
    assert runtime.directory() == made


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_without_a_valid_setting_the_directory_is_below_tmp(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert runtime.directory() == Path(f"/tmp/toolsd-{os.getuid()}")


def test_a_symlink_a_file_and_an_open_directory_are_refused(base: Path) -> None:
    path = base / "toolsd"
    target = base / "elsewhere"
    target.mkdir(mode=0o700)
    path.symlink_to(target)
    with pytest.raises(ConfigError, match="symbolic link"):
        runtime.directory()
    path.unlink()
    path.touch()
    with pytest.raises(ConfigError, match="not a directory"):
        runtime.directory()
    path.unlink()
    path.mkdir()
    path.chmod(0o750)
    with pytest.raises(ConfigError, match="0750, 0700 is needed"):
        runtime.directory()


def test_another_users_directory_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = runtime.directory()
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to uid"):
        runtime.directory()


def test_a_missing_base_names_the_variable(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / "absent"))
    with pytest.raises(ConfigError, match="cannot be made") as caught:
        runtime.directory()
    assert "XDG_RUNTIME_DIR" in str(caught.value)


def test_a_path_too_long_for_a_socket_says_how_long(base: Path) -> None:
    fits = "/" + "x" * (runtime.PATH_MAX - 1)
    assert runtime.socket_path(fits) == Path(fits)
    with pytest.raises(ConfigError, match="108 bytes and the kernel allows 107"):
        runtime.socket_path(fits + "x")
    with pytest.raises(ConfigError, match=r"allows 107"):
        runtime.socket_path("ipc:///" + "ä" * 54)


def test_a_runtime_directory_too_long_for_worker_sockets_is_refused(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = base / ("y" * 60)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(ConfigError, match="too long"):
        Place.private()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "", "ipc://"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        runtime.socket_path(address)


def test_the_second_claim_names_the_first(base: Path) -> None:
    with Place.claim() as place:
        assert place.path == base / "toolsd" / "toolsd.sock"
        assert place.work.is_dir()
        with pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}\)"):
            Place.claim()
    with Place.claim():
        pass


def test_a_stale_socket_of_ours_is_replaced(base: Path) -> None:
    path = runtime.directory() / runtime.SOCKET_NAME
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    with Place.claim() as place:
        assert not place.path.exists()


def test_a_file_that_is_not_a_socket_stays(base: Path) -> None:
    path = base / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="not a socket"):
        Place.claim(str(path))
    assert path.read_text() == "mine"


def test_a_socket_somebody_listens_on_stays(base: Path) -> None:
    path = base / "other.sock"
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(path))
        alive.listen()
        with pytest.raises(ConfigError, match="another program listens"):
            Place.claim(str(path))
        assert path.is_socket()


def test_another_users_socket_stays(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.directory()
    path = base / "s"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    real = os.getuid()
    calls = iter([real + 1])
    monkeypatch.setattr(os, "getuid", lambda: next(calls, real))
    with pytest.raises(ConfigError, match="belongs to uid"):
        Place.claim(str(path))
    assert path.is_socket()


def test_a_claim_in_a_missing_folder_is_a_config_error(base: Path) -> None:
    with pytest.raises(ConfigError, match="lock file"):
        Place.claim(str(base / "absent" / "s"))


def test_what_a_killed_coordinator_left_is_swept_and_living_ones_stay(
    base: Path,
) -> None:
    script = "import os; from toolsd.runtime import Place; p = Place.private(); print(p.work, flush=True); os._exit(9)"
    dead = Path(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout[:-1])
    assert dead.is_dir()
    with Place.private() as living, Place.private():
        assert living.work.is_dir()
        assert not dead.exists()


def test_absence_is_explained(base: Path) -> None:
    assert "there is no socket" in str(runtime.explain_absence(f"ipc://{base}/none"))
    path = base / "s"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    assert "nobody listens" in str(runtime.explain_absence(f"ipc://{path}"))
    assert "toolsd serve" in str(runtime.explain_absence(f"ipc://{path}"))
