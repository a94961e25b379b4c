"""Sources written in Python with `toolsd.Source`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolsd.host import Host
from toolsd.launch import Launch
from toolsd.source import Source


def make_host(launch: Launch) -> Host:
    """The Host of a worker that serves the Python file or module `launch.path`."""
    from .host import PythonHost

    return PythonHost(launch)


def host_of(declared: Source | Callable[..., Any], launch: Launch) -> Host:
    """A Host of what this process has declared already: a source, or a function under `@toolsd.tool`.

    Raises:
        UsageError: it is neither.
    """
    from .host import PythonHost
    from .loading import found_in

    return PythonHost(launch, found_in(declared))
