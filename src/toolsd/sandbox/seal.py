"""Closing a worker: privileges, Landlock and the system call filter, in the one order that works.

Owns the order. `prepare` runs before the fork and decides everything that can be decided there; `enforce` runs in the
worker, in a process with one thread, and either every step holds or it raises.

The order: privileges first (they need themselves), then NO_NEW_PRIVS (the next two need it), Landlock, the parent-death
signal (setresuid clears it, prctl(2)), and the filter last, because it denies what the steps before it do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

import msgspec

from toolsd.launch import Confinement
from toolsd.sandbox import kernel, landlock, places, privileges, seccomp
from toolsd.sandbox.kernel import KernelRefusal
from toolsd.sandbox.seccomp import Profile
from toolsd.sandbox.syscalls import ARCHITECTURES
from toolsd.sandbox.tier import Machine

_FILTER_NETWORK: dict[str, seccomp.Network] = {
    "none": "none",
    "loopback": "brokered",
    "connect": "brokered",
    "allow": "allow",
}


class Seal(msgspec.Struct, frozen=True):
    """Everything `enforce` does, decided. `grants` are (real path, Landlock rights beneath it)."""

    architecture: str
    grants: tuple[tuple[str, int], ...]
    profile: Profile
    uid: int | None
    keep: frozenset[int]
    across_exec: bool = False

    @property
    def brokered(self) -> bool:
        """Whether somebody must answer this worker's connects."""
        return self.profile.network == "brokered"


def prepare(
    machine: Machine,
    confinement: Confinement,
    *,
    own: tuple[tuple[str, ...], tuple[str, ...]],
    code: Iterable[str],
    scratch: str,
    worker: int,
    processes: int = 1,
    program: tuple[str, ...] = (),
) -> Seal:
    """The seal of one worker. Assembles the filter, so that a fork finds it.

    Args:
        own: as `places.own_files` gives it.
        code: as `places.code` gives it.
        worker: the incarnation; as root it gives the throw-away uid.
        program: what the worker will be replaced by, as `places.executed` gives it; empty: it stays the interpreter.
    """
    launched = bool(program)
    executing = landlock.EXECUTE if launched or processes > 1 else 0
    files, listings = own
    readable = [*code, *files, *confinement.read]
    grants = [(path, landlock.READ | executing) for path in (*places.LIBRARIES, *(program or places.interpreter()))]
    grants += [(path, landlock.READ) for path in (*places.SYSTEM, *places.DEVICES_READ, *readable)]
    grants += [(path, landlock.READ_DIR) for path in listings]
    grants += [(path, landlock.READ_FILE | landlock.WRITE_FILE) for path in places.DEVICES_WRITE]
    grants += [(path, landlock.WRITE) for path in (scratch, *confinement.write)]
    grants += [(path, landlock.READ | landlock.EXECUTE) for path in confinement.exec if executing]
    if confinement.network.kind != "none":
        grants += [(path, landlock.READ) for path in places.NETWORK]
    profile = Profile(
        landlock_abi=machine.landlock,
        processes=processes,
        network=_FILTER_NETWORK[confinement.network.kind],
        file_metadata=confinement.file_metadata,
        exec_allowed=launched,
    )
    seccomp.program(profile, machine.architecture)
    keep: set[int] = set()
    if machine.root:
        needed = [path for path, rights in grants if rights & landlock.READ_FILE and os.path.exists(path)]
        if not all(privileges.open_to_all(path, 4) for path in (*needed, os.path.dirname(scratch))):
            keep.add(privileges.DAC_READ_SEARCH)
        if not all(privileges.open_to_all(path, 6) for path in confinement.write):
            keep.add(privileges.DAC_OVERRIDE)
        if not all(os.stat(path).st_mode & 1 for path in program):  # nothing less lets another uid execute it
            keep.add(privileges.DAC_OVERRIDE)
    uid = privileges.throwaway_uid(worker) if machine.root else None
    return Seal(
        architecture=machine.architecture,
        grants=tuple(dict.fromkeys(grants)),
        profile=profile,
        uid=uid,
        keep=frozenset(keep),
        across_exec=launched,
    )


def enforce(seal: Seal, parent: int) -> int | None:
    """Close the calling process, for good. Returns the descriptor a broker answers `connect` on, if there is one.

    Raises:
        KernelRefusal: a step was refused; nothing foreign may run then.
    """
    arch = ARCHITECTURES[seal.architecture]
    privileges.drop(arch, seal.uid, seal.keep, across_exec=seal.across_exec)
    privileges.new_session_keyring(arch)
    kernel.prctl(kernel.NO_NEW_PRIVS, 1)
    network = seal.profile.network
    unreachable = landlock.restrict(arch, seal.profile.landlock_abi, seal.grants, network_handled=network != "allow")
    if unreachable:
        raise KernelRefusal(f"open({', '.join(unreachable)})", 13)
    kernel.prctl(kernel.PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    program = seccomp.program(seal.profile, seal.architecture)
    return seccomp.install(program, arch, listen=seal.brokered)
