"""How much a worker has written into its scratch directory. Reads only, and follows no link of the worker.

The kernel tier cannot bound the sum of many files, so this is looked at now and then, and called so ("polled").
"""

from __future__ import annotations

import os

# What a file costs at least, though it be empty: so that a million empty ones are seen.
_LEAST = 4096


def used(directory: str, limit: int) -> int:
    """Bytes on disk below `directory`; stops counting once `limit` is passed.

    A folder that its own worker has closed to us counts as more than any limit: there is no honest reason for one.
    """
    total = 0
    hidden = False

    def closed(error: OSError) -> None:
        nonlocal hidden
        hidden = hidden or isinstance(error, PermissionError)

    for _root, folders, files, place in os.fwalk(directory, onerror=closed, follow_symlinks=False):
        for name in (*folders, *files):
            try:
                state = os.stat(name, dir_fd=place, follow_symlinks=False)
            except OSError:
                continue
            total += max(state.st_blocks * 512, _LEAST)
        if hidden:
            return limit + 1
        if total > limit:
            break
    return limit + 1 if hidden else total
