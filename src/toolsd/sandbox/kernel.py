"""Raw prctl(2). The only ctypes in toolsd."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_prctl.restype = ctypes.c_int


def _call(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def set_parent_death_signal(signal: int) -> None:
    _call(_PR_SET_PDEATHSIG, signal)


def set_child_subreaper() -> None:
    _call(_PR_SET_CHILD_SUBREAPER, 1)


def set_no_new_privs() -> None:
    _call(_PR_SET_NO_NEW_PRIVS, 1)
