"""From a file to the source in it: loads the library, agrees on an ABI, reads the tools.

Owns what is told when that fails. Must not know batches.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

import msgspec

from toolsd.core.model import ToolSpec
from toolsd.host import SourceLoadError

from . import abi

# A library with more is broken, not rich: its count is garbage.
_TOOLS_MAX = 10_000
_HEADER = "toolsd_source.h (its folder: toolsd include)"


class Loaded(NamedTuple):
    """A library that speaks our ABI. `name` is what it calls itself."""

    library: ctypes.CDLL
    source: abi.Source
    name: str
    tools: tuple[ToolSpec, ...]


def load(path: str) -> Loaded:
    """Load the library and ask it for its source.

    Raises:
        SourceLoadError: it is no library, needs something that is not there, or is built for another ABI.
    """
    library = _open(path)
    try:
        entry = library[abi.ENTRY]
    except AttributeError:
        raise SourceLoadError(
            f"{path} does not export {abi.ENTRY}; define it as {_HEADER} declares it, with TOOLSD_EXPORT in front "
            '(in C++ inside extern "C", in Rust as #[no_mangle] pub extern "C")'
        ) from None
    entry.restype = ctypes.c_void_p
    address, reason = _ask(entry)
    if not address:
        raise SourceLoadError(f"{path} gave no source: {reason or 'it did not say why (toolsd_host.fail can)'}")
    offered = ctypes.c_uint32.from_address(address).value
    if offered != abi.ABI:
        raise SourceLoadError(
            f"{path} is built for ABI {offered} of toolsd_source.h, this toolsd speaks ABI {abi.ABI}: build it again "
            "with the header of this toolsd (its folder: toolsd include)"
        )
    source = abi.Source.from_address(address)
    name = (source.name or b"").decode("utf-8", "replace") or os.path.basename(path)
    if not source.invoke_batch:
        raise SourceLoadError(f"{path}: the source {name!r} has no invoke_batch")
    return Loaded(library, source, name, _tools(path, source))


def _open(path: str) -> ctypes.CDLL:
    if not os.path.exists(path):
        raise SourceLoadError(f"{path} does not exist; build it first, or correct path")
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise SourceLoadError(f"{path} cannot be loaded: {_advice(path, str(error))}") from error


def _advice(path: str, said: str) -> str:
    """What the dynamic linker said, and what to do about it. Its texts are those of glibc and musl (dlopen(3))."""
    if os.path.isdir(path):
        return "it is a folder; name the library in it"
    if "undefined symbol" in said or "symbol not found" in said.lower():
        return f"{said}; link it with the library that defines the symbol (-l...), or export it"
    # For a library of another architecture glibc says that there is no such file.
    if "wrong ELF class" in said or said.startswith(f"{path}: cannot open shared object file: No such file"):
        return f"{said}; it is built for another machine, build it here"
    if "invalid ELF header" in said or "file too short" in said or "not a dynamic" in said.lower():
        return f"{said}; it is no shared library, build one with cc -shared -fPIC"
    if "cannot open shared object file" in said or "Error loading shared library" in said:
        return (
            f"{said}; a library it needs must lie in the system's library folders or beside it (then link with "
            "-Wl,-rpath,'$ORIGIN' and give both a folder of their own), or be granted with permissions.read"
        )
    return said


def _ask(entry: ctypes._NamedFuncPointer) -> tuple[int, str]:
    """The address of the source's struct (0: none), and what it said."""
    said: list[str] = []

    def fail(_host: object, message: bytes | None) -> None:
        said.append((message or b"").decode("utf-8", "replace"))

    host = abi.HostVersions(abi.ABI, abi.ABI, abi.FAIL(fail))
    return int(entry(ctypes.byref(host)) or 0), "; ".join(said)


def _tools(path: str, source: abi.Source) -> tuple[ToolSpec, ...]:
    count = source.tool_count
    if not 0 < count <= _TOOLS_MAX or not source.tools:
        raise SourceLoadError(f"{path} declares {count} tools; a source has 1 to {_TOOLS_MAX}")
    return tuple(_tool(path, source.tools[at], at) for at in range(count))


def _tool(path: str, tool: abi.Tool, at: int) -> ToolSpec:
    try:
        name = (tool.name or b"").decode()
        description = (tool.description or b"").decode()
        parameters = msgspec.json.decode(tool.parameters or b'{"type":"object","properties":{}}')
    except UnicodeDecodeError as error:
        raise SourceLoadError(f"{path}: the texts of tool {at} are not UTF-8: {error}") from error
    except msgspec.DecodeError as error:
        raise SourceLoadError(f"{path}: the parameters of {name!r} are no JSON: {error}") from error
    if not name:
        raise SourceLoadError(f"{path}: tool {at} has no name")
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        raise SourceLoadError(f'{path}: the parameters of {name!r} must be a JSON schema with "type": "object"')
    return ToolSpec(name, description, parameters, bool(tool.flags & abi.IDEMPOTENT))
