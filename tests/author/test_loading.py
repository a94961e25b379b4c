"""From a file or module to a source: what is found, and what is told of each way it can go wrong."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toolsd_workers.python import make_host

import toolsd
from toolsd import testing
from toolsd.host import SourceLoadError
from toolsd.launch import Launch, ToolSettings

NOTES = """
    from __future__ import annotations
    import toolsd
    from dataclasses import dataclass

    source = toolsd.Source("notes")

    @source.tool
    def add(note: Note) -> str:
        return note.text

    @dataclass
    class Note:  # after its use: hints are read when the module is whole
        text: str
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes a file; what its import leaves behind is undone."""
    path, modules = list(sys.path), set(sys.modules)

    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def refused(path: Path | str, **settings: Any) -> str:
    with pytest.raises(SourceLoadError) as error:
        make_host(Launch("python", str(path), str(Path(path).parent), **settings)).load()
    return str(error.value)


def test_a_file_is_loaded_with_its_neighbours(write: Write) -> None:
    write("neighbour.py", "WORD = 'beside'")
    file = write("notes.py", NOTES + "\n    import neighbour\n    source.tool(name='word')(lambda: neighbour.WORD)\n")
    results = testing.run(file, [("add", {"note": {"text": "milk"}}), "word"])
    assert [result.content for result in results] == ["milk", "beside"]


def test_a_file_may_have_the_name_of_an_imported_module(write: Write) -> None:
    assert testing.run(write("json.py", NOTES), [("add", {"note": {"text": "a"}})])[0].ok
    assert sys.modules["json"].__name__ == "json"


def test_a_dotted_module_is_found_from_the_configurations_folder(write: Write) -> None:
    write("package_of_tools/__init__.py", "")
    file = write("package_of_tools/notes.py", NOTES)
    host = make_host(Launch("python", "package_of_tools.notes", str(file.parent.parent)))
    assert [spec.name for spec in host.load().tools] == ["add"]


def test_single_tools_and_a_source_may_share_a_file(write: Write) -> None:
    file = write(
        "both.py",
        """
        import toolsd

        @toolsd.tool
        def single() -> int: return 1

        source = toolsd.Source("s")
        again = source

        @source.tool
        async def own() -> int: return 2
        """,
    )
    with testing.Harness(file) as harness:
        assert list(harness.tools) == ["own", "single"]
        assert [result.content for result in harness.run(["single", "own"])] == [1, 2]


def test_looking_for_tools_wakes_no_lazy_object(write: Write) -> None:
    text = (
        NOTES
        + """
    class Lazy:
        def __getattribute__(self, name): raise RuntimeError("woken")
        def __call__(self): ...

    lazy = Lazy()
    """
    )
    with testing.Harness(write("lazy.py", text)) as harness:
        assert list(harness.tools) == ["add"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_that_name", ["No module named 'nothing_of_that_name'", ":1: import nothing"]),
        ("x = 1\nraise ValueError('no key set')", ["ValueError: no key set", ":2: raise ValueError"]),
        ("def broken(:", ["SyntaxError", "line 1", "def broken(:"]),
        ("import sys\nsys.exit('bye')", ["sys.exit('bye')", ":2: sys.exit"]),
        ("import sys\nsys.exit()", ["sys.exit()"]),
        ("x = 1", ["no source and no tools", "@source.tool"]),
        ("import toolsd\ns = toolsd.Source('empty')", ["source 'empty' has no tools"]),
        (
            "import toolsd\na = toolsd.Source('x')\nb = toolsd.Source('y')",
            ["2 sources", "a = Source('x')", "b = Source('y')"],
        ),
        (
            "import toolsd\ns = toolsd.Source('s')\n@s.tool\ndef f(*a): ...",
            ["f (", "*a cannot be described", ":3: @s.tool"],
        ),
        (
            "import toolsd\ns = toolsd.Source('s')\n@s.tool\ndef f(a: 'Nope'): ...",
            ["name 'Nope' is not defined", "TYPE_CHECKING"],
        ),
        (
            "import toolsd\ns = toolsd.Source('s')\n@s.tool\ndef f(): ...\n@toolsd.tool(name='f')\ndef g(): ...",
            ["two tools called f"],
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_explained_to_its_author(write: Write, text: str, words: list[str]) -> None:
    file = write("broken.py", text)
    said = refused(file)
    assert str(file) in said
    if "does not import" in said:
        assert "broken" not in sys.modules
    for word in words:
        assert word in said


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.py") == f"{tmp_path / 'none.py'} does not exist"
    assert "is a folder" in refused(f"{tmp_path}/")
    assert "there is no module no.such.module" in refused("no.such.module")


def test_a_package_that_lacks_what_it_imports_is_not_called_missing(write: Write) -> None:
    write("lacking/__init__.py", "import nothing_of_that_name")
    file = write("lacking/tools.py", "")
    with pytest.raises(SourceLoadError, match="No module named 'nothing_of_that_name'"):
        make_host(Launch("python", "lacking.tools", str(file.parent.parent))).load()


def test_settings_for_tools_and_options_that_do_not_exist_are_refused(write: Write) -> None:
    file = write("notes.py", NOTES)
    assert "settings for ad; the source has: add" in refused(file, tools={"ad": ToolSettings(timeout=1)})
    assert "no options; given: speed" in refused(file, options={"speed": 1})


# --- hooks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hooks_run_once_in_order_and_close_backwards(asynchronous: bool) -> None:
    source = toolsd.Source("s")
    log: list[str] = []

    @source.tool
    def now() -> list[str]:
        return log

    @source.on_start
    def first() -> None:
        log.append("first")

    if asynchronous:

        @source.on_start
        async def second() -> None:
            await asyncio.sleep(0)
            log.append("second")

        @source.on_close
        async def last() -> None:
            await asyncio.sleep(0)
            log.append("last")
    else:
        source.on_start(lambda: log.append("second"))
        source.on_close(lambda: log.append("last"))

    @source.on_close
    def close() -> None:
        log.append("close")

    with testing.Harness(source) as harness:
        assert harness.call("now").content == ["first", "second"]
        assert harness.call("now").content == ["first", "second"]
    assert log == ["first", "second", "close", "last"]


@pytest.mark.parametrize("error", [OSError("no database"), SystemExit(4)])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_start_hook_that_fails_is_named(error: BaseException, asynchronous: bool) -> None:
    source = toolsd.Source("s")
    source.tool(name="t")(lambda: None)

    def connect() -> None:
        raise error

    async def connect_later() -> None:
        raise error

    source.on_start(connect_later if asynchronous else connect)
    with pytest.raises(SourceLoadError, match=r"on_start hook .*connect.* failed") as failed, testing.Harness(source):
        pass
    assert f"{__file__}:" in str(failed.value)


def test_a_plain_hook_that_gives_an_awaitable_is_not_forgotten() -> None:
    async def connect() -> None: ...

    source = toolsd.Source("s")
    source.tool(name="t")(lambda: None)
    coroutine = connect()
    source.on_start(lambda: coroutine)
    with pytest.raises(SourceLoadError, match="async def"), testing.Harness(source):
        pass
    coroutine.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_close_hook_that_fails_keeps_no_other_from_running(
    asynchronous: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    source = toolsd.Source("s", scheduling="concurrent" if asynchronous else "sequential")
    source.tool(name="t")(lambda: None)
    ran = []
    source.on_close(lambda: ran.append("first"))

    @source.on_close
    def broken() -> None:
        raise OSError("gone")

    with testing.Harness(source):
        pass
    assert ran == ["first"]
    assert "broken failed" in capsys.readouterr().err


def test_the_place_is_named_wherever_the_source_lies(tmp_path: Path) -> None:
    folder = tmp_path / "toolsd" / "examples"
    folder.mkdir(parents=True)
    file = folder / "broken.py"
    file.write_text("import toolsd\n\nraise ValueError('no')\n")
    with pytest.raises(SourceLoadError, match=r"broken\.py:3: raise ValueError"):
        make_host(Launch(kind="python", path=str(file), directory=str(folder))).load()
