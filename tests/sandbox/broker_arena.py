"""A sealed process with a broker, and what it could connect to. Prints JSON. `broker_arena.py`."""

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import struct
import tempfile
import threading

from toolsd.launch import Confinement, Network
from toolsd.sandbox import broker, places, seal, tier


def listener(host="127.0.0.1"):
    server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    server.bind((host, 0))
    server.listen()
    return server


def attempt(function):
    try:
        return function()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def connect(address, kind=socket.SOCK_STREAM, protocol=0, timeout=None):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, kind, protocol) as out:
        out.settimeout(timeout)
        out.connect(address)
        out.sendall(b"hello")
        return out.recv(5).decode()


def fast_open(address):
    with socket.socket() as out:
        return out.sendto(b"x", 0x20000000, address)


def fast_open_connect(address):
    with socket.socket() as out:
        out.setsockopt(socket.IPPROTO_TCP, 30, 1)
        out.connect(address)


def listen():
    with socket.socket() as out:
        out.listen()


def racing(allowed, forbidden):
    """Change the address while the call is being looked at: which port does the socket end up at?"""
    libc = ctypes.CDLL(None)
    good, bad = (struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), b"\x7f\0\0\x01")
                 for port in (allowed, forbidden))  # fmt: skip
    buffer = ctypes.create_string_buffer(good, 16)
    stop = threading.Event()

    def flip():
        turn = 0
        while not stop.is_set():
            turn += 1
            ctypes.memmove(buffer, bad if turn % 2 else good, 16)

    flipper = threading.Thread(target=flip)
    flipper.start()
    reached = set()
    for _ in range(50):
        with socket.socket() as out:
            if libc.connect(out.fileno(), buffer, 16) == 0:
                reached.add(out.getpeername()[1])
    stop.set()
    flipper.join()
    return sorted(reached - {allowed})


async def asynchronously(address):
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"hello")
    got = await reader.readexactly(5)
    writer.close()
    return got.decode()


def worker(ports, named):
    allowed, other = ports
    many = [None] * 8

    def one(place):
        many[place] = attempt(lambda: connect(("127.0.0.1", allowed)))

    threads = [threading.Thread(target=one, args=(place,)) for place in range(len(many))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "granted": attempt(lambda: connect(("127.0.0.1", allowed))),
        "granted with timeout": attempt(lambda: connect(("127.0.0.1", allowed), timeout=5)),
        "granted in v6 clothes": attempt(lambda: connect(("::ffff:127.0.0.1", allowed))),
        "asyncio": attempt(lambda: asyncio.run(asynchronously(("127.0.0.1", allowed)))),
        "many at once": many,
        "name": attempt(lambda: connect((named["localhost"], allowed))),
        "name of ourselves": attempt(lambda: connect((named[socket.gethostname().lower()], allowed))),
        "unused stand-in": attempt(lambda: connect(("198.18.0.200", allowed))),
        "other port": attempt(lambda: connect(("127.0.0.1", other))),
        "other address": attempt(lambda: connect(("127.0.0.2", allowed))),
        "any address": attempt(lambda: connect(("0.0.0.0", allowed))),
        "metadata": attempt(lambda: connect(("169.254.169.254", 80))),
        "mptcp": attempt(lambda: connect(("127.0.0.1", other), protocol=262)),
        "udp": attempt(lambda: connect(("127.0.0.1", other), kind=socket.SOCK_DGRAM)),
        "fast open": attempt(lambda: fast_open(("127.0.0.1", other))),
        "fast open connect": attempt(lambda: fast_open_connect(("127.0.0.1", other))),
        "bind": attempt(lambda: socket.socket().bind(("127.0.0.1", 0))),
        "listen": attempt(listen),
        "unix": attempt(lambda: socket.socket(socket.AF_UNIX)),
        "race": racing(allowed, other),
    }


def main():
    room = tempfile.mkdtemp(prefix="toolsd-broker-")
    servers = [listener(), listener()]
    ports = [server.getsockname()[1] for server in servers]
    heard = []
    network = Network("connect", (("127.0.0.1", ports[0]), ("localhost", ports[0]), (socket.gethostname(), ports[0])))
    sealed = seal.prepare(
        tier.probe(),
        Confinement(network=network),
        own=((), ()),
        code=places.code(),
        scratch=room,
        worker=9,
    )
    if sealed.uid is not None:
        os.chown(room, sealed.uid, sealed.uid)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    read, write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            notices = seal.enforce(sealed, parent)
            broker.hand_over(theirs, notices)
            named = {name.lower(): place for name, place in broker.stand_ins(network).items()}
            report = json.dumps(worker(ports, named))
        except BaseException as error:  # noqa: BLE001  # it is the report
            report = json.dumps({"worker": repr(error)})
        os.write(write, report.encode())
        os._exit(0)
    theirs.close()
    os.close(write)
    helper = os.fork()
    if helper == 0:
        with contextlib.suppress(BaseException):
            broker.main(ours, network)
        os._exit(0)

    def echo(server, port):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            heard.append(port)
            with connection, contextlib.suppress(OSError):
                connection.sendall(connection.recv(5))

    for server, port in zip(servers, ports, strict=True):
        threading.Thread(target=echo, args=(server, port), daemon=True).start()
    with open(read) as file:
        report = file.read()
    os.waitpid(pid, 0)
    ended = os.waitpid(helper, 0)[1]  # it ends by itself when the worker is gone
    shutil.rmtree(room)
    signal.alarm(0)
    print(json.dumps({"seen": json.loads(report), "forbidden heard": heard.count(ports[1]), "broker": ended}))


if __name__ == "__main__":
    signal.alarm(50)
    main()
