"""From the tables of a document to what the daemon runs on: one `SourceSpec` per source, in file order.

Lays the three layers over each other (built in, `[defaults]`, the source's own table) and remembers for every
effective value which layer it came from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import msgspec

from toolsd import runtime
from toolsd.config import schema
from toolsd.config.positions import Path
from toolsd.config.reader import Reader, dotted
from toolsd.config.schema import Keys, Kind
from toolsd.config.secrets import Environment
from toolsd.core.model import Recycle, Restart, SourceSpec
from toolsd.launch import Confinement, Launch, Limits, ToolSettings
from toolsd.sandbox import places, policy
from toolsd.sandbox.plan import BASE_ENV

_SOURCE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class Setting(msgspec.Struct, frozen=True):
    """One effective value as it may be shown (secrets by reference only).

    `origin` is `default` (built in), `[defaults]`, or the table that set it; `line` is its line in the file.
    """

    key: str
    value: str
    origin: str
    line: int | None = None


class Daemon(msgspec.Struct, frozen=True):
    """Settings of the daemon itself. `socket` is an absolute path, `None` for the one of this user.

    `stop_timeout` is how many seconds a drain may take.
    """

    socket: str | None = None
    stop_timeout: float = 20.0


def user_directory(environ: Mapping[str, str]) -> FilePath:
    """Where this user's configuration, and what else is theirs alone, lies."""
    home = environ.get("XDG_CONFIG_HOME") or FilePath("~/.config").expanduser()
    return FilePath(home, "toolsd")


class Resolver:
    """Owns the settings of one document while it is resolved."""

    def __init__(self, reader: Reader, file: FilePath, environ: Mapping[str, str], allow_unsandboxed: bool) -> None:
        self.settings: list[Setting] = []
        self._reader = reader
        self._directory = file.parent
        self._env = Environment(reader, file.parent, environ)
        self._allow_unsandboxed = allow_unsandboxed
        self._around = policy.Surroundings(
            directory=str(file.parent),
            home=os.path.realpath(os.path.expanduser("~")),
            runtime=os.path.realpath(runtime.location(environ)),
            config=os.path.realpath(file),
            private=(os.path.realpath(user_directory(environ)),),
            code=places.code(),
        )

    def document(self, tables: dict[str, Any]) -> tuple[Daemon, tuple[SourceSpec, ...]]:
        """Everything in the file. Mistakes go to the reader; a source that has one is still looked at whole."""
        reader = self._reader
        for name in tables.keys() - {"daemon", "defaults", "source"}:
            reader.unknown((name,), name, ("daemon", "defaults", "source"))
        daemon = self._daemon(reader.table(tables.get("daemon", {}), ("daemon",), "write [daemon]"))
        shared = reader.table(tables.get("defaults", {}), ("defaults",), "write [defaults]")
        defaults = reader.options(shared, schema.SHARED, ("defaults",))
        sources = reader.table(tables.get("source", {}), ("source",), "write [source.NAME]")
        if not sources and not reader.mistakes:
            hint = 'add a table such as [source.notes] with kind = "python" and path = "notes.py"'
            reader.mistake((), "there is no source in this file", hint)
        self._around = msgspec.structs.replace(
            self._around, private=(*self._around.private, *self._env.secret_files(sources))
        )
        specs = [self._source(name, table, defaults) for name, table in sources.items()]
        return daemon, tuple(spec for spec in specs if spec is not None)

    def _daemon(self, table: dict[str, Any]) -> Daemon:
        own = self._reader.options(table, schema.DAEMON, ("daemon",))
        values = self._layered(("daemon",), schema.DAEMON, own, {}, schema.DAEMON_BUILT_IN)
        socket = values["socket"]
        return Daemon(
            socket=None if socket == "auto" else str(self._absolute(socket)), stop_timeout=values["stop_timeout"]
        )

    def _source(self, name: str, value: Any, defaults: dict[str, Any]) -> SourceSpec | None:
        reader, path = self._reader, ("source", name)
        if not _SOURCE_NAME.fullmatch(name):
            reader.mistake(path, "a source's name is 1 to 64 letters, digits, '_', '-' or '.', a letter first")
        table = reader.table(value, path, f"write [source.{name}]")
        kind = _kind(table)
        keys = {**schema.SOURCE, **kind.keys}
        own = reader.options(table, keys, path, beside=schema.SOURCE_TABLES)
        needs = {"kind": 'kind = "python"', **kind.needs}
        for key, example in needs.items():
            if isinstance(value, dict) and key not in table:
                reader.mistake(path, f"has no {key}", f"add {example}")
        values = self._layered(path, keys, own, defaults, {**schema.BUILT_IN, **kind.built_in})
        env = self._environment(table, path, values["env_pass"])
        tools = self._tools(table, path)
        if not needs.keys() <= own.keys():
            return None
        source_path = self._source_path(own["path"], kind) if "path" in own else ""
        program = self._program(path, values["command"], source_path, env) if kind.launched else ()
        return SourceSpec(
            name=name,
            launch=Launch(
                kind=own["kind"],
                path=source_path,
                stamp=_stamp(source_path or next(iter(program), "")),
                directory=str(self._directory),
                env=env,
                limits=Limits(**_below("limits.", values)),
                confinement=self._confinement(path, own, _below("permissions.", values)),
                result_max=values["result_max"],
                tools=tools,
                options={key: values[key] for key in schema.flat(kind.keys) if key in values and not kind.launched},
                program=program,
            ),
            restart=_restart(_below("restart.", values)),
            recycle=Recycle(**_below("recycle.", values)),
            queue_turns=values["queue.turns"],
            queue_bytes=values["queue.bytes"],
            queue_wait=values["queue.wait"],
            **{key: values[key] for key in SourceSpec.__struct_fields__ if key in values},
        )

    def _confinement(self, path: Path, own: dict[str, Any], values: dict[str, Any]) -> Confinement:
        if values["mode"] == "off" and not self._allow_unsandboxed:
            hint = 'start with --allow-unsandboxed too, or take mode = "off" out'
            self._reader.mistake((*path, "permissions", "mode"), "a source that is not confined needs two yeses", hint)
        try:
            return policy.resolve(policy.Permissions(**values), self._around)
        except policy.PolicyError as error:
            layer = path if f"permissions.{error.key}" in own else ("defaults",)
            self._reader.mistake((*layer, "permissions", error.key), str(error))
            return Confinement()

    def _layered(
        self, path: Path, keys: Keys, own: dict[str, Any], defaults: dict[str, Any], built_in: dict[str, Any]
    ) -> dict[str, Any]:
        """The effective value of each option, noted with where it comes from."""
        values: dict[str, Any] = {}
        for key, option in schema.flat(keys).items():
            layers = (
                (own, path, f"[{dotted(path)}]"),
                (defaults, ("defaults",), "[defaults]"),
                (built_in, (), "default"),
            )
            for layer, at, origin in layers:
                if key in layer:
                    values[key] = layer[key]
                    line = self._reader.line((*at, *key.split("."))) if at else None
                    shown = schema.show(option, values[key])
                    self.settings.append(Setting(f"{dotted(path)}.{key}", shown, origin, line))
                    break
        return values

    def _environment(self, table: dict[str, Any], path: Path, passed: tuple[str, ...]) -> dict[str, str]:
        env = self._env.passed(passed)
        at = (*path, "env")
        own = self._reader.table(table.get("env", {}), at, 'write env = { NAME = { from_env = "NAME" } }')
        for name, (value, shown) in self._env.read(own, at).items():
            env[name] = value
            line = self._reader.line((*at, name))
            self.settings.append(Setting(f"{dotted(at)}.{name}", shown, f"[{dotted(path)}]", line))
        return env

    def _program(self, path: Path, command: tuple[str, ...], source: str, env: dict[str, str]) -> tuple[str, ...]:
        """The command that is the worker: its program's absolute path, its arguments, and the source's file."""
        search = env.get("PATH", BASE_ENV["PATH"])
        found = places.find_program(command[0], str(self._directory), search)
        if found is None:
            where = f"on the PATH of this source ({search})" if "/" not in command[0] else "that can be executed"
            self._reader.mistake((*path, "command"), f"there is no program {command[0]!r} {where}")
            return ()
        return (found, *command[1:], *filter(None, (source,)))

    def _tools(self, table: dict[str, Any], path: Path) -> dict[str, ToolSettings]:
        at = (*path, "tool")
        found: dict[str, ToolSettings] = {}
        for name, value in self._reader.table(table.get("tool", {}), at, f"write [{dotted(at)}.NAME]").items():
            inner = self._reader.table(value, (*at, name), f"write [{dotted((*at, name))}]")
            own = self._reader.options(inner, schema.TOOL, (*at, name))
            self._layered((*at, name), schema.TOOL, own, {}, {})
            found[name] = ToolSettings(**own)
        return found

    def _source_path(self, text: str, kind: Kind) -> str:
        """A file is made absolute; a dotted module name is left as it is."""
        if "/" in text or text.endswith(".py") or not kind.modules:
            return str(self._absolute(text))
        return text

    def _absolute(self, text: str) -> FilePath:
        return FilePath(os.path.normpath(self._directory / FilePath(text).expanduser()))


def _kind(table: dict[str, Any]) -> Kind:
    """What the table says it is; a table that says nothing usable is read as the first kind."""
    name = table.get("kind")
    found = schema.KINDS.get(name) if isinstance(name, str) else None
    return found or next(iter(schema.KINDS.values()))


def _stamp(path: str) -> str:
    """Which version of its file a source is. A module by name has none: nothing says yet where it will be found."""
    try:
        seen = os.stat(path) if os.path.isabs(path) else None
    except OSError:
        seen = None
    return "" if seen is None else f"{seen.st_ino}-{seen.st_size}-{seen.st_mtime_ns}"


def _below(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def _restart(values: dict[str, Any]) -> Restart:
    low, high = values.pop("backoff")
    return Restart(backoff_min=low, backoff_max=high, **values)
