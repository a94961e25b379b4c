"""The hooks of a source: what runs before its first batch and after its last.

Owns what is told when one fails. Must not know batches, nor asyncio.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from inspect import isawaitable, iscoroutinefunction

from toolsd.host import SourceLoadError
from toolsd.source import Hook

from .loading import explain


def wants_loop(hooks: Sequence[Hook]) -> bool:
    return any(iscoroutinefunction(hook) for hook in hooks)


def start(hooks: Sequence[Hook]) -> None:
    """Run plain hooks in their order. Raises SourceLoadError: one raised; the source cannot be used."""
    for hook in hooks:
        try:
            if isawaitable(hook()):
                raise TypeError("it gives an awaitable; declare it with async def, so that it is awaited")
        except (Exception, SystemExit) as error:
            raise _broken(hook, error) from error


async def start_in_loop(hooks: Sequence[Hook]) -> None:
    """As `start`, for hooks of which some are coroutine functions."""
    for hook in hooks:
        try:
            done = hook()
            if isawaitable(done):
                await done
        except (Exception, SystemExit) as error:
            raise _broken(hook, error) from error


def close(hooks: Sequence[Hook]) -> None:
    """Run plain hooks, the last declared first. One that raises is told on stderr and keeps no other from running."""
    for hook in reversed(hooks):
        try:
            hook()
        except (Exception, SystemExit):  # noqa: BLE001 - foreign code; the other hooks still have to run
            _told(hook)


async def close_in_loop(hooks: Sequence[Hook]) -> None:
    """As `close`, for hooks of which some are coroutine functions."""
    for hook in reversed(hooks):
        try:
            done = hook()
            if isawaitable(done):
                await done
        except (Exception, SystemExit):  # noqa: BLE001 - foreign code; the other hooks still have to run
            _told(hook)


def _broken(hook: Hook, error: BaseException) -> SourceLoadError:
    return explain(error, f"the on_start hook {_name(hook)} failed")


def _told(hook: Hook) -> None:
    sys.stderr.write(f"toolsd: the on_close hook {_name(hook)} failed:\n")
    traceback.print_exc(file=sys.stderr)


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))
