"""What a source is allowed: the permissions a person writes, checked and resolved to what the kernel is told.

Owns the words of `[source.NAME.permissions]`, presets, and which grants are refused. Makes no system call but looking
at paths. Everything not granted is denied; there is no deny below a grant because Landlock has none.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from toolsd.launch import Confinement, Network

Mode = Literal["enforce", "off"]

# Always granted; writing them in a list changes nothing.
_IMPLIED = frozenset({"@runtime", "@source", "@scratch"})
TIERS = ("cgroup",)
PRESETS = ("pure", "files:ro DIR", "files:rw DIR", "network")


class PolicyError(Exception):
    """A permission that cannot be given. `key` is where it stands, the text says why and what to do instead."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Permissions(msgspec.Struct, frozen=True):
    """`[source.NAME.permissions]` as written. Paths are relative to the folder of the configuration file."""

    mode: Mode = "enforce"
    tiers: tuple[str, ...] = ()
    preset: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    exec: tuple[str, ...] = ()
    network: Network = Network()
    file_metadata: bool = False


class Surroundings(msgspec.Struct, frozen=True):
    """What a grant must not cover: absolute real paths.

    `home` is the daemon user's, `private` holds secrets and keys, `code` and `config` may be read, never written.
    """

    directory: str
    home: str
    runtime: str
    config: str
    private: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


def resolve(permissions: Permissions, around: Surroundings) -> Confinement:
    """Check each grant and make it absolute.

    Raises:
        PolicyError: a grant is malformed, does not exist, or would open what no source may have.
    """
    read, write, network = list(permissions.read), list(permissions.write), permissions.network
    for preset in permissions.preset:
        kind, _, folder = preset.partition(" ")
        if kind in ("files:ro", "files:rw") and folder.strip():
            (read if kind == "files:ro" else write).append(folder.strip())
        elif preset == "network":
            network = Network("allow") if network.kind == "none" else network
        elif preset != "pure":
            raise PolicyError("preset", f"unknown preset {preset!r}; there are: {', '.join(PRESETS)}")
    for tier in permissions.tiers:
        if tier not in TIERS:
            raise PolicyError(
                "tiers", f"unknown tier {tier!r}; there are, besides the kernel's own: {', '.join(TIERS)}"
            )
    return Confinement(
        mode=permissions.mode,
        tiers=tuple(dict.fromkeys(permissions.tiers)),
        read=_paths("read", read, around),
        write=_paths("write", write, around),
        exec=_paths("exec", permissions.exec, around),
        network=network,
        file_metadata=permissions.file_metadata,
    )


def _paths(key: str, grants: Iterable[str], around: Surroundings) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for grant in grants:
        if grant in _IMPLIED:
            continue
        if grant.startswith("@"):
            raise PolicyError(key, f"unknown place {grant!r}; there are: {', '.join(sorted(_IMPLIED))}")
        if any(mark in grant for mark in "*?["):
            raise PolicyError(key, f"{grant!r} is a pattern; the kernel grants whole folders or single files only")
        path = os.path.realpath(os.path.join(around.directory, os.path.expanduser(grant)))
        if not os.path.exists(path):
            raise PolicyError(key, f"{grant!r} does not exist ({path}); make it first, or take the grant out")
        reason = _refusal(key, path, around)
        if reason:
            raise PolicyError(key, f"{grant!r} ({path}) cannot be granted: {reason}")
        found[path] = None
    return tuple(found)


def _refusal(key: str, path: str, around: Surroundings) -> str | None:
    if path == "/":
        return "it is the whole file system; grant the folders the source needs"
    for kernel in ("/proc", "/sys", "/dev"):
        if covers(path, kernel) or covers(kernel, path):
            return f"{kernel} is a door to other processes and devices"
    if covers(path, around.home):
        return "it holds the home directory; grant a folder inside it"
    if covers(path, around.runtime) or covers(around.runtime, path):
        return "the daemon's sockets live there"
    for private in around.private:
        if covers(path, private) or covers(private, path):
            return f"it holds {private}; move the data into a folder of its own and grant that"
    if key == "write":
        if covers(path, around.config):
            return "the source could change its own permissions in toolsd.toml; grant a folder beside it"
        for own in around.code:
            if covers(path, own) or covers(own, path):
                return f"it would let the source change the code of every source ({own})"
    return None


def covers(folder: str, path: str) -> bool:
    """Whether `path` is `folder` or beneath it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def parse_network(value: Any) -> Network:
    """`"none"`, `"loopback"`, `"allow"`, or a table `{ connect = ["host:port"] }`.

    Raises:
        PolicyError: it is none of these.
    """
    if value in ("none", "loopback", "allow"):
        return Network(value)
    entries = value.get("connect") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, str) for entry in entries):
        raise PolicyError("network", 'must be "none", "loopback", "allow" or { connect = ["host:port"] }')
    return Network("connect", tuple(dict.fromkeys(parse_endpoint(entry) for entry in entries)))


def parse_endpoint(entry: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port`.

    Raises:
        PolicyError: it is neither.
    """
    host, colon, port = entry.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise PolicyError("network", f"{entry!r} is not host:port (a port is 1 to 65535)")
    if bracketed != (":" in host):
        raise PolicyError("network", f"{entry!r}: an IPv6 address, and only that, is written [address]:port")
    if bracketed:
        try:
            host = str(ipaddress.IPv6Address(host))
        except ValueError:
            raise PolicyError("network", f"{entry!r}: {host!r} is no IPv6 address") from None
    return host.lower(), int(port)
