"""What a new version of a configuration changes, source by source. Pure.

Owns the comparison that people see; whether a source keeps its workers is decided by the core on the same values. Must
not know files, and shows no secret: a changed one is only said to have changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from toolsd.config.resolve import Daemon, Setting
from toolsd.core.model import SourceSpec

if TYPE_CHECKING:
    from toolsd.config import Config

Kind = Literal["added", "removed", "changed", "unchanged"]


class KeyChange(msgspec.Struct, frozen=True):
    """One key of a stanza: its effective value before and after, `None` where there is none."""

    key: str
    before: str | None
    after: str | None


class Change(msgspec.Struct, frozen=True):
    """One stanza: `source.NAME`, or `daemon`, whose changes take effect when the daemon is started again."""

    stanza: str
    kind: Kind
    keys: tuple[KeyChange, ...] = ()


def changes(before: Config, after: Config) -> tuple[Change, ...]:
    """Every source of both versions, in the order of the new file, then those that are gone."""
    old = {source.name: source for source in before.sources}
    new = {source.name: source for source in after.sources}
    found: list[Change] = []
    if before.daemon != after.daemon:
        found.append(Change("daemon", "changed", _daemon_keys(before.daemon, after.daemon)))
    for name, source in new.items():
        stanza = f"source.{name}"
        if name not in old:
            found.append(Change(stanza, "added"))
        elif old[name] == source:
            found.append(Change(stanza, "unchanged"))
        else:
            keys = _source_keys(stanza, before.settings, after.settings) + _unseen(old[name], source)
            found.append(Change(stanza, "changed", keys))
    found += [Change(f"source.{name}", "removed") for name in old if name not in new]
    return tuple(found)


def _daemon_keys(before: Daemon, after: Daemon) -> tuple[KeyChange, ...]:
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(after)
    return tuple([KeyChange(key, str(old[key]), str(new[key])) for key in new if old[key] != new[key]])


def _source_keys(stanza: str, before: Iterable[Setting], after: Iterable[Setting]) -> tuple[KeyChange, ...]:
    old, new = _below(stanza, before), _below(stanza, after)
    keys = dict.fromkeys((*new, *old))
    return tuple([KeyChange(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)])


def _below(stanza: str, settings: Iterable[Setting]) -> dict[str, str]:
    prefix = f"{stanza}."
    return {s.key.removeprefix(prefix): s.value for s in settings if s.key.startswith(prefix)}


def _unseen(before: SourceSpec, after: SourceSpec) -> tuple[KeyChange, ...]:
    """What no key shows: the source's file, and values of its environment."""
    found: list[KeyChange] = []
    if before.launch.path == after.launch.path and before.launch.stamp != after.launch.stamp:
        found.append(KeyChange("path", before.launch.path, f"{after.launch.path} (the file has changed)"))
    old, new = before.launch.env, after.launch.env
    found += [
        KeyChange(f"env.{name}", "...", "... (another value)") for name in new if name in old and old[name] != new[name]
    ]
    return tuple(found)
