"""What it takes to start a worker: the resolved, absolute, secret-bearing half of a source's configuration.

Made by `config`, carried untouched through the core, used by the node and the worker. It never leaves the machine and
is never shown: `env` holds resolved secrets.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MiB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True):
    """Bounds on one worker process, enforced by the kernel (rlimits). Bytes, seconds, counts; `None` is unlimited."""

    memory: int | None = None
    cpu_time: float | None = None
    open_files: int = 256
    file_size: int | None = None
    threads: int | None = None
    processes: int = 1
    scratch_size: int | None = None


class Network(msgspec.Struct, frozen=True):
    """What a source may connect to. For kind `connect`, (host, port) pairs; a host is a name or a literal address."""

    kind: Literal["none", "loopback", "allow", "connect"] = "none"
    connect: tuple[tuple[str, int], ...] = ()


class Confinement(msgspec.Struct, frozen=True):
    """What a source may do besides using its interpreter, its own files and its scratch directory. Real paths.

    `mode` off means that nothing is confined at all. `tiers` are what must be there besides the kernel's own means.
    """

    mode: Literal["enforce", "off"] = "enforce"
    tiers: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    exec: tuple[str, ...] = ()
    network: Network = Network()
    file_metadata: bool = False


class ToolSettings(msgspec.Struct, frozen=True):
    """`[source.NAME.tool.TOOL]`: what the operator sets over the author's declaration. `None` leaves it."""

    timeout: float | None = None
    idempotent: bool | None = None


class Launch(msgspec.Struct, frozen=True):
    """How to start a worker of one source.

    `path` is an absolute file, or a dotted module name (then importable from `directory` or the interpreter's
    site-packages), "" for a kind whose sources are no file. `directory` is the folder of the configuration file. `env`
    is the worker's whole environment besides what the runtime sets itself (TMPDIR, HOME). `result_max` is bytes per
    outcome. `options` are the keys of its own kind, dotted. `stamp` tells one version of the source's file from
    another, "" for a module. `program` is a command (its first word an absolute path) that is the worker itself and
    speaks the link (`toolsd.launcher`); empty: the worker is a Host of that kind.
    """

    kind: str
    path: str
    directory: str
    env: dict[str, str] = {}
    limits: Limits = Limits()
    confinement: Confinement = Confinement()
    result_max: int = 128 * MiB
    tools: dict[str, ToolSettings] = {}
    options: dict[str, Any] = {}
    stamp: str = ""
    program: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Names the variables and hides their values: a launch ends up in stories and logs, a secret must not."""
        shown = dict.fromkeys(self.env, "...")
        return f"Launch(kind={self.kind!r}, path={self.path!r}, directory={self.directory!r}, env={shown})"
