"""Which arriving message is for whom, on one link: pure bookkeeping shared by the async and the blocking link.

Owns the inboxes of a link and what its end means to each. Must not know sockets, loops or threads.

An inbox is opened before its question is sent: a turn's by the turn id, a cancel's and a question's by their own keys.
Whatever arrives for an inbox that is closed is for somebody who no longer waits, and is dropped.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from toolsd import codec, messages
from toolsd.errors import (
    CoordinatorLost,
    CoordinatorUnreachable,
    PeerProtocolError,
    ProtocolError,
    ToolsdError,
    UsageError,
    VersionMismatch,
)
from toolsd.messages import Message, Welcome

HELLO = "hello"
# A coordinator whose process hangs as a whole is lost after so many seconds.
SILENCE = 30.0


class CoordinatorLeft(CoordinatorLost):
    """It said so before: nothing ran of what it has not answered (`messages.Bye`)."""


class Arrival:
    """One message and the binary frames that came with it."""

    __slots__ = ("frames", "message")

    def __init__(self, message: Message, frames: list[Any]) -> None:
        self.message = message
        self.frames = frames


class Inbox:
    """What has arrived for one waiting party. `failed` is set when nothing more will."""

    __slots__ = ("arrivals", "failed", "wake")

    def __init__(self) -> None:
        self.arrivals: deque[Arrival] = deque()
        self.failed: ToolsdError | None = None
        self.wake: Callable[[], None] | None = None

    @property
    def ready(self) -> bool:
        return bool(self.arrivals) or self.failed is not None

    def take(self) -> Arrival:
        """The next arrival. Raises what ended the link once all that came before is taken."""
        if self.arrivals:
            return self.arrivals.popleft()
        assert self.failed is not None
        raise again(self.failed)


def again(error: ToolsdError) -> ToolsdError:
    """A fresh exception like `error`: each waiter gets its own, with its own traceback."""
    return type(error)(error.message, hint=error.hint)


def check_use(pid: int, closed: bool) -> None:
    """Refuse what cannot work. Raises UsageError."""
    if closed:
        raise UsageError("the client is closed")
    if os.getpid() != pid:
        raise UsageError(
            f"this client was made in process {pid} and this is {os.getpid()}: a fork does not carry connections over",
            hint="connect again in the child",
        )


def cancel_key(turn: str) -> Hashable:
    return ("cancel", turn)


class Routes:
    """The inboxes of one link. `failed` is set once the link is of no more use."""

    def __init__(self) -> None:
        self.failed: ToolsdError | None = None
        self.welcome: Welcome | None = None
        self._leaving = False
        self._inboxes: dict[Hashable, Inbox] = {}
        self._decoder = codec.Decoder(messages.TO_CLIENT)
        self._asked = 0

    def open(self, key: Hashable) -> Inbox:
        """An inbox for `key`. Raises what ended the link, if it has ended."""
        if self.failed is not None:
            raise again(self.failed)
        inbox = self._inboxes[key] = Inbox()
        return inbox

    def next_ask(self) -> int:
        self._asked += 1
        return self._asked

    def close(self, key: Hashable) -> None:
        self._inboxes.pop(key, None)

    def deliver(self, frames: list[Any]) -> None:
        """Put a received message into its inbox."""
        try:
            message = self._decoder.decode(frames[0])
        except PeerProtocolError as error:
            self.fail(error)
            return
        if message is None:
            return
        key: Hashable
        if isinstance(message, messages.Refused):
            self.fail(_refusal(message))
            return
        if isinstance(message, messages.Bye):
            self._leaving = True
            return
        if isinstance(message, Welcome):
            self.welcome, key = message, HELLO
        elif isinstance(message, messages.CancelConfirmed):
            key = cancel_key(message.turn)
        elif isinstance(message, messages.Answer):
            key = message.ask
        else:
            key = message.turn  # type: ignore[attr-defined]  # Results, Progress, Done, Failed
        inbox = self._inboxes.get(key)
        if inbox is not None:
            inbox.arrivals.append(Arrival(message, frames[1:]))
            if inbox.wake is not None:
                inbox.wake()

    def fail(self, error: ToolsdError) -> None:
        """The link is of no more use: everybody who waits is told. Only the first cause counts."""
        if self.failed is not None:
            return
        self.failed = error
        for inbox in self._inboxes.values():
            inbox.failed = error
            if inbox.wake is not None:
                inbox.wake()

    def lost(self) -> None:
        """The connection is gone."""
        who = f" (pid {self.welcome.pid})" if self.welcome else ""
        if self._leaving:
            self.fail(CoordinatorLeft(f"the coordinator{who} has stopped; it had answered all that it took"))
            return
        self.fail(
            CoordinatorLost(
                f"the coordinator{who} went away; what ran of the open turns is unknown",
                hint="if it was restarted, the next turn connects to it again",
            )
        )


def _refusal(refused: messages.Refused) -> ToolsdError:
    kinds: dict[str, type[ToolsdError]] = {
        "coordinator_lost": CoordinatorLost,
        "overloaded": CoordinatorUnreachable,
        "version_mismatch": VersionMismatch,
        "protocol_violation": ProtocolError,
    }
    return kinds.get(refused.code, ProtocolError)(f"the coordinator refused this client: {refused.message}")
