"""Libraries built by the tests, served by a real coordinator in this process."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from toolsd_workers.native import INCLUDE

import toolsd

HERE = Path(__file__).parent
EXAMPLES = Path(INCLUDE) / "examples"
Build = Callable[..., Path]
Serve = Callable[..., toolsd.Client]


@pytest.fixture(scope="session")
def build() -> Iterator[Build]:
    """Compile a file, or text, into a library: `build(file, *flags)` gives the library's path."""
    with tempfile.TemporaryDirectory(prefix="n-") as folder:
        built: dict[tuple[str, ...], Path] = {}

        def make(source: Path | str, *flags: str, language: str = "c") -> Path:
            compiler = {"c": "cc", "cpp": "c++", "rs": "rustc"}[language]
            if shutil.which(compiler) is None:
                pytest.skip(f"no {compiler} on this machine")
            key = (str(source), *flags)
            if key not in built:
                own = Path(folder) / str(len(built))
                own.mkdir()
                if isinstance(source, str):
                    (own / f"source.{language}").write_text(source)
                    source = own / f"source.{language}"
                built[key] = own / f"{source.stem}.so"
                how = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-infinite-recursion", "-I", INCLUDE]
                if language == "rs":
                    how = ["--edition", "2021", "--crate-type", "cdylib", "-D", "warnings"]
                subprocess.run([compiler, *how, *flags, "-o", built[key], source], check=True, cwd=own)
            return built[key]

        yield make


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a library: `serve(library, more_of_its_table)` gives a client."""
    with contextlib.ExitStack() as stack:

        def start(library: Path, table: str = "") -> toolsd.Client:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n-")))
            (folder / "toolsd.toml").write_text(f'[source.native]\nkind = "native"\npath = "{library}"\n{table}')
            return stack.enter_context(toolsd.local(folder / "toolsd.toml"))

        yield start


@pytest.fixture
def odd(build: Build, serve: Serve) -> toolsd.Client:
    """Serves every way in which native code goes wrong."""
    return serve(build(HERE / "odd.c"))
