"""The README keeps its word: its files are written, its commands are run, and what it shows is what comes out."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolsd import config
from toolsd.cli.app import VERBS

from .conftest import Running, Toolsd

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with every file that the README shows."""
    for block in (*blocks("python"), *blocks("toml")):
        name = re.match(r"# (\S+)\n", block)
        if name is not None:
            (tmp_path / name[1]).write_text(block)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_sixty_seconds(folder: Path, toolsd: Toolsd, tmp_path: Path) -> None:
    serving: Running | None = None
    ran = 0
    try:
        for block in blocks("console"):
            for command, shown in re.findall(r"^\$ toolsd (.*)\n((?:[^$\n].*\n)*)", block, re.MULTILINE):
                ran += 1
                if command == "serve &":
                    serving = Running("serve")
                    assert serving.line().startswith("toolsd")
                    continue
                done = toolsd(*shlex.split(command))
                assert done.status == 0, (command, done)
                assert not shown or done.out == shown
    finally:
        if serving is not None:
            serving.close()
    assert ran == 7


def test_programs(folder: Path) -> None:
    for name, shown in (
        ("ask.py", '0 forecast True {"city":"Oslo","sky":["sun","sun","sun"]}\n1 forecast False nobody knows'),
        ("ask_async.py", 'forecast {"city":"Oslo"'),
    ):
        done = subprocess.run([sys.executable, name], check=True, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith(shown), done.stdout
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_weather.py"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip


def test_the_configuration_it_shows_has_no_mistakes(tmp_path: Path) -> None:
    (shown,) = (block for block in blocks("toml") if "[daemon]" in block)
    (tmp_path / "toolsd.toml").write_text(shown)
    (tmp_path / "key").write_text("secret")
    (tmp_path / "key").chmod(0o600)
    loaded = config.load(tmp_path / "toolsd.toml", {"NOTES_TOKEN": "x"})
    assert len(loaded.sources) == 1
    # What it shows as [defaults] are the defaults.
    bare = '[source.notes]\nkind = "python"\npath = "notes.py"\n'
    (tmp_path / "bare.toml").write_text(bare)
    plain = {setting.key: setting.value for setting in config.load(tmp_path / "bare.toml", {}).settings}
    for setting in loaded.settings:
        if setting.origin in ("[defaults]", "[daemon]"):
            assert plain[setting.key] == setting.value, setting.key
    everything = tomllib.loads(shown)["defaults"]
    assert {key.split(".")[2] for key in plain if key.startswith("source.notes.")} == everything.keys() | {
        "kind", "path", "required", "affinity",
    }  # fmt: skip


def test_every_verb_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `toolsd (\w+)", README, re.MULTILINE)) == set(VERBS)
