"""The import rules of pyproject.toml hold: who may use what, and that `core` does no input or output."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import toolsd

SOURCE = Path(toolsd.__file__).parent


def imports(file: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


FILES = sorted([*SOURCE.rglob("*.py"), *SOURCE.parents[1].glob("workers/**/*.py")])


@pytest.mark.parametrize(
    ("package", "keepers"),
    [
        ("zmq", {"transport.py"}),
        ("msgpack", {"codec.py"}),
        ("rich", {"cli/output.py"}),
        ("subprocess", {"processes.py"}),
    ],
)
def test_gatekeepers(package: str, keepers: set[str]) -> None:
    users = {file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py") if package in imports(file)}
    assert users <= keepers


def test_core_is_pure() -> None:
    allowed = {"__future__", "collections", "dataclasses", "enum", "heapq", "itertools", "math", "msgspec", "toolsd"}
    allowed |= {"typing", "functools", "operator", "difflib", "hashlib", "abc", "types", "bisect"}
    for file in (SOURCE / "core").glob("*.py"):
        assert imports(file) <= allowed, file.name


def test_no_pickle_and_no_eval() -> None:
    for file in FILES:
        assert not {"pickle", "marshal", "shelve"} & imports(file), file


def test_every_package_is_packaged() -> None:
    root = SOURCE.parents[1]
    named = set(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    src = {str(file.parent.relative_to(root / "src")).replace("/", ".") for file in SOURCE.rglob("__init__.py")}
    workers = {file.parent.relative_to(root / "workers") for file in (root / "workers").rglob("__init__.py")}
    assert named == src | {".".join(("toolsd_workers", *path.parts)) for path in workers}


def test_public_names_are_there() -> None:
    for name in toolsd.__all__:
        assert getattr(toolsd, name) is not None
    assert set(toolsd.__all__) <= set(dir(toolsd))
    assert not hasattr(toolsd, "no_such_name")


def test_module_docstrings() -> None:
    bare = [str(file) for file in FILES if file.stat().st_size and not ast.get_docstring(ast.parse(file.read_text()))]
    assert not bare


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "toolsd", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"toolsd {toolsd.__version__}\n"
