"""The coordinator's door to its clients: one ROUTER, who is connected, and what still waits to be sent to whom.

Turns client messages into core events and turn instructions into client messages. Owns the connections and their
outboxes; must not know sources, workers or what becomes of a turn.

A peer id of the ROUTER is one connection of one client. It begins with HELLO; the descriptor of the connection, asked
of that message, ties it to the monitor's report of its end. Descriptors are used again by the kernel, so the monitor
is read out before a HELLO is believed: the end of a connection is always reported before its descriptor is free. One
doubt stays: a HELLO may be read after the end of its own connection was. Then a peer is *probed* a moment later: the
ROUTER refuses to send to one that is gone, once all it had sent is read.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from toolsd import codec, messages, transport
from toolsd.content import LogRecord, encode_error, pack_report
from toolsd.core import events, instructions
from toolsd.core.model import Call
from toolsd.errors import Failure, LocalProtocolError, PeerProtocolError, SlotError
from toolsd.messages import Answer, Ask, Hello, Message, Refused, Welcome

_log = logging.getLogger("toolsd.clients")

# What may wait for one client that does not read. Beyond that it is dropped: its turns end, and the one thing that
# still waits for it is the message that says so.
OUTBOX_MESSAGES = 10_000
OUTBOX_BYTES = 128 * 1024 * 1024
OUTBOX_SECONDS = 30.0
# From here on reports of running calls are left out, and their number is told: a tool that talks faster than its client
# listens costs neither its result nor the other turns of that client.
REPORTS_MESSAGES = OUTBOX_MESSAGES // 2
REPORTS_BYTES = OUTBOX_BYTES // 2
# A ROUTER cannot tell when a full peer drains (zmq_socket(3)), so the outboxes are tried again this often.
_RETRY, _RETRY_DROPPED = 0.01, 0.2
_PROBE_AFTER = 0.2
# How many descriptors are kept for workers and for connections that are just being made, at most, and as a part of all
# there are. libzmq ends the process when accept(2) finds none (ipc_listener.cpp takes other errors).
_KEPT, _KEPT_PART = 256, 3

OnEvent = Callable[[events.Event], None]
OnAsk = Callable[[bytes, Ask], None]


class Peer:
    """One connection of a client that has said HELLO. `dropped`: it is not heard any more."""

    __slots__ = ("descriptor", "dropped", "id", "left_out", "name", "outbox", "outbox_bytes", "pid", "stuck_since")

    def __init__(self, identity: bytes, descriptor: int, hello: Hello) -> None:
        self.id = identity
        self.descriptor = descriptor
        self.name = hello.name
        self.pid = hello.pid
        self.outbox: deque[list[Any]] = deque()
        self.outbox_bytes = 0
        self.stuck_since = 0.0
        self.dropped = False
        self.left_out: dict[tuple[str, int], int] = {}  # reports, by turn and index of the call


class Reception:
    """The ROUTER and everybody behind it. `on_event` gets core events, `on_ask` questions to be answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, welcome: Welcome, on_event: OnEvent, on_ask: OnAsk) -> None:
        self._loop = loop
        self._welcome = welcome
        self._on_event = on_event
        self._on_ask = on_ask
        self._peers: dict[bytes, Peer] = {}
        self._by_descriptor: dict[int, list[Peer]] = {}
        self._unclaimed: set[int] = set()
        self._stuck: set[bytes] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._decoder = codec.Decoder(messages.FROM_CLIENT)
        self._readers: dict[type[Message], Callable[[Peer, Any, list[Any]], None]] = {
            messages.Hello: self._hello_again,
            messages.Open: self._open,
            messages.Run: self._run,
            messages.CancelTurn: self._cancel,
            messages.Ask: self._ask,
        }

    def open(self, context: Any, address: str) -> None:
        """Bind and begin to listen."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._full_at = limit - min(_KEPT, limit // _KEPT_PART)
        self._socket = transport.router(context, address)
        self._monitor = transport.monitor(self._socket)
        self._disconnects = transport.Disconnects(self._loop, self._monitor, self._closed)
        self._port = transport.Port(self._loop, self._socket, self._received, known=self._peers)

    def take_leave(self) -> None:
        """Tell everybody that every turn that was taken has been answered, and that no other will be taken."""
        for identity in tuple(self._peers):
            self.send(identity, messages.Bye())

    async def flushed(self, timeout: float) -> None:
        """Wait, up to `timeout` seconds, until nothing is kept back for clients that did not read in time."""
        end = self._loop.time() + timeout
        while any(not self._peers[i].dropped for i in self._stuck) and self._loop.time() < end:
            await asyncio.sleep(_RETRY)

    def close(self, linger: float) -> None:
        """Hear no more. What was handed to the sockets has `linger` seconds to leave."""
        if self._retry is not None:
            self._retry.cancel()
        self._disconnects.stop()
        self._port.detach()
        transport.close_watched(self._socket, self._monitor, linger=linger)

    @property
    def clients(self) -> list[dict[str, Any]]:
        """Who is connected, for people."""
        return [
            {"name": peer.name, "pid": peer.pid, "waiting_messages": len(peer.outbox)}
            for peer in self._peers.values()
            if not peer.dropped
        ]

    # --- in ---------------------------------------------------------------------------------------------------------

    def _received(self, frames: list[Any]) -> None:
        identity = frames[0]
        peer = self._peers.get(identity)
        try:
            if len(frames) < 2:
                raise PeerProtocolError("a message has at least a header")
            if peer is None:
                self._stranger(identity, frames[1])
                return
            message = self._decoder.decode(frames[1])
            if message is not None and not peer.dropped:
                self._readers[type(message)](peer, message, frames)
        except PeerProtocolError as error:
            _log.warning("client %s (pid %s): %s", peer.name if peer else "?", peer.pid if peer else "?", error)
            self._refuse(identity, error.code, error.message)

    def _stranger(self, identity: bytes, head: Any) -> None:
        message = self._decoder.decode(bytes(head))
        if not isinstance(message, Hello):
            text = "this coordinator does not know you; it may have restarted since you said HELLO"
            self._refuse(identity, "coordinator_lost", text)
            return
        if messages.PROTOCOL_VERSION not in message.versions:
            text = f"this coordinator speaks protocol version {messages.PROTOCOL_VERSION}, not {list(message.versions)}"
            self._refuse(identity, "version_mismatch", text)
            return
        descriptor = transport.peer_descriptor(head)
        if descriptor >= self._full_at:  # the kernel gives the lowest number that is free
            text = f"this coordinator has no descriptor left for another client ({len(self._peers)} are connected)"
            self._refuse(identity, "overloaded", f"{text}; raise its limit of open files")
            return
        self._disconnects.drain()
        peer = self._peers[identity] = Peer(identity, descriptor, message)
        sharers = self._by_descriptor.setdefault(descriptor, [])
        sharers.append(peer)
        if descriptor in self._unclaimed or len(sharers) > 1:
            self._unclaimed.discard(descriptor)
            self._loop.call_later(_PROBE_AFTER, self._probe, tuple(sharers))
        self.send(identity, self._welcome)

    def _hello_again(self, peer: Peer, message: Hello, frames: list[Any]) -> None:
        self.send(peer.id, self._welcome)

    def _open(self, peer: Peer, message: messages.Open, frames: list[Any]) -> None:
        self._on_event(events.NamesSeen(peer.id, message.turn, message.names, message.session))

    def _run(self, peer: Peer, message: messages.Run, frames: list[Any]) -> None:
        deadline = message.deadline
        if deadline is not None and not 0 <= deadline < math.inf:
            raise PeerProtocolError(f"Run: a deadline is seconds from now, not {deadline}")
        calls: tuple[Call, ...] = message.calls
        if not codec.inline([call.arguments for call in calls]):
            rest = frames[2:]
            calls = tuple(
                [Call(call.id, call.tool, codec.payload(call.arguments, rest), call.defect) for call in calls]
            )
        self._on_event(
            events.TurnSubmitted(
                peer.id,
                message.turn,
                calls,
                message.session,
                deadline,
                message.defects,
                message.on_defect,
                message.on_crash,
                message.stream,
                message.taken_by is not None and message.taken_by != self._welcome.incarnation,
            )
        )

    def _cancel(self, peer: Peer, message: messages.CancelTurn, frames: list[Any]) -> None:
        self._on_event(events.CancelRequested(peer.id, message.turn))

    def _ask(self, peer: Peer, message: Ask, frames: list[Any]) -> None:
        self._on_ask(peer.id, message)

    def _closed(self, descriptor: int) -> None:
        peers = self._by_descriptor.get(descriptor, [])
        if len(peers) == 1:
            self._forget(peers[0])
        elif peers:
            self._loop.call_later(_PROBE_AFTER, self._probe, tuple(peers))
        else:
            self._unclaimed.add(descriptor)

    def _probe(self, peers: tuple[Peer, ...]) -> None:
        for peer in peers:
            self.send(peer.id, self._welcome)

    def _forget(self, peer: Peer) -> None:
        if self._peers.pop(peer.id, None) is not None:
            self._stuck.discard(peer.id)
            sharers = self._by_descriptor[peer.descriptor]
            sharers.remove(peer)
            if not sharers:
                del self._by_descriptor[peer.descriptor]
            if not peer.dropped:
                self._on_event(events.ClientGone(peer.id))

    # --- out --------------------------------------------------------------------------------------------------------

    def report_results(self, told: instructions.ReportResults) -> None:
        frames = codec.Frames()
        message = messages.Results(told.turn, _slots(told.results, frames))
        self._send_turn(told.client, told.turn, message, frames.frames)

    def report_progress(self, told: instructions.ReportProgress) -> None:
        peer = self._peers.get(told.client)
        if peer is None:
            return
        if len(peer.outbox) >= REPORTS_MESSAGES or peer.outbox_bytes >= REPORTS_BYTES:
            call = (told.turn, told.index)
            peer.left_out[call] = peer.left_out.get(call, 0) + 1
            return
        self._tell_left_out(told.client, told.turn)
        frames = codec.Frames()
        message = messages.Progress(told.turn, told.index, frames.put(told.payload))
        self.send(told.client, message, frames.frames)

    def _tell_left_out(self, client: bytes, turn: str) -> None:
        peer = self._peers.get(client)
        if peer is None or not peer.left_out:
            return
        for call in [call for call in peer.left_out if call[0] == turn]:
            count = peer.left_out.pop(call)
            text = f"{count} reports of this call were left out: they came faster than the client took them"
            told = pack_report(LogRecord("warning", text, {"left_out": count}))
            self.send(client, messages.Progress(turn, call[1], told))

    def finish_turn(self, told: instructions.FinishTurn) -> None:
        frames = codec.Frames()
        message = messages.Done(told.turn, _slots(told.results, frames), told.batches)
        self._send_turn(told.client, told.turn, message, frames.frames)

    def fail_turn(self, told: instructions.FailTurn) -> None:
        self._tell_left_out(told.client, told.turn)
        try:
            self.send(told.client, messages.Failed(told.turn, told.failure))
        except LocalProtocolError:  # a ledger of hundreds of thousands of calls; the cause alone always fits
            self.send(told.client, messages.Failed(told.turn, replace(told.failure, ledger=())))

    def confirm_cancel(self, told: instructions.ConfirmCancel) -> None:
        self.send(told.client, messages.CancelConfirmed(told.turn, told.outcome))

    def answer(self, client: bytes, ask: int, body: Any = None, error: str | None = None) -> None:
        frames = codec.Frames()
        self.send(client, Answer(ask, frames.put(codec.pack(body)), error), frames.frames)

    def send(self, client: bytes, message: Message, frames: list[Any] | None = None) -> None:
        """Send, or queue when the client does not read; one that is gone or takes too little is forgotten.

        Raises:
            LocalProtocolError: the message is larger than the protocol carries.
        """
        peer = self._peers.get(client)
        if peer is None or peer.dropped:
            return
        whole = [client, *codec.encode(message, frames or ())]
        if peer.outbox:
            self._queue(peer, whole)
            return
        try:
            sent = self._port.send(whole)
        except transport.PeerGone:
            self._forget(peer)
            return
        if not sent:
            peer.stuck_since = self._loop.time()
            self._queue(peer, whole)

    def _send_turn(self, client: bytes, turn: str, message: Message, frames: list[Any]) -> None:
        self._tell_left_out(client, turn)
        try:
            self.send(client, message, frames)
        except LocalProtocolError as error:
            failure = Failure("result_too_large", f"the results of the turn cannot be sent: {error.message}")
            self.send(client, messages.Failed(turn, failure))

    def _refuse(self, identity: bytes, code: str, text: str) -> None:
        """Tell a peer, known or not. One that does not take it even now is not waited for."""
        refused = codec.encode(Refused(code, text))
        if identity in self._peers:
            self.send(identity, Refused(code, text))
            return
        try:
            self._port.send([identity, *refused])
        except transport.PeerGone:
            return

    def _queue(self, peer: Peer, whole: list[Any]) -> None:
        peer.outbox.append(whole)
        peer.outbox_bytes += sum(map(len, whole))
        self._stuck.add(peer.id)
        if len(peer.outbox) > OUTBOX_MESSAGES or (len(peer.outbox) > 1 and peer.outbox_bytes > OUTBOX_BYTES):
            self._drop(peer)
        if self._retry is None:
            self._retry = self._loop.call_later(_RETRY, self._flush)

    def _flush(self) -> None:
        self._retry = None
        now = self._loop.time()
        for identity in tuple(self._stuck):
            peer = self._peers[identity]
            try:
                while peer.outbox and self._port.send(peer.outbox[0]):
                    peer.outbox_bytes -= sum(map(len, peer.outbox.popleft()))
                    peer.stuck_since = now
            except transport.PeerGone:
                self._forget(peer)
                continue
            if not peer.outbox:
                self._stuck.discard(identity)
                if peer.dropped:
                    self._forget(peer)
            elif not peer.dropped and now - peer.stuck_since > OUTBOX_SECONDS:
                self._drop(peer)
        if self._stuck:
            hopeless = all(self._peers[identity].dropped for identity in self._stuck)
            self._retry = self._loop.call_later(_RETRY_DROPPED if hopeless else _RETRY, self._flush)

    def _drop(self, peer: Peer) -> None:
        waiting = f"{len(peer.outbox)} messages of {peer.outbox_bytes} bytes"
        _log.warning("client %s (pid %s) does not read: %s wait for it; dropped", peer.name, peer.pid, waiting)
        text = f"it does not read: {waiting} waited for it; its turns were ended"
        peer.outbox.clear()
        peer.outbox.append([peer.id, *codec.encode(Refused("coordinator_lost", text))])
        peer.dropped = True
        self._on_event(events.ClientGone(peer.id))


def _slots(results: tuple[tuple[int, Any], ...], frames: codec.Frames) -> messages.Slots:
    if codec.inline([outcome for _, outcome in results]):
        return results
    put = frames.put
    return tuple(
        [(index, put(encode_error(outcome) if type(outcome) is SlotError else outcome)) for index, outcome in results]
    )
