"""What the author of a confined source is told: a denied action says which permission would allow it.

Owns the guesses. The kernel only says EPERM or EACCES; which door it was is told by what the error carries. Changes
nothing about what is allowed. Until `enter` was called there is no sandbox, and nothing to hint at.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from typing import Any

from toolsd.launch import Launch
from toolsd.sandbox.broker import literal, stand_ins

_entered: Launch | None = None


def enter(launch: Launch) -> None:
    """This process is sealed now, for a source of `launch`. Called before the source is loaded."""
    global _entered
    if launch.confinement.mode != "off":
        _entered = launch
        _answer_names(launch)


def hint(error: BaseException) -> str | None:
    """What to grant, if the sandbox may be what stopped it; looks at the error and at what caused it."""
    launch = _entered
    if launch is None:
        return None
    return next((found for seen in _causes(error) if (found := _hint(seen, launch)) is not None), None)


def limit(error: BaseException) -> str | None:
    """The key of the limit that stopped it, if one did: the one to raise."""
    launch = _entered
    if launch is None:
        return None
    return next((found for seen in _causes(error) if (found := _limit(seen, launch)) is not None), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


# What a limit bounds.
_BOUNDS = {
    "limits.threads": "the threads of this source",
    "limits.memory": "the memory of this source",
    "limits.processes": "what this source may start, as limits.threads does",
    "limits.file_size": "the files of this source",
    "limits.open_files": "the open files of this source",
}


def _limit(error: BaseException, launch: Launch) -> str | None:
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "limits.threads"
    if isinstance(error, MemoryError) and launch.limits.memory is not None:
        return "limits.memory"
    if not isinstance(error, OSError):
        return None
    if error.errno == errno.EAGAIN and launch.limits.processes > 1 and error.filename is None:
        return "limits.processes"
    if error.errno == errno.ENOMEM and launch.limits.memory is not None:
        return "limits.memory"
    return {errno.EFBIG: "limits.file_size", errno.EMFILE: "limits.open_files"}.get(error.errno or 0)


def _hint(error: BaseException, launch: Launch) -> str | None:
    if isinstance(error, socket.gaierror):
        return _network(launch, "look up names")
    if type(error).__name__ == "OperationalError" and "unable to open database" in str(error):
        return "the sandbox lets it write only in its scratch directory ($TMPDIR) and below permissions.write"
    limit = _limit(error, launch)
    if limit is not None:
        return f"{limit} bounds {_BOUNDS[limit]}"
    return _by_errno(error, launch) if isinstance(error, OSError) else None


def _by_errno(error: OSError, launch: Launch) -> str | None:
    named = error.filename is not None
    match error.errno:
        case errno.EACCES if named:
            return f"the sandbox has not granted {error.filename}: permissions.read or permissions.write can"
        case errno.EACCES:
            return _network(launch, "open such a connection or socket")
        case errno.EPERM if named:
            return (
                f"the sandbox denies changing modes, owners, times and attributes of files ({error.filename}), as "
                "shutil.copy does: use shutil.copyfile, or grant permissions.file_metadata"
            )
        case errno.EPERM if launch.limits.processes == 1:
            return "the sandbox denies this call; to start programs, set limits.processes above 1 and permissions.exec"
        case errno.EPERM:
            return "the sandbox denies this call"
        case errno.EXDEV if named:
            return "an old kernel denies moving files between folders inside the sandbox: copy and remove instead"
    return None


def _network(launch: Launch, what: str) -> str | None:
    kind = launch.confinement.network.kind
    if kind == "allow":
        return None
    return (
        f'the sandbox does not let this source {what} (permissions.network = "{kind}"); '
        'permissions.network = { connect = ["host:port"] } grants single hosts, "allow" everything'
    )


def _answer_names(launch: Launch) -> None:
    """Let `socket.getaddrinfo` answer in this process for the names that are granted, with their stand-in addresses,
    and say why for all others.
    """
    network = launch.confinement.network
    if network.kind == "allow":
        return
    places = stand_ins(network)
    asked = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        if isinstance(name, str) and name:
            place = places.get(name.lower().rstrip("."))
            if place is not None:
                number = int(port or 0) if isinstance(port, int) or not port or port.isdigit() else _service(port)
                return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (place, number))]
            local = network.kind == "loopback" and name.lower() == "localhost"
            if literal(name) is None and not local:
                message = f"{name}: {_network(launch, 'look it up')}"
                raise socket.gaierror(socket.EAI_FAIL, message)
        return asked(host, port, *more, **named)

    socket.getaddrinfo = getaddrinfo


def _service(name: str) -> int:
    try:
        return socket.getservbyname(name, "tcp")
    except OSError:
        raise socket.gaierror(socket.EAI_SERVICE, f"no service {name!r}") from None
