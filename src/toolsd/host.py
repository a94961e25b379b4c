"""What a kind of source implements, and what it is given: the contract between the worker runtime and a Host.

The runtime (`worker`) owns the process, the link, deadlines, cancel and the flight recorder. A Host owns one runtime
(a Python module, a Lua state, …) and knows only batches. It must not know sockets, messages or the coordinator.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from toolsd.core.model import ToolSpec


class Manifest(msgspec.Struct, frozen=True):
    """What a loaded source declares.

    `asynchronous`: `run` returns an awaitable and the worker keeps an event loop; otherwise `run` blocks the main
    thread. `reentrant`: the source may hold several batches at a time (needs `asynchronous`).
    """

    tools: tuple[ToolSpec, ...]
    asynchronous: bool = False
    reentrant: bool = False


class HostCall(msgspec.Struct, frozen=True, gc=False):
    """One call as the Host gets it. `arguments` is the raw text the model sent."""

    slot: int
    id: str | None
    tool: str
    arguments: str


class SourceLoadError(Exception):
    """Raised by `Host.load`: the source cannot be used. The text is for its author."""


class SlotMisuse(Exception):
    """Raised by `HostBatch.finished` when a slot does not exist or is filled twice; it fails the batch."""


class BatchCancelled(BaseException):
    """Raised in blocked code when its batch is cancelled. A BaseException, so `except Exception` lets it through."""


class HostBatch(Protocol):
    """One batch, as the runtime hands it to `Host.run`. Its methods may be called from any thread.

    `deadline` is on the `time.monotonic` clock, or `None`.
    """

    turn: str
    session: str | None
    deadline: float | None
    calls: tuple[HostCall, ...]

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this batch to stop."""
        ...

    def started(self, slot: int) -> None:
        """The call begins to run: noted in the flight recorder, at the cost of a memory write."""
        ...

    def finished(self, slot: int, outcome: bytes) -> None:
        """Fill the slot. `outcome` is made by `toolsd.content`. Raises SlotMisuse."""
        ...

    def exhausted(self) -> bool:
        """Whether the worker has used up the memory it may have, asked after an allocation failed.

        If so, the failure must leave `run`, and the worker ends. If not, it asked for an absurd amount: the call's own
        error.
        """
        ...

    def progress(self, slot: int, payload: bytes) -> None:
        """Send progress, output or a log record of a running call (packed by `toolsd.content`)."""
        ...


class Host(Protocol):
    """One kind of source, loaded once in a worker."""

    def load(self) -> Manifest:
        """Load the source and say what it offers. Called before there is an event loop. Raises SourceLoadError."""
        ...

    def start(self) -> Awaitable[None] | None:
        """Run what the source wants done before its first batch.

        Called once, after `load` and before the worker says READY; an asynchronous source gets it awaited in its
        loop. Raises SourceLoadError.
        """
        ...

    def run(self, batch: HostBatch) -> Awaitable[None] | None:
        """Run every call and fill every slot. An exception fails the whole batch."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Release what the source holds. Called once, before the worker leaves by itself."""
        ...
