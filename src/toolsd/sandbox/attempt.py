"""One attempt of a canary, and whether a door was closed to it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

# (guarantee, what is tried, how)
Attempt = tuple[str, str, Callable[[], object]]

# The answers of a closed door, and those of a limit.
_CLOSED = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EXDEV})
_REACHED = frozenset({errno.EBADF, errno.EFBIG, errno.ENOMEM, errno.EAGAIN})


def tried(attempt: Attempt) -> str | None:
    """None when the door was closed, else what the kernel answered."""
    guarantee, _, function = attempt
    closed = _REACHED if guarantee == "limits" else _CLOSED
    pid = os.getpid()
    try:
        function()
    except OSError as error:
        return None if error.errno in closed else str(error)
    except RuntimeError as error:  # a thread that could not be started says no number
        return None if guarantee == "limits" else str(error)
    if os.getpid() != pid:  # the attack was a fork, and this is the child
        os._exit(0)
    return "it was done"
