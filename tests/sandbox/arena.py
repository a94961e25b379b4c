"""Makes decoys, seals a process, lets the attacks loose in it, and looks at the decoys afterwards. Prints JSON.

A program of its own, so that a test starts it as root or as an ordinary user: `arena.py ABI WAY`. Ways: `forked`,
`launched` (exec'd), and `unconfined`, the control that shows that the attacks attack.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import attacks

from toolsd.launch import Confinement
from toolsd.sandbox import places, seal, tier

CANARY = "canary-of-the-daemon"


def sibling():
    """An unconfined process of the daemon's user that counts the signals it gets."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            for number in (signal.SIGUSR1, signal.SIGIO, signal.SIGTERM):
                signal.signal(number, lambda number, _: os.write(writing, b"!"))
            os.write(writing, b"r")
            while True:
                signal.pause()
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    os.set_blocking(reading, False)
    return pid, reading


def listeners(folder):
    made = {}
    for name, family, kind, address in (
        ("unix_stream", socket.AF_UNIX, socket.SOCK_STREAM, os.path.join(folder, "docker.sock")),
        ("unix_datagram", socket.AF_UNIX, socket.SOCK_DGRAM, os.path.join(folder, "log.sock")),
        ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0toolsd-test-{os.getpid()}"),
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
    ):
        made[name] = server = socket.socket(family, kind)
        server.setblocking(False)
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        if family == socket.AF_UNIX and not address.startswith("\0"):
            os.chmod(address, 0o777)
    return made


def heard(server):
    try:
        if server.type == socket.SOCK_STREAM:
            server.accept()[0].close()
        else:
            server.recv(10)
    except OSError:
        return False
    return True


def main(abi, way):
    os.environ["DAEMON_SECRET"] = CANARY
    folder = tempfile.mkdtemp(prefix="toolsd-arena-")
    os.chmod(folder, 0o777)
    outside, scratch, shared = (os.path.join(folder, name) for name in ("outside", "scratch", "shared"))
    for path, mode in ((outside, 0o777), (scratch, 0o700), (shared, 0o777)):
        os.mkdir(path)
        os.chmod(path, mode)
    secret, readable = os.path.join(outside, "secret"), os.path.join(folder, "readable")
    for path, text in ((secret, b"secret"), (readable, b"readable")):
        with open(path, "wb") as file:
            file.write(text)
        os.chmod(path, 0o666)
    servers = listeners(outside)
    before = fingerprint(outside, readable)
    pid, signals = sibling()
    machine = tier.probe(abi)
    runner = os.path.dirname(os.path.abspath(__file__))
    sealed = seal.prepare(
        machine,
        Confinement(read=(readable, runner)),
        own=((), ()),
        code=places.code(),
        scratch=scratch,
        worker=7,
        program=(os.path.realpath(sys.executable),) if way == "launched" else (),
    )
    if sealed.uid is not None:
        os.chown(scratch, sealed.uid, sealed.uid)
    report = os.open(os.path.join(folder, "report"), os.O_RDWR | os.O_CREAT, 0o600)
    decoys = {
        "secret": secret, "folder": outside, "scratch": scratch, "shared": shared, "readable": readable,
        "parent": os.getpid(), "sibling": pid, "granted_descriptors": [report], "canary": CANARY,
        "unix_stream": servers["unix_stream"].getsockname(), "unix_datagram": servers["unix_datagram"].getsockname(),
        "abstract": servers["abstract"].getsockname()[1:].decode(), "tcp": servers["tcp"].getsockname()[1],
        "udp": servers["udp"].getsockname()[1], "launched": way == "launched",
        "unconfined": way == "unconfined",
        "program": os.path.realpath(sys.executable),
    }  # fmt: skip
    child = os.fork()
    if child == 0:
        confined(sealed, report, decoys, scratch, runner)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(report, "rb", closefd=False) as file:
        file.seek(0)
        text = file.read()
    outcomes = json.loads(text) if text else {"report": f"the sealed process ended with {status}"}
    untouched = {
        "decoys": None if (after := fingerprint(outside, readable)) == before else f"{before} became {after}",
        "shared": None if os.listdir(shared) == [] else f"found {os.listdir(shared)}",
        "listeners": str([n for n, s in servers.items() if heard(s)]) if any(map(heard, servers.values())) else None,
        "signals": None,
    }
    with contextlib.suppress(BlockingIOError):
        untouched["signals"] = f"the sibling got {os.read(signals, 10)!r}"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    shutil.rmtree(folder)
    outcomes |= {} if way == "unconfined" else untouched
    print(json.dumps({"abi": machine.landlock, "uid": sealed.uid, "outcomes": outcomes}))


def confined(sealed, report, decoys, scratch, runner):
    try:
        parent = os.getppid()
        os.setsid()
        os.umask(0o077)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        if not decoys["unconfined"]:
            os.closerange(3, report)
            os.closerange(report + 1, 4096)
        os.environ.clear()
        os.chdir(scratch)
        if decoys["unconfined"]:
            os.environ["LEAKED"] = CANARY
            outcomes = {name: attacks.run_one(name, attacks.Decoys(**decoys)) for name in attacks.CONTROLS}
            os.write(report, json.dumps(outcomes).encode())
            return
        seal.enforce(sealed, parent)
        if decoys["launched"]:
            os.set_inheritable(report, True)
            line = f"import sys, json; sys.path[:0] = [{runner!r}]; import attacks; attacks.main(*sys.argv[1:])"
            os.execv(decoys["program"], ["python", "-I", "-S", "-c", line, str(report), json.dumps(decoys)])
        outcomes = attacks.run(attacks.Decoys(**decoys))
        os.write(report, json.dumps(outcomes).encode())
    except BaseException as error:  # noqa: BLE001  # it is the report
        os.write(report, json.dumps({"runner": repr(error)}).encode())
    finally:
        os._exit(0)


def fingerprint(folder, *files):
    """All that a change would show in; not the access time, which reading changes."""
    found = {}
    for path in (folder, *files, *(os.path.join(folder, name) for name in sorted(os.listdir(folder)))):
        state = os.stat(path)
        found[path] = (state.st_mode, state.st_uid, state.st_size, state.st_mtime_ns, state.st_nlink)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
