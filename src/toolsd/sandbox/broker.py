"""Outgoing connections by list: the process that connects in a worker's stead.

Owns what `network = "loopback"` and `network = { connect = [...] }` mean. One broker serves one worker.

Theory of operation. The worker's filter hands `connect` to us instead of running it (seccomp_unotify(2)). We read the
address from the worker's memory once, decide, connect a socket of our own, and put that in the place of the worker's
descriptor. The worker's call itself never runs, so an address that changes after the look changes nothing. Names are
resolved here, because the worker has no network to ask: a granted name has a stand-in address in the worker, from a
range nothing real has (RFC 2544), which we translate. A name that resolves to this machine or to an address that only
means something from inside (loopback, link-local, cloud metadata) is refused: its owner could make it anything.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable
from typing import NamedTuple

from toolsd.launch import Network

_RECV, _SEND, _ID_VALID, _ADDFD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_SETFD = 1
_STAND_INS = ipaddress.IPv4Network("198.18.0.0/15")
# Addresses by which clouds tell a machine its secrets, where they are not link-local anyway.
_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "fd00:ec2::254")))
# How long a worker that set no limit of its own may wait for a connection. Seconds.
_PATIENCE = 60.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(Exception):
    """The grant does not cover it. The worker gets EACCES."""


def stand_ins(network: Network) -> dict[str, str]:
    """The stand-in address of each granted name: the same in the worker and here. Pure."""
    names = dict.fromkeys(host for host, _ in network.connect if literal(host) is None)
    return {name: str(_STAND_INS[number + 1]) for number, name in enumerate(names)}


def literal(host: str) -> Address | None:
    """The address a text is, or None for a name. A v4 address in v6 clothes is the v4 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class Rules:
    """What one worker may connect to. Pure but for `resolve`, which asks the resolver."""

    def __init__(self, network: Network) -> None:
        self._loopback = network.kind == "loopback"
        self._literals = {(literal(host), port) for host, port in network.connect if literal(host) is not None}
        self._names: dict[tuple[Address | None, int], str] = {}
        places = stand_ins(network)
        for host, port in network.connect:
            if host in places:
                self._names[literal(places[host]), port] = host

    def targets(self, address: Address, port: int) -> Iterable[Address]:
        """The real addresses to try, in order.

        Raises:
            Refused: not granted, or a granted name points where no name may.
        """
        if (address, port) in self._literals or (self._loopback and address.is_loopback):
            return (address,)
        name = self._names.get((address, port))
        if name is None:
            raise Refused(f"{address} port {port} is not granted")
        found = resolve(name, port)
        usable = [a for a in found if name == "localhost" or not _inside(a)]
        if not usable:
            raise Refused(f"{name} is {', '.join(map(str, found))}: an address of this machine or network")
        return usable


def resolve(name: str, port: int) -> list[Address]:
    """All addresses of a name.

    Raises:
        OSError: it has none (EHOSTUNREACH), the resolver does not answer.
    """
    try:
        answers = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(errno.EHOSTUNREACH, f"{name}: {error.strerror}") from error
    found = (literal(str(answer[4][0]).partition("%")[0]) for answer in answers)
    return list(dict.fromkeys(address for address in found if address is not None))


def _inside(address: Address) -> bool:
    special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    return special or address in _METADATA or _ours(address)


def _ours(address: Address) -> bool:
    """Whether an interface of this machine has the address: only then can a socket be bound to it."""
    with socket.socket(_family(address), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def hand_over(end: socket.socket, notices: int) -> None:
    """In the worker, sealed: give the descriptor with our calls to the broker, and keep neither."""
    socket.send_fds(end, [b"n"], [notices])
    os.close(notices)
    end.close()


def main(end: socket.socket, network: Network) -> None:
    """Be the broker of the worker at the other end, until it is gone."""
    _, descriptors, _, _ = socket.recv_fds(end, 1, 1, socket.MSG_CMSG_CLOEXEC)
    end.close()
    if descriptors:
        serve(descriptors[0], network)


def serve(listener: int, network: Network) -> None:
    """Answer a worker's connects until it is gone. Each on a thread of its own: one slow address holds nobody up."""
    rules = Rules(network)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        notice = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECV, notice, True)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT):  # the call it was about was interrupted
                continue
            raise
        number, pid, _flags, _call, _arch, _ip, descriptor, pointer, size, *_ = struct.unpack("=QIIiIQ6Q", notice)
        request = _Request(number, pid, descriptor & 0xFFFFFFFF, pointer, min(size & 0xFFFFFFFF, 128))
        threading.Thread(target=_answer, args=(listener, rules, request), daemon=True).start()


class _Request(NamedTuple):
    """One `connect` that waits for us: the call's number, the caller's thread id, and the call's arguments."""

    number: int
    pid: int
    descriptor: int
    pointer: int
    size: int


def _answer(listener: int, rules: Rules, request: _Request) -> None:
    try:
        failure = _connect(listener, rules, request)
    except Refused:
        failure = errno.EACCES
    except OSError as error:
        failure = error.errno or errno.EACCES
    except (ValueError, struct.error):
        failure = errno.EINVAL
    try:
        fcntl.ioctl(listener, _SEND, struct.pack("=QqiI", request.number, 0, -failure, 0))
    except OSError:
        return  # the worker does not wait any more


def _connect(listener: int, rules: Rules, request: _Request) -> int:
    """Connect for the worker; gives its errno, 0 when it is connected."""
    number, pid, descriptor, pointer, size = request
    address, port = _address(_peek(pid, pointer, size))
    blocking = not _flags(pid, descriptor) & os.O_NONBLOCK
    fcntl.ioctl(listener, _ID_VALID, struct.pack("=Q", number))  # what was read belongs to the call, not to a new pid
    failure = errno.EHOSTUNREACH
    for target in rules.targets(address, port):
        with socket.socket(_family(target), socket.SOCK_STREAM) as out:
            out.settimeout(_PATIENCE if blocking else 0)
            failure = out.connect_ex((str(target), port))
            if failure == errno.EAGAIN and blocking:
                failure = errno.ETIMEDOUT
            if failure in (0, errno.EINPROGRESS):
                out.setblocking(blocking)
                order = struct.pack("=QIIII", number, _SETFD, out.fileno(), descriptor, os.O_CLOEXEC)
                fcntl.ioctl(listener, _ADDFD, order)
                return failure
    return failure


def _peek(pid: int, pointer: int, size: int) -> bytes:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, size, pointer)
    finally:
        os.close(memory)


def _flags(pid: int, descriptor: int) -> int:
    with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return 0


def _address(raw: bytes) -> tuple[Address, int]:
    """(address, port) of a sockaddr_in or sockaddr_in6.

    Raises:
        Refused: it is another family.
        struct.error: it is too short.
    """
    (family,) = struct.unpack_from("=H", raw)
    (port,) = struct.unpack_from("!H", raw, 2)
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(struct.unpack_from("4s", raw, 4)[0]), port
    if family == socket.AF_INET6:
        address = ipaddress.IPv6Address(struct.unpack_from("16s", raw, 8)[0])
        return address.ipv4_mapped or address, port
    raise Refused(f"address family {family}")
