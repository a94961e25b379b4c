"""Sockets: the only module that imports zmq.

Owns socket options, the wake-up rule and bounded, never blocking sends. Knows frames, not messages.

The wake-up rule (zmq_getsockopt(3), ZMQ_FD): the descriptor is edge-triggered, and *any* operation on the socket may
swallow the edge. So a port reads until nothing is left, and looks again after each send.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

import zmq

from toolsd.codec import FRAME_MAX, FRAMES_MAX

if TYPE_CHECKING:
    import asyncio

# Frames from this size are handed to libzmq without a copy (pyzmq's own measured break-even).
_COPY_BELOW = 64 * 1024
# How many messages one wake-up may handle before the loop gets to look at its other descriptors.
_BURST = 64

# As plain numbers: arithmetic with zmq's enums costs more than the call it is for.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _RCVMORE, _POLLIN = int(zmq.EVENTS), int(zmq.RCVMORE), int(zmq.POLLIN)
# Milliseconds until a lost connection would be tried again: long after its socket is closed.
_NEVER = 3_600_000
# DISCONNECTED is the loss of a connection, CLOSED the failure to make one.
_CLOSED_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED

Frame = zmq.Frame
Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]
OnFrames = Callable[[list[Any]], None]

_monitor_numbers = itertools.count()
_shared: tuple[int, zmq.Context[zmq.Socket[bytes]]] | None = None


class PeerGone(Exception):
    """A ROUTER was asked to send to a peer that has no connection."""


class ConnectionClosed(Exception):
    """The connection of a `dealer(once=True)` could not be made or is lost. There will be no other."""


def context(sockets: int = 16_384) -> Context:
    """A context of our own, for so many sockets (each costs a few bytes even unused). Never made before a fork."""
    made: Context = zmq.Context()
    made.set(zmq.MAX_SOCKETS, min(sockets, int(made.get(zmq.SOCKET_LIMIT))))
    made.set(zmq.BLOCKY, 0)
    return made


def shared_context() -> zmq.Context[zmq.Socket[bytes]]:
    """This process's one context for client links; a forked child gets its own and never touches its parent's."""
    global _shared
    if _shared is None or _shared[0] != os.getpid():
        _shared = (os.getpid(), context())
    return _shared[1]


def _made(ctx: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
    """A socket. Raises OSError where the system has no descriptor left for one."""
    try:
        made: zmq.Socket[bytes] = ctx.socket(kind)
    except zmq.ZMQError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0)) from error
    return made


def _configured(ctx: zmq.Context[Any], kind: int, hwm: int) -> zmq.Socket[bytes]:
    socket = _made(ctx, kind)
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


def watched_dealer(
    ctx: zmq.Context[Any], address: str, *, hwm: int = 1000, silence: float | None = None
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """A DEALER for one connection only, and its monitor, which tells when that is lost or cannot be made.

    A peer whose process hangs as a whole (stopped, not just busy: pings are answered by an I/O thread) counts as lost
    after `silence` seconds.

    What was queued for a coordinator that died must not reach its successor, so it does not reconnect before anybody
    has noticed. (Not ZMQ_RECONNECT_IVL -1: that ends the pipe at once, with answers in it that were not yet read.)
    """
    socket = _configured(ctx, zmq.DEALER, hwm)
    socket.set(zmq.RECONNECT_IVL, _NEVER)
    if silence is not None:
        socket.set(zmq.HEARTBEAT_IVL, int(silence * 1000 / 3))
        socket.set(zmq.HEARTBEAT_TIMEOUT, int(silence * 1000 * 2 / 3))
    try:
        watching = monitor(socket)
    except OSError:
        socket.close(linger=0)
        raise
    socket.connect(address)
    return socket, watching


def monitor(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """A socket that brings the ends of `socket`'s connections (for `Disconnects`, or `wait`)."""
    # Not pyzmq's get_monitor_socket: it names the pair after the descriptor, which a closing socket may still occupy.
    address = f"inproc://toolsd-monitor-{next(_monitor_numbers)}"
    socket.monitor(address, _CLOSED_EVENTS)
    watching = _made(socket.context, zmq.PAIR)
    watching.set(zmq.LINGER, 0)
    watching.connect(address)
    return watching


def close_watched(socket: zmq.Socket[bytes], watching: zmq.Socket[bytes], *, linger: float = 0) -> None:
    """Close both; what is queued has `linger` seconds to leave. Idempotent; from any thread that is alone with them."""
    if not socket.closed:
        socket.monitor(None, 0)
        socket.close(linger=int(linger * 1000))
    watching.close(linger=0)


def inherited_dealer(
    ctx: zmq.Context[Any], listener: int, address: str, *, hwm: int = 1000, linger: int = 1000
) -> zmq.Socket[bytes]:
    """A DEALER bound on an inherited listening descriptor (ZMQ_USE_FD): needs no `socket()` and no `connect()`.

    `linger`: milliseconds that closing waits for the last messages to leave, so that a worker's last words arrive.
    """
    socket = _configured(ctx, zmq.DEALER, hwm)
    socket.set(zmq.LINGER, linger)
    socket.set(zmq.USE_FD, listener)
    socket.bind(address)
    return socket


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits. Asking is also what makes libzmq take note of what its I/O thread has brought."""
    events: Any = socket.get(_EVENTS)
    return bool(events & _POLLIN)


def receive(socket: zmq.Socket[bytes], heads: int = 1) -> list[Any]:
    """One whole message without blocking: the first `heads` frames as bytes, the rest as frames that were not copied.

    Raises:
        zmq.Again: nothing is there.
    """
    return _whole(socket, [socket.recv(_NOBLOCK, copy=heads > 0)], heads)


def _whole(socket: zmq.Socket[bytes], frames: list[Any], heads: int) -> list[Any]:
    while socket.get(_RCVMORE):
        if len(frames) < FRAMES_MAX:
            frames.append(socket.recv(_NOBLOCK, copy=len(frames) < heads))
        else:
            socket.recv(_NOBLOCK, copy=False)
    return frames


def receive_from(socket: zmq.Socket[bytes], known: Container[bytes]) -> list[Any]:
    """As `receive`, on a ROUTER: `[peer, header, ...]`. The header is bytes when the peer is in `known`; that of a
    stranger is a frame that was not copied, so that `peer_descriptor` can be asked of it.
    """
    peer = socket.recv(_NOBLOCK)
    if peer in known:
        return [peer, *receive(socket)]
    return [peer, *receive(socket, 0)]


def await_message(socket: zmq.Socket[bytes], heads: int = 1) -> list[Any]:
    """As `receive`, but waits for the message. Signal handlers run meanwhile; what they raise comes out of here."""
    return _whole(socket, [socket.recv()], heads)


def send(socket: zmq.Socket[bytes], frames: Sequence[Any]) -> bool:
    """Send one message without blocking. False: the peer's queue is full.

    Raises:
        PeerGone: (ROUTER) there is no such peer.
    """
    try:
        # Only the first frame of a message can find the queue full: libzmq counts whole messages.
        for frame in frames[:-1]:
            socket.send(frame, _MORE, copy=len(frame) < _COPY_BELOW)
        socket.send(frames[-1], _NOBLOCK, copy=len(frames[-1]) < _COPY_BELOW)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            raise PeerGone from None
        raise
    return True


def wait(socket: zmq.Socket[bytes], watching: zmq.Socket[bytes], timeout: float) -> list[list[Any]]:
    """Block up to `timeout` seconds for messages of a watched DEALER; all that are there, at most one burst.

    Raises:
        ConnectionClosed: the connection is gone and everything it brought has been read.
    """
    # Rounded up: a wait of less than a millisecond must not become a busy one.
    if not zmq.zmq_poll([(socket, _POLLIN), (watching, _POLLIN)], max(0, -int(-timeout * 1000 // 1))):
        return []
    found: list[list[Any]] = []
    while len(found) < _BURST and readable(socket):
        found.append(receive(socket))
    if not found and readable(watching):
        raise ConnectionClosed
    return found


def wait_sendable(socket: zmq.Socket[bytes], timeout: float) -> bool:
    """Block up to `timeout` seconds until the peer's queue takes a message again."""
    return bool(socket.poll(max(0, int(timeout * 1000)), zmq.POLLOUT))


def peer_descriptor(frame: zmq.Frame) -> int:
    """The descriptor of the connection a received (not copied) frame came through; ties it to monitor events."""
    return int(frame.get(zmq.SRCFD))


class Port:
    """One socket on an asyncio loop: `on_message(frames)` for each message, `send` that never blocks.

    A ROUTER's port is given the peers it knows (see `receive_from`).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: zmq.Socket[bytes],
        on_message: OnFrames,
        *,
        heads: int = 1,
        known: Container[bytes] | None = None,
    ) -> None:
        self.socket = socket
        self._loop = loop
        self._on_message = on_message
        self._heads = heads
        self._known = known
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
        """Handle what has arrived, up to one burst. What `on_message` raises goes to the loop; the rest is kept."""
        self._again = None
        socket = self.socket
        try:
            for _ in range(_BURST):
                if socket.closed or not readable(socket):
                    return
                frames = receive(socket, self._heads) if self._known is None else receive_from(socket, self._known)
                self._on_message(frames)
        except BaseException:
            self._look_again()
            raise
        self._look_again()

    def close(self) -> None:
        """Stop listening and close the socket. Idempotent."""
        self.detach()
        self.socket.close(linger=0)

    def detach(self) -> None:
        """Stop listening and leave the socket open. Idempotent."""
        if not self.socket.closed:
            self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _look_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self.drain)


class Disconnects:
    """Reads a `monitor`: which connection closed, by its descriptor; of a connecting socket also that there is none."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, watching: zmq.Socket[bytes], on_closed: Callable[[int], None]
    ) -> None:
        self._on_closed = on_closed
        self._port = Port(loop, watching, self._on_event, heads=2)

    def drain(self) -> None:
        """Handle all that is there: called before a new connection's first message is believed."""
        while readable(self._port.socket):
            self._port.drain()

    def stop(self) -> None:
        """Stop reading; the monitor itself is closed with the socket it watches (`close_watched`)."""
        self._port.detach()

    def _on_event(self, frames: list[Any]) -> None:
        # Event and value, in the byte order of the machine (zmq_socket_monitor(3)). pyzmq's own reader of it would
        # bring asyncio into workers and blocking clients.
        event, value = struct.unpack("=Hi", frames[0])
        if event & _CLOSED_EVENTS:
            self._on_closed(value)
