"""The example sources, as an author would test them: in memory, with the kit that toolsd ships."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolsd import testing

from .conftest import EXAMPLES


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[testing.Harness]:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("import os\n\ndef main() -> None:\n    print('héllo')\n")
    (root / "notes.txt").write_text("".join(f"line {number}\n" for number in range(1, 6)))
    (root / "binary").write_bytes(b"main\0" * 10)
    (root / ".git").mkdir()
    (root / ".git" / "main.py").write_text("def main")
    (tmp_path / "secret.txt").write_text("hunter2")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setenv("FILES_ROOT", str(root))
    with testing.Harness(EXAMPLES / "files.py") as harness:
        yield harness


def test_find(files: testing.Harness) -> None:
    assert files.call("find_files", pattern="*.py").content == ["src/main.py"]
    assert files.call("find_files", pattern="src/*").content == ["src/main.py"]
    assert files.call("find_files", pattern="*").content == ["binary", "notes.txt", "src/main.py"]
    assert files.call("find_files", pattern="*", limit=1).content == ["binary"]


def test_search(files: testing.Harness) -> None:
    found = files.call("search_text", pattern=r"def \w+")
    assert found.content == [{"path": "src/main.py", "line": 3, "text": "def main() -> None:"}]
    assert files.call("search_text", pattern="line", limit=2).content[1]["line"] == 2
    assert files.call("search_text", pattern="main", files="*.txt").content == []
    wrong = files.call("search_text", pattern="(")
    assert not wrong.ok and "regular expression" in wrong.text


def test_read(files: testing.Harness) -> None:
    assert files.call("read_file", path="notes.txt", first=2, lines=2).content == "line 2\nline 3"
    assert "No such file" in files.call("read_file", path="gone").text
    assert not files.call("read_file", path="src").ok


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "src/../../secret.txt", "link.txt"])
def test_nothing_outside_the_folder(files: testing.Harness, path: str) -> None:
    for tool in ("read_file", "wait_for_file"):
        refused = files.call(tool, path=path)
        assert not refused.ok and "outside the served folder" in refused.text and "hunter2" not in refused.text


def test_wait(files: testing.Harness) -> None:
    assert files.call("wait_for_file", path="notes.txt").content == "notes.txt is there, 35 bytes"
    late = files.call("wait_for_file", path="never", seconds=0.01)
    assert late.text == "never did not appear within 0.01 s"
    assert files.progress[0][0].message == "waiting for never"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[testing.Harness]:
    monkeypatch.setenv("NOTES_DB", str(tmp_path / "notes.db"))
    with testing.Harness(EXAMPLES / "notes.py") as harness:
        yield harness


def test_notes_live_across_turns_and_workers(notes: testing.Harness, tmp_path: Path) -> None:
    assert notes.call("save_note", title="milk", text="buy 2 l", tags=["shop", "to do"]).text == "saved 'milk'"
    assert notes.call("save_note", title="milk", text="buy 3 l", tags=["shop"]).text == "replaced 'milk'"
    read = notes.call("read_note", title="milk").content
    assert (read["text"], read["tags"]) == ("buy 3 l", ["shop"])
    with testing.Harness(EXAMPLES / "notes.py") as another:
        assert another.call("read_note", title="milk").content == read


def test_finding_notes(notes: testing.Harness) -> None:
    for title, text in (("a", "100% sure"), ("b", "100 apples"), ("c", "under_score"), ("d", "underxscore")):
        notes.call("save_note", title=title, text=text)

    def found(words: str, limit: int = 20) -> list[str]:
        return [note["title"] for note in notes.call("find_notes", words=words, limit=limit).content]

    assert sorted(found("")) == ["a", "b", "c", "d"]
    assert found("100%") == ["a"]
    assert found("100 apples") == ["b"]
    assert found("under_score") == ["c"]
    assert len(found("", limit=2)) == 2


def test_what_is_not_there(notes: testing.Harness) -> None:
    assert notes.call("read_note", title="x").text == "there is no note 'x'; the notebook is empty"
    notes.call("save_note", title="milk", text="")
    assert notes.call("read_note", title="x").text == "there is no note 'x'; there are 'milk'"
    assert notes.call("delete_note", title="milk").ok
    assert not notes.call("delete_note", title="milk").ok
    misfit = notes.call("save_note", title="", text="x")
    assert not misfit.ok and "title" in misfit.text
