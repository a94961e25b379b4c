"""The asyncio link to a coordinator: one socket on the running loop, futures for those who wait.

Owns the socket. Its blocking twin with the same surface is `sync_link`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toolsd import codec, messages, transport
from toolsd.client import routes
from toolsd.client.routes import HELLO, Arrival, Inbox, Routes, check_use
from toolsd.errors import ToolsdError, UsageError
from toolsd.messages import Message
from toolsd.runtime import explain_absence

T = TypeVar("T")

# A full queue towards the coordinator is looked at again after this many seconds.
_FULL_RETRY = 0.005


async def blocking(work: Callable[[], T]) -> T:
    """Run blocking `work` without blocking the loop."""
    return await asyncio.to_thread(work)


class AsyncLink:
    """One connection. Usable from the loop it was made on."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self.routes = Routes()
        self._socket, self._monitor = transport.watched_dealer(
            transport.shared_context(), address, silence=routes.SILENCE
        )
        self._port = transport.Port(self._loop, self._socket, self.routes.deliver)
        self._disconnects = transport.Disconnects(self._loop, self._monitor, self._closed)

    @property
    def usable(self) -> bool:
        return self.routes.failed is None

    def at_home(self) -> bool:
        """Whether the running loop is the one it was made on."""
        return asyncio.get_running_loop() is self._loop

    async def greet(self, name: str, timeout: float) -> None:
        """Say HELLO and wait for the answer. Raises CoordinatorUnreachable, VersionMismatch."""
        inbox = self.routes.open(HELLO)
        self.post(messages.Hello((messages.PROTOCOL_VERSION,), name, os.getpid()))
        try:
            async with asyncio.timeout(timeout):
                await self.next(inbox)
        except TimeoutError:
            raise explain_absence(self._address) from None
        finally:
            self.routes.close(HELLO)

    def post(self, message: Message, frames: Sequence[Any] = ()) -> bool:
        """Send without waiting. False: the coordinator does not read at the moment."""
        return self._port.send(codec.encode(message, frames))

    async def send(self, message: Message, frames: Sequence[Any] = ()) -> None:
        """Send; waits while the coordinator does not read."""
        whole = codec.encode(message, frames)
        while not self._port.send(whole):
            if self.routes.failed is not None:
                return
            await asyncio.sleep(_FULL_RETRY)

    async def next(self, inbox: Inbox) -> Arrival:
        """The next arrival in `inbox`. Raises what ended the link."""
        if not inbox.ready:
            future = self._loop.create_future()
            inbox.wake = lambda: None if future.done() else future.set_result(None)
            try:
                await future
            finally:
                inbox.wake = None
        return inbox.take()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.routes.fail(UsageError("the client is closed"))
        self._disconnects.stop()
        self._port.detach()
        transport.close_watched(self._socket, self._monitor, linger=0.2)

    def _closed(self, descriptor: int) -> None:
        while transport.readable(self._socket):  # answers it gave before it went
            self._port.drain()
        if self.routes.welcome is None:
            self.routes.fail(explain_absence(self._address))
        else:
            self.routes.lost()


class AsyncLinks:
    """The link of an async client: made on first use, made anew when its coordinator was lost."""

    def __init__(self, name: str, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._pid = os.getpid()
        self._link: AsyncLink | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    def check_use(self) -> None:
        """Raises UsageError if the client is closed, or belongs to the process this one was forked from."""
        check_use(self._pid, self._closed)

    def existing(self) -> AsyncLink | None:
        """The link if there is one, without waiting."""
        return self._link if self._link is not None and self._link.usable and os.getpid() == self._pid else None

    async def current(self, address: str) -> AsyncLink:
        """A link that works.

        Raises:
            CoordinatorUnreachable: nobody answers within the bound.
            UsageError: the client is closed, or belongs to the process this one was forked from.
        """
        self.check_use()
        async with self._lock:
            link = self._link
            if link is not None and not link.at_home():
                raise UsageError("this client belongs to another event loop", hint="make one client for each loop")
            if link is None or not link.usable:
                if link is not None:
                    link.close()
                self._link = link = AsyncLink(address)
                try:
                    await link.greet(self._name, self._timeout)
                except BaseException as error:
                    if isinstance(error, ToolsdError):
                        link.routes.fail(error)  # others may wait on it, and are told why
                    link.close()
                    raise
        return link

    def close(self) -> None:
        self._closed = True
        if self._link is not None and os.getpid() == self._pid and self._link.at_home():
            self._link.close()
