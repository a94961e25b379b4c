"""Workers that are programs of their own: how a confined process becomes one, and what it then finds.

Owns the numbers of the inherited descriptors and the names under which the environment tells them
(`workers/PROTOCOL.md`, "What a worker starts with"). Knows neither the sandbox nor the link.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from toolsd import signals

# The descriptor of the link, which the system call filter also knows by this number; the others follow.
LINK = 3
_NAMES = ("TOOLSD_LINK", "TOOLSD_RECORDER", "TOOLSD_STATUS")
# Above all that a program inherits, and below the smallest limit of open files.
_ASIDE = 16
# Python ignores these for itself, and what is ignored stays so over an exec: a program expects the default.
_AS_USUAL = (signal.SIGPIPE, signal.SIGXFSZ)


class Descriptors(NamedTuple):
    """What a worker inherits: its listening socket, its flight recorder, and /proc/self/status, opened before."""

    listener: int
    recorder: int
    memory: int


def environment(result_max: int) -> dict[str, str]:
    """What a program is told beside the environment of its source. Pure."""
    told = {name: str(LINK + place) for place, name in enumerate(_NAMES)}
    return {**told, "TOOLSD_RESULT_MAX": str(result_max)}


def become(program: Sequence[str], env: Mapping[str, str], fds: Descriptors) -> NoReturn:
    """Replace this process by `program`, whose first word is an absolute path. All other descriptors close on exec.

    The node's two signals are ignored until the program asks for them: their default action would end it.

    Raises:
        OSError: the system does not execute it.
    """
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE) for fd in fds]
    for fd in fds:
        os.close(fd)
    for place, fd in enumerate(aside):
        os.dup2(fd, LINK + place)
    for number in (signals.CANCEL, signals.STACKS):
        signal.signal(number, signal.SIG_IGN)
    for number in _AS_USUAL:
        signal.signal(number, signal.SIG_DFL)
    os.execve(program[0], list(program), dict(env))


def inherited(env: Mapping[str, str]) -> Descriptors | None:
    """What a program was given, or `None` if toolsd did not start it."""
    try:
        return Descriptors(*(int(env[name]) for name in _NAMES))
    except (KeyError, ValueError):
        return None
