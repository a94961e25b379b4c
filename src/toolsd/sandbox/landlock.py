"""Which files, ports and peers a confined worker can reach: Landlock rulesets by raw system calls, ABI 1 to 10.

Owns the rights tables. Knows no policy: callers name paths and what may be done beneath them.

Rules of the mechanism (landlock(7)): what is *handled* is denied unless a rule allows it; rules only add; a domain is
for good and is inherited. A right the running kernel does not know cannot be handled, so `handled(abi)` is exactly what
that ABI has, and the seccomp filter closes the rest. Handling fewer rights than the kernel has is how tests imitate an
older ABI.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

import msgspec

from toolsd.sandbox.kernel import syscall
from toolsd.sandbox.syscalls import Architecture

NEWEST_ABI = 10

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << n for n in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << n for n in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = (1 << n for n in range(13, 17))

READ = READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SYM | REFER | TRUNCATE
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

# First ABI with each right: (ABI, file rights, network rights, scopes), each adding to the one before.
_HISTORY = (
    (1, (1 << 13) - 1, 0, 0),
    (2, REFER, 0, 0),
    (3, TRUNCATE, 0, 0),
    (4, 0, 0b0011, 0),  # bind and connect of TCP
    (5, IOCTL_DEV, 0, 0),
    (6, 0, 0, 0b11),  # abstract unix sockets, signals
    (9, RESOLVE_UNIX, 0, 0),
    (10, 0, 0b1100, 0),  # bind and connect/send of UDP
)


class Handled(msgspec.Struct, frozen=True):
    """What an ABI can deny."""

    files: int
    network: int
    scopes: int


def handled(abi: int) -> Handled:
    """All rights of an ABI. Pure."""
    files = network = scopes = 0
    for since, more_files, more_network, more_scopes in _HISTORY:
        if abi >= since:
            files, network, scopes = files | more_files, network | more_network, scopes | more_scopes
    return Handled(files, network, scopes)


def kernel_abi(arch: Architecture) -> int:
    """The ABI of the running kernel, asked by system call.

    Raises:
        KernelRefusal: no Landlock (ENOSYS), or it is off at boot (EOPNOTSUPP).
    """
    return syscall(arch, "landlock_create_ruleset", 0, 0, 1)


def restrict(
    arch: Architecture, abi: int, grants: Iterable[tuple[str, int]], *, network_handled: bool = True
) -> list[str]:
    """Confine this thread to `grants`: (path, rights beneath it). For good. Needs NO_NEW_PRIVS.

    A path that does not exist is skipped: nothing can be reached by it. Returns the paths that this process cannot
    open for itself (the caller may lack a privilege it thinks it has).

    Raises:
        KernelRefusal: the kernel did not take the ruleset or a rule.
    """
    can = handled(abi)
    network = can.network if network_handled else 0
    attributes = struct.pack("=QQQ", can.files, network, can.scopes)
    size = 24 if can.scopes else 16 if can.network else 8
    buffer = ctypes.create_string_buffer(attributes[:size], size)
    ruleset = syscall(arch, "landlock_create_ruleset", ctypes.addressof(buffer), size, 0)
    unreachable = []
    try:
        for path, rights in grants:
            if not _allow(arch, ruleset, path, rights & can.files):
                unreachable.append(path)
        syscall(arch, "landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return unreachable


def _allow(arch: Architecture, ruleset: int, path: str, rights: int) -> bool:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, beneath), 12)
        syscall(arch, "landlock_add_rule", ruleset, 1, ctypes.addressof(rule), 0)
    finally:
        os.close(beneath)
    return True
