"""The Host of sources written in Python.

Owns one loaded source and decides how its batches run: blocking, on the worker's main thread, without an event loop,
for a sequential source of plain functions; in `side_by_side`, on the worker's loop, for every other. Must not know
sockets, processes or messages.
"""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import iscoroutinefunction

from toolsd.core.model import ToolSpec
from toolsd.errors import UsageError
from toolsd.host import BatchCancelled, HostBatch, Manifest, SourceLoadError
from toolsd.launch import Launch
from toolsd.source import BatchFunction, Source, Tool

from ..declared import settled
from . import hooks
from .calls import Runnable
from .handover import hand_over
from .loading import Found, load


class PythonHost:
    """One Python source in its worker. `found` is given by who has the source already (`toolsd.testing`)."""

    def __init__(self, launch: Launch, found: Found | None = None) -> None:
        self._launch = launch
        self._found = found
        self._source: Source | None = None
        self._batch_function: BatchFunction | None = None
        self._tools: dict[str, Runnable] = {}
        self._asynchronous = False

    def load(self) -> Manifest:
        if self._launch.options:
            raise SourceLoadError(f"a python source has no options; given: {', '.join(self._launch.options)}")
        found = self._found or load(self._launch.path, self._launch.directory)
        specs = self._prepare(found.tools)
        self._source = found.source
        self._batch_function = found.source.batch_function if found.source is not None else None
        self._asynchronous = _wants_loop(found)
        side_by_side = found.source is None or found.source.scheduling != "sequential"
        return Manifest(specs, self._asynchronous, reentrant=side_by_side)

    def start(self) -> Awaitable[None] | None:
        declared = self._source.start_hooks if self._source is not None else []
        if self._asynchronous:
            return hooks.start_in_loop(declared)
        hooks.start(declared)
        return None

    def run(self, batch: HostBatch) -> Awaitable[None] | None:
        if self._asynchronous:
            from .side_by_side import run

            return run(batch, self._source, self._tools)
        if self._batch_function is not None:
            return hand_over(self._batch_function, batch, batch.calls, self._tools)
        tools = self._tools
        for call in batch.calls:
            if batch.cancelled:  # a tool may have swallowed the exception that was meant to stop it
                raise BatchCancelled
            tools[call.tool].run(batch, call)
        return None

    def close(self) -> Awaitable[None] | None:
        declared = self._source.close_hooks if self._source is not None else []
        if self._asynchronous:
            return hooks.close_in_loop(declared)
        hooks.close(declared)
        return None

    def _prepare(self, tools: dict[str, Tool]) -> tuple[ToolSpec, ...]:
        """Make every tool ready to run; its declaration with the operator's settings over the author's."""
        try:
            declared = [tool.spec for tool in tools.values()]
        except UsageError as error:
            raise SourceLoadError(str(error)) from error
        specs = settled(declared, self._launch.tools)
        for spec in specs:
            self._tools[spec.name] = Runnable(tools[spec.name], spec.timeout, self._launch.result_max)
        return specs


def _wants_loop(found: Found) -> bool:
    """Whether the source needs the worker's event loop: everything but plain functions, one after the other."""
    if any(tool.asynchronous or tool.single for tool in found.tools.values()):
        return True
    source = found.source
    return source is not None and (
        source.scheduling != "sequential"
        or iscoroutinefunction(source.batch_function)
        or hooks.wants_loop(source.start_hooks)
        or hooks.wants_loop(source.close_hooks)
    )
