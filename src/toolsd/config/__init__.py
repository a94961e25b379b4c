"""`toolsd.toml`: found, read, checked and resolved into frozen values.

`load` either returns a whole `Config` or raises `ConfigMistakes`, which names file, line and key of every mistake it
could find. Nothing here starts a source: that a source's file imports is found out by starting it.

Layout: `units` (durations, sizes), `positions` (lines of keys), `schema` (every option), `reader` (tables against the
schema), `secrets` (a worker's environment), `resolve` (layers, origins, `SourceSpec`),
`changes` (one version against another).
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from toolsd.config.changes import changes
from toolsd.config.positions import Path as Place
from toolsd.config.positions import positions
from toolsd.config.reader import Mistake, Reader
from toolsd.config.resolve import Daemon, Resolver, Setting, user_directory
from toolsd.core.model import SourceSpec
from toolsd.errors import ConfigError

__all__ = ["Config", "ConfigMistakes", "Daemon", "Mistake", "Setting", "changes", "find", "load", "shown_name"]

FILE_NAME = "toolsd.toml"
_FILE_MAX = 4 * 1024 * 1024


class Config(msgspec.Struct, frozen=True):
    """A configuration without mistakes. `file` is absolute; `sources` and `settings` are in file order."""

    file: str
    daemon: Daemon
    sources: tuple[SourceSpec, ...]
    settings: tuple[Setting, ...]
    allow_unsandboxed: bool = False

    def again(self) -> Config:
        """The file as it is now, read as it was before. Raises as `load`."""
        return load(self.file, allow_unsandboxed=self.allow_unsandboxed)


class ConfigMistakes(ConfigError):
    """All mistakes of one file."""

    def __init__(self, file: str, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(mistake.describe(file) for mistake in mistakes))
        self.file = file
        self.mistakes = mistakes

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConfigMistakes, (self.file, self.mistakes))


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """The file to use when none is named: `./toolsd.toml`, then the user's configuration directory.

    Raises:
        ConfigError: there is none; names the places.
    """
    places = (Path(FILE_NAME), user_directory(environ) / FILE_NAME)
    for place in places:
        if place.exists():
            return place
    raise ConfigError(
        f"no configuration found: neither ./{FILE_NAME} nor {places[1]} exists",
        hint="create one, or name it with --config FILE",
    )


def load(
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    allow_unsandboxed: bool = False,
) -> Config:
    """Read `file` (or the one `find` finds). Without `allow_unsandboxed`, a source whose mode is off is a mistake.

    Raises:
        ConfigMistakes: it has mistakes; all that could be found are in it.
        ConfigError: there is no such file, or it cannot be read.
    """
    path = Path(os.path.abspath(find(environ) if file is None else file))
    name = shown_name(path)
    text = _read(path, name)
    if path.suffix == ".json" or text.lstrip().startswith("{"):
        raise _json_refused(name, text)
    tables, lines = _parse(text, name)
    reader = Reader(lines)
    resolver = Resolver(reader, path, environ, allow_unsandboxed)
    daemon, sources = resolver.document(tables)
    if reader.mistakes:
        in_order = sorted(reader.mistakes, key=lambda mistake: mistake.line or 0)
        raise ConfigMistakes(name, tuple(in_order))
    return Config(str(path), daemon, sources, tuple(resolver.settings), allow_unsandboxed)


def shown_name(file: str | os.PathLike[str]) -> str:
    """An absolute path as messages show it: relative if it is below the working directory."""
    return os.path.relpath(file) if Path(file).is_relative_to(Path.cwd()) else str(file)


def _read(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > _FILE_MAX:
        raise ConfigError(f"{name} is larger than {_FILE_MAX // 1024**2} MiB; this is not a configuration file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise ConfigMistakes(name, (Mistake(line, "", message, "save the file as UTF-8"),)) from error


def _parse(text: str, name: str) -> tuple[dict[str, Any], dict[Place, int]]:
    try:
        return tomllib.loads(text), positions(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
        message = str(error)[: place.start()] if place else str(error)
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        column = f" (column {place[2]})" if place and place[2] else ""
        raise ConfigMistakes(name, (Mistake(line, "", f"not valid TOML: {message}{column}"),)) from error
    except RecursionError as error:
        raise ConfigMistakes(name, (Mistake(None, "", "is nested too deeply"),)) from error


def _json_refused(name: str, text: str) -> ConfigError:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if isinstance(servers, dict):
        count = "1 MCP server" if len(servers) == 1 else f"{len(servers)} MCP servers"
        listed = f" ({', '.join(sorted(servers)[:8])}{', ...' if len(servers) > 8 else ''})" if servers else ""
        return ConfigError(
            f"{name} configures {count}{listed}; MCP sources come with the MCP runtime, "
            "which this version does not have",
            hint=f"write a {FILE_NAME} with sources of another kind; this file will work unchanged later",
        )
    return ConfigError(f"{name} is JSON; toolsd reads TOML", hint=f"write a {FILE_NAME}")
