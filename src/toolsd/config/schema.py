"""Every key that `toolsd.toml` may have: how it is read, how it is shown, and what it is when nobody sets it.

The one list of options. Knows nothing of files or lines; built-in values come from the structs that use them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from toolsd.codec import FRAME_MAX
from toolsd.config import units
from toolsd.config.units import Parser
from toolsd.core.model import Restart, SourceSpec
from toolsd.launch import Launch, Limits, MiB, Network
from toolsd.sandbox import policy


class Option(NamedTuple):
    """One key: `parse` reads its TOML value (or raises `units.Unfit`), `show` writes the effective value for people."""

    parse: Parser
    show: Callable[[Any], str] = str


# A key is an option or a table of keys.
Keys = Mapping[str, "Option | Keys"]


class Kind(msgspec.Struct, frozen=True):
    """What a source of one kind takes beside the keys of all kinds.

    `needs`: the keys that must be set, each with an example. `keys`: its own options, which reach its Host in
    `Launch.options` under their dotted names. `built_in`: the values of those that nobody sets. `modules`: its
    `path` may also be a dotted module name. `launched`: its `command` is the worker itself.
    """

    needs: Mapping[str, str]
    keys: Keys = {}
    built_in: Mapping[str, Any] = {}
    modules: bool = False
    launched: bool = False


def _show_flag(value: bool) -> str:
    return str(value).lower()


def _show_names(value: tuple[str, ...]) -> str:
    return ", ".join(value) or "(none)"


def _show_command(value: tuple[str, ...]) -> str:
    return shlex.join(value)


def _network(value: Any) -> Network:
    try:
        return policy.parse_network(value)
    except policy.PolicyError as error:
        raise units.Unfit(str(error)) from error


def _show_network(value: Network) -> str:
    return ", ".join(f"{host}:{port}" for host, port in value.connect) or value.kind


def _show_range(value: tuple[float, float]) -> str:
    return "..".join(units.format_duration(bound) for bound in value)


_DURATION = Option(units.positive_duration, units.format_duration)
_DURATION_OR_NONE = Option(units.or_none(units.positive_duration), units.format_duration)
_GRACE = Option(units.duration, units.format_duration)
# Below this a worker's own runtime does not start (measured: its threads' stacks count).
_LEAST_MEMORY = 64 * MiB
_MEMORY = Option(
    units.or_none(units.size_within(_LEAST_MEMORY, 2**50, "a worker's own runtime needs some memory")),
    units.format_size,
)
_SIZE_OR_NONE = Option(units.or_none(units.size), units.format_size)
# A frame holds an outcome and what says of which kind it is.
_RESULT_MAX = Option(units.size_within(1, FRAME_MAX - MiB, "no message carries more"), units.format_size)
_QUEUE_BYTES = Option(units.size_within(1, 2**50, "a turn must have a place to wait"), units.format_size)
_FLAG = Option(units.flag, _show_flag)
_LIST = Option(units.texts, _show_names)

DAEMON: Keys = {
    "socket": Option(units.text),
    "stop_timeout": _DURATION,
}

# What a source may set, and `[defaults]` may set for all of them.
SHARED: Keys = {
    "start": Option(units.one_of("lazy", "eager")),
    "replicas": Option(units.whole(1, 256)),
    "max_batches": Option(units.whole(1, 256)),
    "start_timeout": _DURATION,
    "batch_timeout": _DURATION_OR_NONE,
    "cancel_grace": _GRACE,
    "stop_timeout": _DURATION,
    "queue": {
        "turns": Option(units.whole(1, 1_000_000)),
        "bytes": _QUEUE_BYTES,
        "wait": _DURATION_OR_NONE,
    },
    "on_crash": Option(units.one_of("fail_turn", "fail_calls")),
    "restart": {
        "backoff": Option(units.duration_range, _show_range),
        "max": Option(units.whole(0, 1000)),
        "within": _DURATION,
        "stable_after": _DURATION,
        "cool_down": _DURATION,
    },
    "recycle": {
        "turns": Option(units.or_none(units.whole(1, 1_000_000_000))),
        "age": _DURATION_OR_NONE,
        "rss": _MEMORY,
    },
    "limits": {
        "memory": _MEMORY,
        "cpu_time": _DURATION_OR_NONE,
        "open_files": Option(units.whole(32, 1_048_576)),
        "file_size": _SIZE_OR_NONE,
        "threads": Option(units.or_none(units.whole(1, 100_000))),
        "processes": Option(units.whole(1, 10_000)),
        "scratch_size": _SIZE_OR_NONE,
    },
    "permissions": {
        "mode": Option(units.one_of("enforce", "off")),
        "tiers": _LIST,
        "preset": _LIST,
        "read": _LIST,
        "write": _LIST,
        "exec": _LIST,
        "network": Option(_network, _show_network),
        "file_metadata": _FLAG,
    },
    "result_max": _RESULT_MAX,
    "env_pass": Option(units.names, _show_names),
}

# The kinds of source that this version can run: one folder of `toolsd_workers` each.
KINDS: Mapping[str, Kind] = {
    "python": Kind(needs={"path": 'path = "tools.py"'}, modules=True),
    "worker": Kind(
        needs={"command": 'command = ["./worker"]'},
        keys={"command": Option(units.command, _show_command)},
        launched=True,
    ),
    "native": Kind(needs={"path": 'path = "tools.so"'}),
}

SOURCE: Keys = {
    "kind": Option(units.one_of(*KINDS)),
    "path": Option(units.text),
    "required": _FLAG,
    "affinity": Option(units.one_of("none", "session")),
    **SHARED,
}

TOOL: Keys = {
    "timeout": _DURATION,
    "idempotent": _FLAG,
}

# What a table may hold beside its options, for the suggestion after a misspelt key.
SOURCE_TABLES = ("env", "tool")

_spec = SourceSpec(name="")
_restart = Restart()
_limits = Limits()
_permissions = policy.Permissions()

# The value of each option (by dotted key) that neither the source nor `[defaults]` sets.
BUILT_IN: dict[str, Any] = {
    "start": _spec.start,
    "replicas": _spec.replicas,
    "max_batches": _spec.max_batches,
    "required": _spec.required,
    "affinity": _spec.affinity,
    "start_timeout": _spec.start_timeout,
    "batch_timeout": _spec.batch_timeout,
    "cancel_grace": _spec.cancel_grace,
    "stop_timeout": _spec.stop_timeout,
    "queue.turns": _spec.queue_turns,
    "queue.bytes": _spec.queue_bytes,
    "queue.wait": _spec.queue_wait,
    "on_crash": _spec.on_crash,
    "restart.backoff": (_restart.backoff_min, _restart.backoff_max),
    "restart.max": _restart.max,
    "restart.within": _restart.within,
    "restart.stable_after": _restart.stable_after,
    "restart.cool_down": _restart.cool_down,
    **{f"recycle.{key}": getattr(_spec.recycle, key) for key in _spec.recycle.__struct_fields__},
    "limits.memory": _limits.memory,
    "limits.cpu_time": _limits.cpu_time,
    "limits.open_files": _limits.open_files,
    "limits.file_size": _limits.file_size,
    "limits.threads": _limits.threads,
    "limits.processes": _limits.processes,
    "limits.scratch_size": _limits.scratch_size,
    **{f"permissions.{key}": getattr(_permissions, key) for key in _permissions.__struct_fields__},
    "result_max": Launch(kind="", path="", directory="").result_max,
    "env_pass": ("PATH", "LANG", "LC_ALL", "TZ"),
}

DAEMON_BUILT_IN: dict[str, Any] = {"socket": "auto", "stop_timeout": 20.0}


def flat(keys: Keys, prefix: str = "") -> dict[str, Option]:
    """The options of a table by dotted key."""
    found: dict[str, Option] = {}
    for name, key in keys.items():
        if isinstance(key, Option):
            found[prefix + name] = key
        else:
            found.update(flat(key, f"{prefix}{name}."))
    return found


def show(option: Option, value: Any) -> str:
    """An effective value as `check` prints it."""
    return "none" if value is None else option.show(value)
