"""A notebook in SQLite: its connection is opened once and lives as long as the worker, across turns.

Notes are kept in the file `NOTES_DB`; without it they are in memory and end with the worker.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Annotated, Any, TypedDict

from msgspec import Meta

import toolsd

source = toolsd.Source("notes")

Title = Annotated[str, Meta(min_length=1, max_length=200, description="The note's title; each title is there once.")]


class Note(TypedDict):
    title: str
    text: str
    tags: list[str]
    changed: str


class Notebook:
    """Owns the database. `close` loses nothing: every change is committed at once."""

    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS note (title TEXT PRIMARY KEY, text TEXT NOT NULL, tags TEXT NOT NULL, "
            "changed TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )

    def query(self, sql: str, *values: Any) -> list[Note]:
        return [
            {"title": row["title"], "text": row["text"], "tags": row["tags"].split(), "changed": row["changed"]}
            for row in self._db.execute(sql, values)
        ]

    def change(self, sql: str, *values: Any) -> int:
        """Run a change; returns how many notes it touched."""
        return self._db.execute(sql, values).rowcount

    def close(self) -> None:
        self._db.close()


notebook: Notebook


@source.on_start
def open_notebook() -> None:
    global notebook
    notebook = Notebook(os.environ.get("NOTES_DB") or ":memory:")


@source.on_close
def close_notebook() -> None:
    notebook.close()


@source.tool
def save_note(title: Title, text: str, tags: list[str] | None = None) -> str:
    """Write a note; one with the same title is replaced.

    Args:
        text: The note itself.
        tags: Single words to find it by.
    """
    words = " ".join(word for tag in tags or () for word in tag.split())
    known = notebook.query("SELECT * FROM note WHERE title = ?", title)
    notebook.change("REPLACE INTO note (title, text, tags) VALUES (?, ?, ?)", title, text, words)
    return f"{'replaced' if known else 'saved'} {title!r}"


@source.tool
def read_note(title: Title) -> Note:
    """Read one note."""
    found = notebook.query("SELECT * FROM note WHERE title = ?", title)
    if not found:
        titles = ", ".join(repr(note["title"]) for note in notebook.query("SELECT * FROM note LIMIT 10"))
        raise toolsd.ToolError(
            f"there is no note {title!r}; " + (f"there are {titles}" if titles else "the notebook is empty")
        )
    return found[0]


@source.tool
def find_notes(words: str = "", limit: Annotated[int, Meta(ge=1, le=100)] = 20) -> list[Note]:
    """Find notes, newest first.

    Args:
        words: Every one of these words must be in the title, the text or the tags. Empty finds all notes.
        limit: How many notes at most.
    """
    terms = words.split()
    where = " AND ".join(["title || ' ' || text || ' ' || tags LIKE ? ESCAPE '!'"] * len(terms)) or "1"
    patterns = [f"%{term.replace('!', '!!').replace('%', '!%').replace('_', '!_')}%" for term in terms]
    return notebook.query(
        f"SELECT * FROM note WHERE {where} ORDER BY changed DESC, rowid DESC LIMIT ?", *patterns, limit
    )


@source.tool
def delete_note(title: Title) -> str:
    """Delete one note."""
    if not notebook.change("DELETE FROM note WHERE title = ?", title):
        raise toolsd.ToolError(f"there is no note {title!r}")
    return f"deleted {title!r}"
