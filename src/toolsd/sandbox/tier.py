"""What this machine can enforce, and what a source needs of it. Missing one means the source does not start.

Owns the guarantees and the probe. Changes nothing; the proof that enforcement works is the canary's.
"""

from __future__ import annotations

import os
import sys

import msgspec

from toolsd.launch import Confinement
from toolsd.sandbox import cgroup, landlock, seccomp
from toolsd.sandbox.kernel import KernelRefusal
from toolsd.sandbox.syscalls import native

# What the kernel tier promises, and which mechanism keeps each promise.
GUARANTEES = {
    "fs": "files outside the grants cannot be opened, changed or created",
    "net": "no network but what is granted",
    "unix": "no socket of another process can be reached",
    "signal": "no other process can be signalled",
    "proc": "no other process can be read, traced or written",
    "spawn": "no process can be started beyond the limit",
    "kernel-surface": "kernel interfaces a tool does not need do not exist",
    "limits": "memory, tasks, open files and the size of files end at the limits that were set",
}


class Machine(msgspec.Struct, frozen=True):
    """The answers of this kernel. `landlock` is the ABI to use, `cgroup` the version, 0 without; `answers` say why
    something is missing.
    """

    architecture: str
    landlock: int
    seccomp: bool
    root: bool
    answers: tuple[tuple[str, str], ...] = ()
    cgroup: int = 0


class Missing(msgspec.Struct, frozen=True):
    """One guarantee that cannot be had: what the kernel answered and what would help."""

    names: tuple[str, ...]
    answer: str
    remedy: str

    def __str__(self) -> str:
        return f"cannot guarantee {', '.join(self.names)}: {self.answer}. Remedy: {self.remedy}"


def probe(abi_ceiling: int | None = None) -> Machine:
    """Ask the kernel, by the calls that would be made. `abi_ceiling` imitates an older Landlock."""
    arch = native()
    if arch is None or sys.platform != "linux":
        return Machine(os.uname().machine, 0, False, os.geteuid() == 0, (("platform", "no system call table for it"),))
    answers = []
    abi = 0
    try:
        abi = min(landlock.kernel_abi(arch), landlock.NEWEST_ABI, abi_ceiling or landlock.NEWEST_ABI)
    except KernelRefusal as refusal:
        answers.append(("landlock", str(refusal)))
    filters = seccomp.probe(arch)
    if filters is not None:
        answers.append(("seccomp", filters))
    groups = 0
    try:
        groups = cgroup.find().version
    except cgroup.Unavailable as unavailable:
        answers.append(("cgroup", str(unavailable)))
    return Machine(arch.name, abi, filters is None, os.geteuid() == 0, tuple(answers), groups)


def name(confinement: Confinement) -> str:
    """What confines a source, for people: `none`, `kernel`, `kernel+cgroup`."""
    return "none" if confinement.mode == "off" else "+".join(("kernel", *confinement.tiers))


def no_groups(answer: str) -> Missing:
    """What it means that no control group can be made."""
    remedy = (
        "start the daemon as root, or in a systemd unit with Delegate=memory pids and DelegateSubgroup=daemon, "
        'or take "cgroup" out of permissions.tiers: memory is then polled'
    )
    return Missing(("tree",), f"no control group: {answer}", remedy)


def missing(machine: Machine, processes: int, tiers: tuple[str, ...] = ()) -> list[Missing]:
    """What this machine cannot guarantee for such a source. Empty: it may start (if the canary agrees)."""
    answers = dict(machine.answers)
    gaps = []
    if "platform" in answers:
        remedy = "run on Linux x86_64 or aarch64"
        return [Missing(tuple(GUARANTEES), f"{machine.architecture}: {answers['platform']}", remedy)]
    if not machine.landlock:
        remedy = "use a kernel from 5.13 on with landlock in its lsm= list"
        gaps.append(Missing(("fs", "proc"), f"Landlock is not there: {answers['landlock']}", remedy))
    if not machine.seccomp:
        names = ("net", "unix", "signal", "spawn", "kernel-surface")
        remedy = "use a kernel with CONFIG_SECCOMP_FILTER, and a container runtime that lets seccomp(2) through"
        gaps.append(Missing(names, f"seccomp filters are not there: {answers['seccomp']}", remedy))
    if processes > 1 and 0 < machine.landlock < 6:
        answer = f"processes = {processes} needs Landlock's signal scope (ABI 6), the kernel has ABI {machine.landlock}"
        gaps.append(Missing(("signal",), answer, "use a kernel from 6.12 on, or processes = 1"))
    if "cgroup" in tiers and not machine.cgroup:
        gaps.append(no_groups(answers["cgroup"]))
    return gaps
