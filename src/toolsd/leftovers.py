"""Finds and kills what a worker left behind when the forkserver, whose children they would be, is dead too.

Only then: a living forkserver knows its descendants without looking for marks (`toolsd.forkserver`). A process is
taken for one of the worker's when it bears a mark no other process has: it works in the worker's scratch directory,
its environment names that directory, or it can write to the worker's output pipe. One that shed all three escapes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat


def kill_marked(scratch: str, pipe: int) -> int:
    """Kill every process that bears a mark of the worker; says how many there were.

    `pipe` is our reading end of its output. Reads /proc, a few milliseconds for some hundred processes.
    """
    output = f"pipe:[{os.fstat(pipe).st_ino}]"
    killed = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            pidfd = os.pidfd_open(int(entry))
            try:
                if _marked(f"/proc/{entry}", scratch, output):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # opened before the look, so it is that process
                    killed += 1
            finally:
                os.close(pidfd)
    return killed


def _marked(process: str, scratch: str, output: str) -> bool:
    where = os.readlink(f"{process}/cwd")
    if where == scratch or where.startswith(f"{scratch}/"):
        return True
    with open(f"{process}/environ", "rb") as file:
        if os.fsencode(scratch) in file.read():
            return True
    for fd in os.listdir(f"{process}/fd"):
        place = f"{process}/fd/{fd}"
        if os.readlink(place) == output and os.lstat(place).st_mode & stat.S_IWUSR:
            return True
    return False
