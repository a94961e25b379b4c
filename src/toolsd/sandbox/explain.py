"""The effective policy of a source in words: what it may do, how much of it, and which mechanism keeps it.

Owns the wording. Says only what `seal`, `limits` and the node really do on this machine.
"""

from __future__ import annotations

import msgspec

from toolsd import runtime
from toolsd.launch import Launch
from toolsd.sandbox import limits, places
from toolsd.sandbox.plan import plan_for
from toolsd.sandbox.tier import Machine

_FILTER, _POLLED = "seccomp filter", "polled by the daemon"


class Line(msgspec.Struct, frozen=True):
    """One promise: `what`, its `value`, and the mechanism that keeps it (empty: nothing does)."""

    what: str
    value: str
    enforced_by: str


def explain(launch: Launch, machine: Machine) -> list[Line]:
    """The policy as it would be enforced here."""
    if launch.confinement.mode == "off":
        return [Line("everything", "all rights of the daemon's user", "")]
    return [*_files(launch, machine), *_rights(launch, machine), *_limits(launch, machine)]


def _files(launch: Launch, machine: Machine) -> list[Line]:
    landlock = f"Landlock ABI {machine.landlock}"
    files, listings = places.own_files(launch.path, launch.directory, str(runtime.location()))
    confinement = launch.confinement
    programs = confinement.exec if launch.limits.processes > 1 else ("none",)
    groups = (
        ("read (interpreter)", () if launch.program else places.code()),
        ("read and run (the worker)", _executed(launch)),
        ("read (system)", (*places.LIBRARIES, *places.SYSTEM)),
        ("read (own code)", files),
        ("list (own code)", listings),
        ("read", confinement.read),
        ("write", ("a scratch directory of its own", *confinement.write)),
        ("run programs", programs),
    )
    lines = [Line(what, path, landlock) for what, paths in groups for path in paths]
    closing = _FILTER if machine.landlock >= 3 else f"{_FILTER} (also truncation, which this Landlock does not know)"
    metadata = "as files allow" if confinement.file_metadata else "denied"
    return [*lines, Line("change modes, owners, times", metadata, closing)]


def _executed(launch: Launch) -> tuple[str, ...]:
    return places.executed(launch.program[0], plan_for(launch, "").env["PATH"]) if launch.program else ()


def _rights(launch: Launch, machine: Machine) -> list[Line]:
    network = launch.confinement.network
    hosts = ", ".join(f"{host}:{port}" for host, port in network.connect)
    broker = f"{_FILTER} and a broker that connects in the source's stead"
    signals = _FILTER if launch.limits.processes == 1 else f"Landlock ABI {machine.landlock} signal scope"
    return [
        Line("network", hosts or network.kind, broker if network.kind in ("loopback", "connect") else _FILTER),
        Line("sockets of other processes", "denied", _FILTER),
        Line("signal or trace other processes", "denied", signals),
        Line("user", "a throw-away uid" if machine.root else "the daemon's", "setresuid" if machine.root else ""),
    ]


def _limits(launch: Launch, machine: Machine) -> list[Line]:
    given = launch.limits
    grouped = bool(machine.cgroup and (limits.of_tree(given) or "cgroup" in launch.confinement.tiers))
    group = f"cgroup version {machine.cgroup}"
    tasks = limits.allowed_tasks(given, exact=machine.root or grouped)
    counted = "RLIMIT_NPROC" if machine.root else "RLIMIT_NPROC, from the count of the user's tasks at the start"
    exact = group if grouped else counted
    processes = _FILTER if given.processes == 1 else exact
    rows = (
        ("processes", str(given.processes), processes),
        ("threads and processes", None if tasks is None else str(tasks), exact),
        ("memory of each process", _bytes(given.memory), "RLIMIT_DATA and RLIMIT_AS"),
        ("memory of all its processes", _bytes(given.memory), group if grouped else _POLLED),
        ("cpu time of each process", None if given.cpu_time is None else f"{given.cpu_time:g} s", "RLIMIT_CPU"),
        ("open files", str(given.open_files), "RLIMIT_NOFILE"),
        ("size of each file", _bytes(given.file_size), "RLIMIT_FSIZE"),
        ("size of the scratch directory", _bytes(given.scratch_size), _POLLED),
        ("size of a result", _bytes(launch.result_max), "the worker's runtime"),
    )
    return [
        Line(what, "not limited" if value is None else value, "" if value is None else by) for what, value, by in rows
    ]


def _bytes(count: int | None) -> str | None:
    return None if count is None else f"{count} bytes"
