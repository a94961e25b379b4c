"""How much memory a worker and everything it started use together, where no cgroup counts it. Reads only.

This is looked at now and then, and called so ("polled"): it can be passed for a moment.
"""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def used(pid: int, limit: int) -> int:
    """Bytes of the process `pid` and its descendants, shared ones counted once; files that are mapped do not count.

    Counted roughly first, and in shares (proc_pid_smaps(5), Pss) only when that is above `limit`. A worker is the
    subreaper of what it starts, so nothing of it is anywhere but below.
    """
    family = _family(pid)
    rough = sum(map(_resident, family))
    return rough if rough <= limit else sum(map(_own, family))


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:  # grows while it is walked
        try:
            threads = os.listdir(f"/proc/{member}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{member}/task/{thread}/children", "rb") as file:
                    found += map(int, file.read().split())
            except OSError:
                continue
    return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _own(pid: int) -> int:
    shares = _figures(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon", b"Pss_Shmem"))
    return sum(shares or _figures(f"/proc/{pid}/status", (b"RssAnon", b"RssShmem")))


def _figures(path: str, names: tuple[bytes, ...]) -> list[int]:
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.partition(b":")[0] in names]
