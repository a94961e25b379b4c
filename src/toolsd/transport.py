"""Sockets: the only module that imports zmq.

Owns socket options, the wake-up rule and bounded, never blocking sends. Knows frames, not messages.

The wake-up rule (zmq_getsockopt(3), ZMQ_FD): the descriptor is edge-triggered, and *any* operation on the socket may
swallow the edge. So a port reads until nothing is left, and looks again after each send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from toolsd.codec import FRAME_MAX, FRAMES_MAX

# Frames from this size are handed to libzmq without a copy (pyzmq's own measured break-even).
_COPY_BELOW = 64 * 1024
# How many messages one wake-up may handle before the loop gets to look at its other descriptors.
_BURST = 64

Frame = zmq.Frame
OnFrames = Callable[[list[Any]], None]


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context of our own. Never made in a process that forks."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.set(zmq.MAX_SOCKETS, min(16_384, int(made.get(zmq.SOCKET_LIMIT))))
    made.set(zmq.BLOCKY, 0)
    return made


def _configured(ctx: zmq.Context[Any], kind: int, hwm: int) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = ctx.socket(kind)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.SNDHWM, hwm)
    socket.set(zmq.RCVHWM, hwm)
    socket.set(zmq.MAXMSGSIZE, FRAME_MAX)
    return socket


def router(ctx: zmq.Context[Any], address: str, *, hwm: int = 1000) -> zmq.Socket[bytes]:
    """A bound ROUTER. Mandatory: an unknown or full peer is an error here, never a silent drop (libzmq #2037)."""
    socket = _configured(ctx, zmq.ROUTER, hwm)
    socket.set(zmq.ROUTER_MANDATORY, 1)
    socket.set(zmq.BACKLOG, 1024)
    socket.bind(address)
    return socket


def dealer(ctx: zmq.Context[Any], address: str, *, hwm: int = 1000) -> zmq.Socket[bytes]:
    """A connecting DEALER."""
    socket = _configured(ctx, zmq.DEALER, hwm)
    socket.connect(address)
    return socket


def inherited_dealer(ctx: zmq.Context[Any], listener: int, address: str) -> zmq.Socket[bytes]:
    """A DEALER bound on an inherited listening descriptor (ZMQ_USE_FD): needs no `socket()` and no `connect()`."""
    socket = _configured(ctx, zmq.DEALER, 0)
    socket.set(zmq.USE_FD, listener)
    socket.bind(address)
    return socket


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits. Asking is also what makes libzmq take note of what its I/O thread has brought."""
    return bool(socket.get(zmq.EVENTS) & zmq.POLLIN)  # type: ignore[arg-type]  # EVENTS is an int


def receive(socket: zmq.Socket[bytes], heads: int = 1) -> list[Any]:
    """One whole message without blocking: the first `heads` frames as bytes, the rest as frames that were not copied.

    Raises:
        zmq.Again: nothing is there.
    """
    frames: list[Any] = [socket.recv(zmq.NOBLOCK)]
    while socket.get(zmq.RCVMORE):
        if len(frames) < heads:
            frames.append(socket.recv(zmq.NOBLOCK))
        elif len(frames) < FRAMES_MAX:
            frames.append(socket.recv(zmq.NOBLOCK, copy=False))
        else:
            socket.recv(zmq.NOBLOCK, copy=False)
    return frames


def send(socket: zmq.Socket[bytes], frames: Sequence[Any]) -> bool:
    """Send one message without blocking. False: the peer's queue is full, or (ROUTER) there is no such peer."""
    try:
        if len(frames) == 1:
            socket.send(frames[0], zmq.NOBLOCK)
        else:
            socket.send_multipart(frames, zmq.NOBLOCK, copy=all(len(f) < _COPY_BELOW for f in frames))
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise
    return True


def peer_descriptor(socket: zmq.Socket[bytes], frame: zmq.Frame) -> int | None:
    """The descriptor of the connection a received (not copied) frame came through; ties it to monitor events."""
    try:
        return int(frame.get(zmq.SRCFD))
    except (zmq.ZMQError, TypeError, ValueError):
        return None


class Port:
    """One socket on an asyncio loop: `on_message(frames)` for each message, `send` that never blocks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        on_message: OnFrames,
        *,
        heads: int = 1,
    ) -> None:
        self.socket = socket
        self._loop = loop
        self._on_message = on_message
        self._heads = heads
        self._fd = int(socket.get(zmq.FD))
        self._again: asyncio.Handle | None = None
        loop.add_reader(self._fd, self.drain)
        self._look_again()

    def send(self, frames: Sequence[Any]) -> bool:
        """As `transport.send`; afterwards looks for what the send may have hidden."""
        sent = send(self.socket, frames)
        if readable(self.socket):
            self._look_again()
        return sent

    def drain(self) -> None:
        """Handle what has arrived, up to one burst."""
        self._again = None
        socket = self.socket
        for _ in range(_BURST):
            if socket.closed or not readable(socket):
                return
            self._on_message(receive(socket, self._heads))
        self._look_again()

    def close(self) -> None:
        """Stop listening and close the socket. Idempotent."""
        if not self.socket.closed:
            self._loop.remove_reader(self._fd)
            self.socket.close(linger=0)
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _look_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self.drain)


class Disconnects:
    """Tells which connection of a bound or connecting socket closed, by its descriptor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], on_closed: Callable[[int], None]
    ) -> None:
        self._watched = socket
        self._on_closed = on_closed
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._port = Port(loop, monitor, self._on_event, heads=2)

    def drain(self) -> None:
        """Handle what is already there: called before a new connection's first message is believed."""
        self._port.drain()

    def close(self) -> None:
        if not self._watched.closed:
            self._watched.disable_monitor()
        self._port.close()

    def _on_event(self, frames: list[Any]) -> None:
        event = parse_monitor_message(frames)
        if event["event"] == zmq.EVENT_DISCONNECTED:
            self._on_closed(int(event["value"]))
