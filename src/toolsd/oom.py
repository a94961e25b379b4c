"""Whether the kernel's out-of-memory killer struck in our cgroup: the proof that a bare SIGKILL lacks.

Owns the last known count. A worker that was killed while the count rose is called out of memory; one rise explains
one death. Without a memory cgroup there is no such proof, and a SIGKILL stays a SIGKILL.
"""

from __future__ import annotations

from pathlib import Path


class OomKills:
    """The `oom_kill` counter of the cgroup this process is in (cgroups(7); memory.events, or memory.oom_control)."""

    def __init__(self, counter: Path | None = None) -> None:
        self._file = counter or _counter(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
        self._known = self._read()

    def explain(self) -> str | None:
        """The proof for one death by SIGKILL that nobody here caused, if the count has risen since the last one."""
        count = self._read()
        if count <= self._known:
            return None
        self._known += 1
        return f"the kernel's out-of-memory killer struck in this cgroup (oom_kill rose to {count})"

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            lines = self._file.read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return 0
        for line in lines:
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.strip().isdigit():
                return int(value)
        return 0


def _counter(membership: Path, mounts: Path) -> Path | None:
    """The counter's file: that of our own cgroup, or of the hierarchy's visible root (inside a cgroup namespace)."""
    try:
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    places: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if controllers == "":
            places += [mounts / inside / "memory.events", mounts / "memory.events"]
        elif "memory" in controllers.split(","):
            places += [mounts / "memory" / inside / "memory.oom_control", mounts / "memory" / "memory.oom_control"]
    return next((place for place in places if place.exists()), None)
