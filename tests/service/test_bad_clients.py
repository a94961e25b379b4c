"""What a broken or hostile client sends: it alone is told, exactly; others and what it had running are untouched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from clients.conftest import PATIENCE, Gate, eventually
from toolsd import Client, codec, messages, transport


class Raw:
    """A client that sends what the test says."""

    def __init__(self, address: str, hwm: int = 1000) -> None:
        self._socket, self._monitor = transport.watched_dealer(transport.shared_context(), address, hwm=hwm)
        self._decoder = codec.Decoder(messages.TO_CLIENT)
        self._arrived: list[Any] = []

    def send(self, *frames: bytes) -> None:
        while not transport.send(self._socket, list(frames)):
            assert transport.wait_sendable(self._socket, PATIENCE)

    def say(self, message: messages.Message, *frames: bytes) -> None:
        self.send(*codec.encode(message, frames))

    def hello(self) -> messages.Welcome:
        self.say(messages.Hello((messages.PROTOCOL_VERSION,), "raw", os.getpid()))
        welcome = self.hear(welcome=True)
        assert isinstance(welcome, messages.Welcome)
        return welcome

    def hear(self, *, welcome: bool = False) -> messages.Message:
        """The next message. A welcome that was not asked for is how the coordinator probes, and means nothing."""
        while True:
            while not self._arrived:
                self._arrived += transport.wait(self._socket, self._monitor, PATIENCE)
            message = self._decoder.decode(self._arrived.pop(0)[0])
            assert message is not None
            if welcome or not isinstance(message, messages.Welcome):
                return message

    def refusal(self) -> messages.Refused:
        message = self.hear()
        assert isinstance(message, messages.Refused), message
        return message

    def close(self) -> None:
        transport.close_watched(self._socket, self._monitor)


@pytest.fixture
def raw(client: Client) -> Iterator[Raw]:
    made = Raw(client.address)
    yield made
    made.close()


def packed(kind: bytes, **fields: Any) -> bytes:
    return kind + msgpack.packb(fields)


BAD = [
    (b"", "1 to"),
    (b"R", "Run: not a msgpack header"),
    (b"R\xc1", "Run: not a msgpack header"),
    (b"R" + b"\x91" * 5000, "Run: Expected `object`"),
    (b"R\x81\xa4deep" + b"\x91" * 100_000, "Run: not a msgpack header"),
    (b"R\xdd\xff\xff\xff\xff", "Run: Expected `object`"),
    (b"R\x81\xa5calls\xdd\xff\xff\xff\xff", "Run: not a msgpack header"),
    (packed(b"R", turn="t"), "calls"),
    (packed(b"R", turn="", calls=[]), "turn"),
    (packed(b"R", turn="t" * 129, calls=[]), "turn"),
    (packed(b"R", turn="t", calls=[["id", "echo"]]), "calls"),
    (packed(b"R", turn="t", calls=[["id", "echo", 0]]), "binary frame 0"),
    (packed(b"R", turn="t", calls=[["id", "echo", -1]]), "binary frame -1"),
    (packed(b"R", turn="t", calls=[], deadline=-1.0), "deadline"),
    (packed(b"R", turn="t", calls=[], deadline=float("nan")), "deadline"),
    (packed(b"R", turn="t", calls=[], deadline=float("inf")), "deadline"),
    (packed(b"R", turn="t", calls=[], on_crash="explode"), "on_crash"),
    (packed(b"O", turn="t", names="echo"), "names"),
    (packed(b"C"), "turn"),
    (packed(b"A", ask="one", what="ps"), "ask"),
]


@pytest.mark.parametrize(("head", "said"), BAD, ids=range(len(BAD)))
def test_a_bad_frame_is_told_to_its_sender_alone(client: Client, raw: Raw, head: bytes, said: str) -> None:
    raw.hello()
    raw.send(head)
    refused = raw.refusal()
    assert refused.code == "protocol_violation"
    assert said in refused.message
    assert client.call("echo", {"text": "untouched"}).text == "untouched"
    raw.say(messages.Run("after-bad-frame-" + os.urandom(8).hex(), (messages.WireCall("a", "echo", '{"text": "x"}'),)))
    assert isinstance(raw.hear(), messages.Done)


def test_a_bad_frame_loses_nothing_that_runs(raw: Raw, gate: Gate) -> None:
    raw.hello()
    arguments = f'{{"ready": "{gate.arguments["ready"]}", "release": "{gate.arguments["release"]}"}}'
    raw.say(messages.Run("bad-frame-beside", (messages.WireCall("a", "wait_for", arguments),)))
    gate.wait_until_it_runs()
    raw.send(b"R\xc1")
    raw.refusal()
    gate.release()
    done = raw.hear()
    assert isinstance(done, messages.Done)
    assert done.results == ((0, b"treleased"),)


def test_unknown_kinds_and_keys_are_ignored(raw: Raw) -> None:
    raw.hello()
    raw.send(b"\xfe" + msgpack.packb({"from": "the future"}))
    raw.send(packed(b"R", turn="future-keys", calls=[["a", "echo", '{"text": "x"}']], colour="red"))
    assert isinstance(raw.hear(), messages.Done)


def test_who_did_not_say_hello_is_unknown(raw: Raw) -> None:
    raw.say(messages.Run("no-hello", ()))
    refused = raw.refusal()
    assert refused.code == "coordinator_lost"
    assert "HELLO" in refused.message
    raw.hello()


def test_another_version_is_refused(raw: Raw) -> None:
    raw.say(messages.Hello((99, 100)))
    refused = raw.refusal()
    assert refused.code == "version_mismatch"
    assert "[99, 100]" in refused.message


def test_a_second_hello_is_welcomed_again(raw: Raw) -> None:
    first = raw.hello()
    assert raw.hello() == first


def test_a_frame_beyond_the_limit_costs_the_sender_its_connection(client: Client, raw: Raw) -> None:
    raw.hello()
    raw.send(b"R" + bytes(codec.FRAME_MAX))
    with pytest.raises(transport.ConnectionClosed):
        raw.hear()
    assert client.call("echo", {"text": "untouched"}).text == "untouched"


def test_an_oversized_header_is_refused(client: Client, raw: Raw) -> None:
    raw.hello()
    raw.send(b"R" + bytes(codec.HEADER_MAX))
    assert "1 to" in raw.refusal().message


def test_a_client_that_does_not_read_is_dropped_and_others_are_served(client: Client) -> None:
    """Its answers pile up in the sockets' queues, then in its outbox, until that is full."""
    deaf = Raw(client.address, hwm=1)
    deaf.hello()

    def listed() -> bool:
        return any(c["name"] == "raw" for c in client.ps()["clients"])

    assert listed()
    for _ in range(200):
        for _ in range(100):
            deaf.say(messages.Hello((messages.PROTOCOL_VERSION,)))
        if not listed():
            break
    assert not listed()
    assert client.call("echo", {"text": "served"}).text == "served"
    assert "does not read" in deaf.refusal().message  # when it reads again, that is the last it hears
    deaf.say(messages.Run("deaf-no-more", ()))
    assert "does not know you" in deaf.refusal().message
    deaf.close()


def test_clients_that_come_and_go_leave_no_trace(client: Client) -> None:
    before = len(client.ps()["clients"])
    for _ in range(50):
        passing = Raw(client.address)
        passing.say(messages.Hello((messages.PROTOCOL_VERSION,), "passing"))
        passing.say(messages.Open(os.urandom(8).hex(), ("echo",)))
        passing.close()
    eventually(lambda: len(client.ps()["clients"]) == before, "they are forgotten")
    assert client.ps()["turns"] == []
