"""The blocking link to a coordinator: one socket per thread, a lock per link.

Owns the sockets. Its asyncio twin with the same surface is `async_link`.

A thread that waits holds the link's lock for one short poll at a time and puts whatever arrives into its inbox, so a
second thread that waits on the same link (a turn finished elsewhere than where it was opened) gets its answers too.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from toolsd import codec, messages, transport
from toolsd.client import routes
from toolsd.client.routes import HELLO, Arrival, Inbox, Routes, check_use
from toolsd.errors import UsageError
from toolsd.messages import Message
from toolsd.runtime import explain_absence

T = TypeVar("T")

# How long one poll may hold the lock, in seconds.
_SLICE = 0.05
_FULL_RETRY = 0.005


def blocking(work: Callable[[], T]) -> T:
    """Run blocking `work`."""
    return work()


class Link:
    """One connection, made for one thread; others may use it and then take turns."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pid = os.getpid()
        # Reentrant, for a signal handler that uses the client. `with` is what keeps Ctrl-C from leaving it locked.
        self._lock = threading.RLock()
        self._waiting: set[int] = set()
        self.routes = Routes()
        self._socket, self._monitor = transport.watched_dealer(
            transport.shared_context(), address, silence=routes.SILENCE
        )

    @property
    def usable(self) -> bool:
        return self.routes.failed is None

    def greet(self, name: str, timeout: float) -> None:
        """Say HELLO and wait for the answer. Raises CoordinatorUnreachable, VersionMismatch."""
        inbox = self.routes.open(HELLO)
        deadline = time.monotonic() + timeout
        try:
            self.post(messages.Hello((messages.PROTOCOL_VERSION,), name, os.getpid()))
            while not inbox.ready:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise explain_absence(self._address)
                self._pump(inbox, min(left, _SLICE))
            inbox.take()
        finally:
            self.routes.close(HELLO)

    def post(self, message: Message, frames: Sequence[Any] = ()) -> bool:
        """Send without waiting. False: the coordinator does not read at the moment."""
        return self._send(codec.encode(message, frames))

    def send(self, message: Message, frames: Sequence[Any] = ()) -> None:
        """Send; waits while the coordinator does not read."""
        whole = codec.encode(message, frames)
        nothing = Inbox()
        while not self._send(whole) and self.routes.failed is None:
            self._pump(nothing, _FULL_RETRY)

    def next(self, inbox: Inbox) -> Arrival:
        """The next arrival in `inbox`. Raises what ended the link."""
        while not inbox.ready:
            self._pump(inbox, _SLICE)
        return inbox.take()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.routes.fail(UsageError("the client is closed"))
        if os.getpid() == self._pid:
            with self._lock:
                transport.close_watched(self._socket, self._monitor, linger=0.2)

    def __del__(self) -> None:
        if os.getpid() == self._pid and hasattr(self, "_socket"):  # the system may have refused it one
            transport.close_watched(self._socket, self._monitor, linger=0.2)

    def _send(self, whole: list[Any]) -> bool:
        me = threading.get_ident()
        self._waiting.add(me)
        try:
            with self._lock:
                return not self._socket.closed and transport.send(self._socket, whole)
        finally:
            self._waiting.discard(me)

    def _pump(self, inbox: Inbox, timeout: float) -> None:
        """Let what arrives within `timeout` be delivered, to whomever it is for."""
        me = threading.get_ident()
        self._waiting.add(me)
        try:
            with self._lock:
                self._waiting.discard(me)
                if inbox.ready or self._socket.closed:
                    return
                for frames in transport.wait(self._socket, self._monitor, timeout):
                    self.routes.deliver(frames)
        except transport.ConnectionClosed:
            if self.routes.welcome is None:
                self.routes.fail(explain_absence(self._address))
            else:
                self.routes.lost()
        finally:
            self._waiting.discard(me)
        if self._waiting and not inbox.ready:
            time.sleep(0.001)  # a lock is not fair: without this another thread might never get it


class Links:
    """The links of a blocking client: one per thread, made on first use, anew when its coordinator was lost."""

    def __init__(self, name: str, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._pid = os.getpid()
        self._own = threading.local()
        self._all: weakref.WeakSet[Link] = weakref.WeakSet()
        self._closed = False

    def check_use(self) -> None:
        """Raises UsageError if the client is closed, or belongs to the process this one was forked from."""
        check_use(self._pid, self._closed)

    def existing(self) -> Link | None:
        """This thread's link if there is one, without waiting."""
        link: Link | None = getattr(self._own, "link", None)
        return link if link is not None and link.usable and os.getpid() == self._pid else None

    def current(self, address: str) -> Link:
        """A link of this thread that works.

        Raises:
            CoordinatorUnreachable: nobody answers within the bound.
            UsageError: the client is closed, or belongs to the process this one was forked from.
        """
        self.check_use()
        link: Link | None = getattr(self._own, "link", None)
        if link is None or not link.usable:
            if link is not None:
                link.close()
            link = Link(address)
            try:
                link.greet(self._name, self._timeout)
            except BaseException:
                link.close()
                raise
            self._own.link = link
            self._all.add(link)
        return link

    def close(self) -> None:
        self._closed = True
        if os.getpid() == self._pid:
            for link in tuple(self._all):
                link.close()
