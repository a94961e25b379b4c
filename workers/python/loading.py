"""From a file or a module name to the source and the tools in it.

Owns the import of foreign code and what is told of its failure. Must not know batches.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import toolsd
from toolsd.errors import ToolsdError, UsageError
from toolsd.host import SourceLoadError
from toolsd.source import MARK, Source, Tool

# Where our own code lies: what is no place of the author's. Their files may be under any folder, also one named toolsd.
_OURS = os.path.dirname(toolsd.__file__) + os.sep
_HERE = os.path.dirname(__file__)
_ADVICE = "declare one: source = toolsd.Source('name'), then @source.tool above each function"


class Found(NamedTuple):
    """What a module holds: at most one source, and tools by name, the source's first."""

    source: Source | None
    tools: dict[str, Tool]


def load(path: str, directory: str) -> Found:
    """Import `path` (an absolute file, or a dotted module name seen from `directory`) and find what it declares.

    Raises:
        SourceLoadError: it is missing, does not import, or declares no tools or two sources.
    """
    if path.endswith(".py") or "/" in path:
        return _found(_import_file(path), path)
    _make_importable(directory)
    return _found(_run(lambda: importlib.import_module(path), path), path)


def found_in(declared: Source | Callable[..., Any]) -> Found:
    """What a source, or a function under `@toolsd.tool`, holds. Raises UsageError if it is neither."""
    if isinstance(declared, Source):
        return Found(declared, dict(declared.tools))
    single = getattr(declared, MARK, None)
    if isinstance(single, Tool):
        return Found(None, {single.name: single})
    raise UsageError(f"{declared!r} is no Source, no function declared with @toolsd.tool, and no path")


def explain(error: BaseException, doing: str) -> SourceLoadError:
    """An exception of the author's code as the text its author needs: what, and the line of theirs it came from."""
    if isinstance(error, SystemExit):
        what = f"it called sys.exit({'' if error.code is None else repr(error.code)})"
    else:
        what = "".join(traceback.format_exception_only(error)).strip()
        if isinstance(error, ToolsdError):
            what = str(error)
    return SourceLoadError(f"{doing}: {what}{_place(error)}")


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its own text names the line
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", _OURS)) and os.path.dirname(frame.filename) != _HERE
    ]
    if not frames:
        return ""
    last = frames[-1]
    return (
        f"\n  {last.filename}:{last.lineno}: {last.line or linecache.getline(last.filename, last.lineno or 0).strip()}"
    )


def _import_file(path: str) -> ModuleType:
    if os.path.isdir(path):
        raise SourceLoadError(f"{path} is a folder; name the Python file in it that declares the source")
    if not os.path.exists(path):
        raise SourceLoadError(f"{path} does not exist")
    _make_importable(os.path.dirname(path))
    stem = os.path.basename(path).removesuffix(".py")
    name = stem if stem.isidentifier() and stem not in sys.modules else f"toolsd_source_{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SourceLoadError(f"{path} is no Python file; its name ends with .py")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        _run(lambda: loader.exec_module(module), path)
    except SourceLoadError:
        sys.modules.pop(name, None)
        raise
    return module


def _make_importable(directory: str) -> None:
    """Modules beside the source can be imported; they hide installed packages, never the standard library."""
    if directory in sys.path:
        return
    installed = [at for at, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages"))]
    sys.path.insert(installed[0] if installed else len(sys.path), directory)


def _run(action: Any, path: str) -> Any:
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (path == error.name or path.startswith(error.name + ".")):
            raise SourceLoadError(f"there is no module {path} (searched: {', '.join(sys.path)})") from None
        raise explain(error, f"{path} does not import") from error
    except BaseException as error:
        raise explain(error, f"{path} does not import") from error


def _found(module: ModuleType, path: str) -> Found:
    # By their types, and statically: a lazy proxy in the module must not be woken by looking at it.
    held = vars(module).items()
    sources = {id(value): (name, value) for name, value in held if issubclass(type(value), Source)}
    if len(sources) > 1:
        names = " and ".join(f"{name} = Source({source.name!r})" for name, source in sources.values())
        raise SourceLoadError(f"{path} has {len(sources)} sources: {names}; a file has one, give each its own")
    source = next(iter(sources.values()))[1] if sources else None
    tools: dict[str, Tool] = dict(source.tools) if source is not None else {}
    for _, value in held:
        single = inspect.getattr_static(value, MARK, None) if callable(value) else None
        if not isinstance(single, Tool) or tools.get(single.name) is single:
            continue
        if single.name in tools:
            raise SourceLoadError(f"{path} has two tools called {single.name}; names are unique")
        tools[single.name] = single
    if not tools:
        what = f"source {source.name!r} has no tools" if source is not None else "it declares no source and no tools"
        raise SourceLoadError(f"{path}: {what}; {_ADVICE}")
    return Found(source, tools)
