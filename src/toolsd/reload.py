"""Reloads of the configuration: read it again, publish it as a whole, and tell who asked what came of it.

Owns the configuration that is in force, and who waits for a reload. Must not know how a generation is made: the core
publishes it or refuses it, and says so once for each that was handed to it, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from toolsd.config import Config, changes
from toolsd.core.events import RegistryPublished
from toolsd.core.instructions import ReloadEnded
from toolsd.errors import ConfigError

_log = logging.getLogger("toolsd")

# How long reading the configuration may take: it, or what it refers to, may be on a disk that hangs. Seconds.
_READING = 20.0

# Gets the body of the answer (`{"changes": [...], "published": bool, "refused": why or None}`).
OnEnd = Callable[[dict[str, Any]], None]


class Reloads:
    """`config` is what is in force, `None` for a coordinator that was given its sources by a program."""

    def __init__(self, config: Config | None, post: Callable[[RegistryPublished], None]) -> None:
        self.config = config
        self._post = post
        self._published: deque[tuple[Config, dict[str, Any], OnEnd]] = deque()
        self._waiting: list[OnEnd] = []  # everybody who was not answered yet
        self._reading = asyncio.Lock()

    async def reload(self, on_end: OnEnd, *, dry_run: bool = False) -> None:
        """Read the file again and, unless `dry_run`, publish it. `on_end` is called once, however it ends."""
        body: dict[str, Any] = {"changes": [], "published": False, "refused": None}
        self._waiting.append(on_end)
        async with self._reading:  # answers come in the order of the readings
            if self.config is None:
                body["refused"] = "this coordinator was not started from a configuration file"
                self._answer(on_end, body)
                return
            try:
                config = await asyncio.wait_for(_in_thread(self.config.again), _READING)
            except TimeoutError:
                body["refused"] = f"the configuration could not be read within {_READING:g} s"
                self._answer(on_end, body)
                return
            except ConfigError as error:
                body["refused"] = str(error)
                self._answer(on_end, body)
                return
            body["changes"] = msgspec.to_builtins(changes(self.config, config))
            if dry_run:
                self._answer(on_end, body)
                return
            self._published.append((config, body, on_end))
            self._post(RegistryPublished(config.sources))

    def ended(self, told: ReloadEnded) -> None:
        """The core published or refused the oldest reload that was handed to it."""
        config, body, on_end = self._published.popleft()
        if told.refused is None:
            self.config = config
        self._answer(on_end, {**body, "published": told.refused is None, "refused": told.refused})

    def stop(self) -> None:
        """Answer those whose configuration is still being read: nothing is published any more."""
        for on_end in tuple(self._waiting):
            self._answer(on_end, {"changes": [], "published": False, "refused": "the coordinator is stopping"})

    def _answer(self, on_end: OnEnd, body: dict[str, Any]) -> None:
        if on_end in self._waiting:
            self._waiting.remove(on_end)
            on_end(body)


def _in_thread(work: Callable[[], Config]) -> asyncio.Future[Config]:
    """Do `work` in a thread that nobody waits for at the end of the process, unlike those of the loop's executor."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Config] = loop.create_future()

    def tell(result: Config | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif result is not None:
            done.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001  # told to who waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name="toolsd-reload", daemon=True).start()
    return done
