"""The first lines of the forkserver: `python -I -S bootstrap.py CONTROL PARENT`.

Run as a script by an interpreter that knows nothing but its standard library, so it imports nothing of ours before it
has been told where that is. The first packet on the control descriptor is what to add to `sys.path`, the next two are
the places of `toolsd` and `toolsd_workers`, which an editable install does not put on any path.

The first thing it does is to ask the kernel for a SIGCONT when its parent dies (prctl(2), PR_SET_PDEATHSIG): that wakes
a process that was stopped, which then finds its control socket at its end and leaves in good order. Before that line,
and only there, a stopped one is woken by the kernel's rule for orphaned process groups (`toolsd.processes` starts it
in a group of its own).
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import sys

_PACKET = 256 * 1024
_PARENT_DEATH_SIGNAL = 1  # prctl(2); `sandbox.kernel` cannot be found yet


def _told(control: int) -> list[str]:
    data = os.read(control, _PACKET)
    if not data:  # who started us is gone
        os._exit(0)
    return [os.fsdecode(place) for place in data.split(b"\0") if place]


def _import_from(name: str, places: list[str]) -> None:
    file = os.path.join(places[0], "__init__.py")
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {file}")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGCONT), 0, 0, 0)
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    sys.path += [place for place in _told(fd) if place not in sys.path]
    _import_from("toolsd", _told(fd))
    _import_from("toolsd_workers", _told(fd))

    from toolsd.forkserver import main

    main(fd, parent)
