"""Sources in shared libraries: C, C++, Rust, or whatever else exports the functions of `toolsd_source.h`."""

from __future__ import annotations

import os

from toolsd.host import Host
from toolsd.launch import Launch

# The folder of `toolsd_source.h`, for a compiler's -I.
INCLUDE = os.path.dirname(os.path.abspath(__file__))


def make_host(launch: Launch) -> Host:
    """The Host of a worker that serves the shared library `launch.path`."""
    from .host import NativeHost

    return NativeHost(launch)
