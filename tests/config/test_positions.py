"""Lines of keys: every key that tomllib knows has the line it is written on."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolsd.config.positions import positions

TRICKY = '''# a comment with [brackets] = and "quotes"
top = """
several [lines]
x = 1
"""  # after

[a.b]
"quoted key" = '# not a comment'
c.d = [ 1, # one
  { e = 2, f = [
    3] },
]

[[list]]
name = "first \\" quote"
[list.inner]
x = 1979-05-27 07:32:00
[[list]]
name = \'\'\'it''s\'\'\'

["x.y"]
z = { p = { q = 1 } }
'''


def test_tricky_layout() -> None:
    lines = positions(TRICKY)
    assert lines[("top",)] == 2
    assert lines[("a", "b")] == 7
    assert lines[("a", "b", "quoted key")] == 8
    assert lines[("a", "b", "c", "d")] == 9
    assert lines[("a", "b", "c", "d", 1, "e")] == 10
    assert lines[("a", "b", "c", "d", 1, "f", 0)] == 11
    assert lines[("list", 0, "name")] == 15
    assert lines[("list", 0, "inner", "x")] == 17
    assert lines[("list", 1, "name")] == 19
    assert lines[("x.y", "z", "p", "q")] == 22


def paths(value: Any, at: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    found = {at} if at else set()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found |= paths(inner, (*at, key))
    return found


def test_every_key_of_the_tricky_document_has_a_line() -> None:
    assert paths(tomllib.loads(TRICKY)) <= positions(TRICKY).keys() | {("a",)}


keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=6)
scalars = st.one_of(
    st.integers(-5, 5).map(str),
    st.sampled_from(["true", "1.5", "'#]'", '"a\\"]"', '"""x\ny"""', "'''a'\n#'''", '""']),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n # c ]\n" + ",\n".join(items) + "\n]"),
        st.dictionaries(keys, inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{quoted(key)} = {value}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)


def quoted(key: str) -> str:
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(keys, st.dictionaries(keys, values, max_size=3), max_size=3))
def test_generated_documents(tables: dict[str, dict[str, str]]) -> None:
    rows: list[str] = []
    expected: dict[tuple[str | int, ...], int] = {}
    for table, pairs in tables.items():
        rows.append(f"[{quoted(table)}]")
        expected[(table,)] = sum(row.count("\n") + 1 for row in rows)
        for key, value in pairs.items():
            expected[(table, key)] = sum(row.count("\n") + 1 for row in rows) + 1
            rows.append(f"{quoted(key)} = {value}")
    text = "\n".join(rows)
    lines = positions(text)
    assert paths(tomllib.loads(text)) <= lines.keys()
    assert {path: lines[path] for path in expected} == expected
