"""Reloads of the configuration: read it again, publish it as a whole, and tell who asked what came of it.

Owns the configuration that is in force. Must not know how a generation is made: the core publishes it or refuses it,
and says so once for each that was handed to it, in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from toolsd.config import Config, changes
from toolsd.core.events import RegistryPublished
from toolsd.core.instructions import ReloadEnded
from toolsd.errors import ConfigError

_log = logging.getLogger("toolsd")

# Gets the body of the answer (`{"changes": [...], "published": bool, "refused": why or None}`).
OnEnd = Callable[[dict[str, Any]], None]


class _Asked(NamedTuple):
    """A reload that the core works on."""

    config: Config
    body: dict[str, Any]
    on_end: OnEnd


class Reloads:
    """`config` is what is in force, `None` for a coordinator that was given its sources by a program."""

    def __init__(self, config: Config | None, post: Callable[[RegistryPublished], None]) -> None:
        self.config = config
        self._post = post
        self._asked: deque[_Asked] = deque()
        self._reading = asyncio.Lock()

    async def reload(self, on_end: OnEnd, *, dry_run: bool = False) -> None:
        """Read the file again and, unless `dry_run`, publish it. `on_end` is called once, however it ends."""
        body: dict[str, Any] = {"changes": [], "published": False, "refused": None}
        async with self._reading:  # answers come in the order of the readings
            if self.config is None:
                body["refused"] = "this coordinator was not started from a configuration file"
                on_end(body)
                return
            try:
                # In a thread: a file may be on a disk that hangs, and values may come from other files.
                config = await asyncio.to_thread(self.config.again)
            except ConfigError as error:
                body["refused"] = str(error)
                on_end(body)
                return
            body["changes"] = msgspec.to_builtins(changes(self.config, config))
            if dry_run:
                on_end(body)
                return
            self._asked.append(_Asked(config, body, on_end))
            self._post(RegistryPublished(config.sources))

    def ended(self, told: ReloadEnded) -> None:
        """The core published or refused the oldest reload that was handed to it."""
        asked = self._asked.popleft()
        if told.refused is None:
            self.config = asked.config
        asked.on_end({**asked.body, "published": told.refused is None, "refused": told.refused})
