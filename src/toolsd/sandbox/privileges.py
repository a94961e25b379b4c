"""Giving up root: a throw-away user id, no capabilities but those the grants need, no way back.

Owns uids and capabilities. Knows no policy: callers say which of the two file capabilities to keep.

Why keep any: an interpreter or source below a 0700 home of root cannot be reached by another uid. CAP_DAC_READ_SEARCH
lifts exactly that (reading and searching in spite of permission bits), CAP_DAC_OVERRIDE also for writing. Neither
reaches beyond Landlock's rules, and the one other door it opens, open_by_handle_at(2), is denied by the filter.
Without the uid drop root would be exempt from RLIMIT_NPROC and own every file's metadata (capabilities(7)).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from toolsd.sandbox.kernel import KernelRefusal, prctl, syscall
from toolsd.sandbox.syscalls import Architecture

DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2
_SETPCAP = 8
_KEEPCAPS, _CAPBSET_DROP, _CAP_AMBIENT = 8, 24, 47

# The range systemd reserves for uids that belong to nobody (DynamicUser=, systemd.exec(5)).
_FIRST_UID, _UIDS = 61184, 4336
# Where in it this process begins. Two daemons that both began at the first would count each other's processes.
_BEGIN = int.from_bytes(os.urandom(4), "little")


def throwaway_uid(worker: int) -> int:
    """The uid of one incarnation: no two workers of a daemon share one, so process limits count one worker each."""
    return _FIRST_UID + (_BEGIN + worker) % _UIDS


def drop(arch: Architecture, uid: int | None, keep: frozenset[int], *, across_exec: bool = False) -> None:
    """Become `uid` (None: stay who we are, an ordinary user) with the capabilities `keep` and no others. For good.

    `across_exec` also keeps them over execve (ambient capabilities, capabilities(7)).

    Raises:
        KernelRefusal: a step was refused; the process must not run foreign code.
    """
    if uid is not None:
        try:
            _drop_bounding(keep)
            os.setgroups([])
            prctl(_KEEPCAPS, 1)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError as error:
            if isinstance(error, KernelRefusal):
                raise
            raise KernelRefusal(f"setresuid({uid})", error.errno or 0) from error
    mask = sum(1 << capability for capability in keep)
    inheritable = mask if across_exec else 0
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
    data = ctypes.create_string_buffer(struct.pack("=6I", mask, mask, inheritable, 0, 0, 0), 24)
    syscall(arch, "capset", ctypes.addressof(header), ctypes.addressof(data))
    if across_exec:
        for capability in keep:
            prctl(_CAP_AMBIENT, 2, capability)


def new_session_keyring(arch: Architecture) -> None:
    """Leave the session keyring of the daemon (keyctl(KEYCTL_JOIN_SESSION_KEYRING)); kernels without keys have none."""
    try:
        syscall(arch, "keyctl", 1, 0)
    except KernelRefusal as refusal:
        if refusal.errno not in _NO_KEYRINGS:
            raise


_NO_KEYRINGS = (1, 38, 95)  # EPERM (a container denies the call), ENOSYS, EOPNOTSUPP: then the worker has none either


def _drop_bounding(keep: frozenset[int]) -> None:
    for capability in range(64):
        if capability not in keep and capability != _SETPCAP:
            try:
                prctl(_CAPBSET_DROP, capability)
            except KernelRefusal as refusal:
                if refusal.errno != errno.EINVAL:  # the last one the kernel knows was before
                    raise
                break
    prctl(_CAPBSET_DROP, _SETPCAP)


def open_to_all(path: str, need: int) -> bool:
    """Whether any uid could use `path`: search on each ancestor, and the bits `need` (4 read, 2 write) on itself."""
    try:
        mode = os.stat(path).st_mode
        if mode & need != need:
            return False
        while (parent := os.path.dirname(path)) != path:
            path = parent
            if not os.stat(path).st_mode & 1:
                return False
    except OSError:
        return False
    return True
