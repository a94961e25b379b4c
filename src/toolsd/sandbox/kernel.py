"""Raw system calls through libc's `syscall`, and the error they give. The only place ctypes meets the kernel."""

from __future__ import annotations

import ctypes
import errno
import os

from toolsd.sandbox.syscalls import Architecture

PARENT_DEATH_SIGNAL, CHILD_SUBREAPER, NO_NEW_PRIVS = 1, 36, 38

_libc = ctypes.CDLL(None, use_errno=True)


class KernelRefusal(OSError):
    """The kernel refused a call the sandbox needs. `call` is its name, `errno` its answer."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(number, f"{call}: {errno.errorcode.get(number, number)} ({os.strerror(number)})")
        self.call = call

    def __str__(self) -> str:
        return str(self.strerror)


def syscall(arch: Architecture, name: str, *arguments: int) -> int:
    """Call the kernel; integers and addresses only.

    Raises:
        KernelRefusal: it answered with an error.
    """
    ctypes.set_errno(0)
    answer = _libc.syscall(ctypes.c_long(arch.numbers[name]), *(ctypes.c_long(a) for a in arguments))
    if answer == -1:
        raise KernelRefusal(name, ctypes.get_errno())
    return int(answer)


def prctl(option: int, *arguments: int) -> int:
    """prctl(2) with its unused arguments zero.

    Raises:
        KernelRefusal: it answered with an error.
    """
    padded = (*arguments, 0, 0, 0, 0)[:4]
    answer = _libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(a) for a in padded))
    if answer == -1:
        raise KernelRefusal(f"prctl({option})", ctypes.get_errno())
    return int(answer)
