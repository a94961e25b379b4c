"""The limit program: what bare pyzmq needs to carry a turn's bytes client -> relay -> worker(s) and back.

Nothing is decoded, decided or run: each process blocks in a poller, then passes prepared messages on. The messages
are byte for byte those of toolsd for the same turn, so a ratio to this program is the price of everything that toolsd
does beyond moving them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import zmq

from benchlib import leash, work
from benchlib.measure import repeat


class Bytes:
    """The four messages of a turn of `calls` calls over `workers` workers."""

    def __init__(self, calls: int, workers: int) -> None:
        from toolsd import codec, messages
        from toolsd.core.instructions import BatchRecord

        turn = "0123456789abcdef0123456789abcdef"
        named = work.tools(calls)
        wire = tuple(
            messages.WireCall(id=f"call_{i:024d}", tool=tool, arguments=work.arguments())
            for i, (_, tool) in enumerate(named)
        )
        share = wire[:: workers if calls > 1 else 1]
        outcome = b"j" + json.dumps(work.EXPECTED, separators=(",", ":")).encode()
        records = tuple(
            BatchRecord(source, 0, 1, 12345, tuple(range(n, calls, workers)), 0.000123)
            for n, source in enumerate(work.SOURCES[:workers])
        )
        done = messages.Done(turn=turn, results=tuple((i, outcome) for i in range(calls)), batches=records)
        self.run = codec.encode(messages.Run(turn=turn, calls=wire))[0]
        self.batch = codec.encode(messages.Batch(batch=1000, turn=turn, calls=share, deadline=120.0))[0]
        self.batch_done = codec.encode(
            messages.BatchDone(batch=1000, results=tuple((i, outcome) for i in range(len(share))))
        )[0]
        self.done = codec.encode(done)[0]


class Chain:
    """A relay and its workers, with a client socket to them."""

    def __init__(self, calls: int, workers: int) -> None:
        self._bytes = Bytes(calls, workers)
        self._home = Path(tempfile.mkdtemp(prefix="toolsd-bench-"))
        front = f"ipc://{self._home}/front"
        backs = [f"ipc://{self._home}/back{n}" for n in range(workers)]
        for name in ("batch", "batch_done", "done"):
            (self._home / name).write_bytes(getattr(self._bytes, name))
        self._processes = [self._start("relay", front, *backs), *(self._start("worker", back) for back in backs)]
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(front)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._turn(timeout=10_000)

    def _start(self, role: str, *addresses: str) -> subprocess.Popen[bytes]:
        return leash.start([sys.executable, "-m", "benchlib.limit", role, str(self._home), *addresses])

    def _turn(self, timeout: int = 5_000) -> None:
        self._socket.send(self._bytes.run)
        if not self._poller.poll(timeout):
            raise TimeoutError("the limit program does not answer")
        self._socket.recv(zmq.NOBLOCK)

    def latencies(self, seconds: float) -> list[float]:
        return repeat(self._turn, seconds)

    def flood(self, seconds: float) -> float:
        """Round trips a second with `work.IN_FLIGHT` in flight."""
        socket, run, answered = self._socket, self._bytes.run, 0
        for _ in range(work.IN_FLIGHT):
            socket.send(run)
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            self._poller.poll(5_000)
            arrived = self._drain()
            answered += arrived
            for _ in range(arrived):
                socket.send(run)
        rate = answered / (time.perf_counter() - begin)
        left = work.IN_FLIGHT
        while left:
            self._poller.poll(5_000)
            left -= self._drain()
        return rate

    def _drain(self) -> int:
        arrived = 0
        while True:
            try:
                self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return arrived
            arrived += 1

    def close(self) -> None:
        self._context.destroy(linger=0)
        for process in self._processes:
            leash.end(process)
        shutil.rmtree(self._home, ignore_errors=True)


class Limit:
    """One worker for turns of one call and for counting messages, two for turns of eight calls."""

    name = "limit"

    def __init__(self) -> None:
        self._one = Chain(calls=1, workers=1)
        self._two = Chain(calls=8, workers=2)
        self._echo = Chain(calls=8, workers=1)

    def latencies(self, calls: int, seconds: float) -> list[float]:
        return (self._one if calls == 1 else self._two).latencies(seconds)

    def flood(self, seconds: float) -> float:
        """Turns over two workers, as the other contenders."""
        return self._two.flood(seconds)

    def close(self) -> None:
        for chain in (self._one, self._two, self._echo):
            chain.close()

    @property
    def messages(self) -> Messages:
        return Messages(self._echo)


class Messages:
    """The limit's messages a second: round trips of one whole turn's bytes through one worker, no fan-out."""

    name = "limit messages"

    def __init__(self, chain: Chain) -> None:
        self._chain = chain

    def latencies(self, calls: int, seconds: float) -> list[float]:
        return self._chain.latencies(seconds)

    def flood(self, seconds: float) -> float:
        return self._chain.flood(seconds)

    def close(self) -> None:
        """The chain belongs to `Limit`."""


def _relay(home: Path, front: str, backs: list[str]) -> None:
    """Pass each request to every worker, and one answer back when all have answered. Workers answer in order."""
    batch, done = (home / "batch").read_bytes(), (home / "done").read_bytes()
    context = zmq.Context()
    clients = context.socket(zmq.ROUTER)
    clients.bind(front)
    workers = [context.socket(zmq.DEALER) for _ in backs]
    poller = zmq.Poller()
    poller.register(clients, zmq.POLLIN)
    for socket, address in zip(workers, backs, strict=True):
        socket.bind(address)
        poller.register(socket, zmq.POLLIN)
    waiting: deque[list[object]] = deque()  # [identity, answers still owed], oldest first
    seen = dict.fromkeys(workers, 0)  # answers of each worker to requests still waiting
    while True:
        for socket, _ in poller.poll():
            while True:
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if socket is clients:
                    waiting.append([frames[0], len(workers)])
                    for worker in workers:
                        worker.send(batch)
                    continue
                place = seen[socket]
                waiting[place][1] -= 1  # type: ignore[operator]
                seen[socket] = place + 1
                if waiting[0][1] == 0:
                    clients.send_multipart([waiting.popleft()[0], done])
                    for worker in workers:
                        seen[worker] -= 1


def _worker(home: Path, address: str) -> None:
    batch_done = (home / "batch_done").read_bytes()
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(address)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    while True:
        poller.poll()
        while True:
            try:
                socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                break
            socket.send(batch_done)


if __name__ == "__main__":
    role, home, first, *rest = sys.argv[1:]
    if role == "relay":
        _relay(Path(home), first, rest)
    else:
        _worker(Path(home), first)
