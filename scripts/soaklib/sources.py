"""The sources of the soak: their code, and the configuration in its versions.

Every tool appends one line to a file when it begins and one before it ends: `s|f TOKEN PID SECONDS`, in one write, on
the clock that all processes of the machine share. A token names one call of one turn.
"""

from __future__ import annotations

from pathlib import Path

_COMMON = """
import asyncio, ctypes, itertools, os, signal, subprocess, sys, time
import toolsd

LOG = os.open(os.path.join({witness!r}, "{name}.ran"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(kind, token):
    os.write(LOG, f"{{kind}} {{token}} {{os.getpid()}} {{time.monotonic():.6f}}\\n".encode())

"""

_STEADY = '''
source = toolsd.Source("steady")


@source.tool
def steady_work(token: str, ms: float = 0) -> str:
    """Sleep, and give the token back."""
    note("s", token)
    time.sleep(ms / 1000)
    note("f", token)
    return token


@source.tool
def steady_error(token: str) -> str:
    """An error of the call."""
    note("s", token)
    note("f", token)
    raise toolsd.ToolError(token)


@source.tool
def steady_large(token: str, size: int) -> str:
    """The token and much more."""
    note("s", token)
    print("x" * 70_000)
    note("f", token)
    return token + " " * size
'''

_SWIFT = '''
source = toolsd.Source("swift", scheduling="concurrent")


@source.tool
async def swift_work(token: str, ms: float = 0) -> str:
    """Wait without blocking, and give the token back."""
    note("s", token)
    await asyncio.sleep(ms / 1000)
    note("f", token)
    return token
'''

_FRAGILE = '''
source = toolsd.Source("fragile")


@source.tool
def fragile_work(token: str, ms: float = 0) -> str:
    """Sleep, and give the token back."""
    note("s", token)
    time.sleep(ms / 1000)
    note("f", token)
    return token


@source.tool
def fragile_death(token: str, how: str) -> str:
    """Die."""
    note("s", token)
    if how == "exit":
        os._exit(7)
    if how == "sys.exit":
        sys.exit(8)
    if how == "null":
        ctypes.string_at(0)
    os.kill(os.getpid(), getattr(signal, how))
    return token
'''

_STUCK = '''
source = toolsd.Source("stuck")


@source.tool
def stuck_work(token: str, ms: float = 0) -> str:
    """Sleep, and give the token back."""
    note("s", token)
    time.sleep(ms / 1000)
    note("f", token)
    return token


@source.tool
def stuck_deaf(token: str) -> str:
    """Never end, and hear no signal."""
    note("s", token)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(60)


@source.tool
def stuck_in_c(token: str) -> str:
    """Hold the interpreter's lock in C for ever."""
    note("s", token)
    sum(itertools.repeat(1))
    return token
'''

_TWICE = '''
source = toolsd.Source("twice")


@source.tool(idempotent=True)
def twice_work(token: str, ms: float = 0) -> str:
    """May be run again."""
    note("s", token)
    time.sleep(ms / 1000)
    note("f", token)
    return token
'''

_KEEPER = '''
source = toolsd.Source("keeper")
counts = {}


@source.tool
def keeper_count(context: toolsd.Context, token: str) -> str:
    """How often this session came here."""
    note("s", token)
    counts[context.session] = counts.get(context.session, 0) + 1
    note("f", token)
    return f"{token} {counts[context.session]}"
'''

_VISITOR = '''
source = toolsd.Source("visitor")


@source.tool
def visitor_work(token: str) -> str:
    """A tool that comes and goes with reloads."""
    note("s", token)
    note("f", token)
    return token
'''

_FILES = {
    "steady": (_STEADY, 'replicas = 2\nstart = "eager"\nrecycle = { turns = 40 }\n'),
    "swift": (_SWIFT, "max_batches = 8\n"),
    "fragile": (_FRAGILE, 'on_crash = "fail_calls"\n'),
    "stuck": (_STUCK, 'batch_timeout = "700ms"\ncancel_grace = "100ms"\nreplicas = 2\n'),
    "twice": (_TWICE, ""),
    "keeper": (_KEEPER, 'affinity = "session"\nreplicas = 3\n'),
    "visitor": (_VISITOR, ""),
}
# How many processes each source may have at most (the promise is one more than its replicas).
BOUND = {"steady": 3, "swift": 2, "fragile": 2, "stuck": 3, "twice": 2, "keeper": 4, "visitor": 2}
_HEAD = """
[daemon]
socket = "HOME/sock"
stop_timeout = "20s"

[defaults]
cancel_grace = "200ms"
batch_timeout = "5s"
permissions = { write = ["HOME/witness"] }
queue = { turns = 32, wait = "10s" }
restart = { backoff = "20ms..1s", max = 50, within = "10s", cool_down = "1s" }
"""


def write(home: Path) -> None:
    """The sources' files, below `home`, where their witnesses also go."""
    witness = home / "witness"
    witness.mkdir()
    for name, (text, _) in _FILES.items():
        (home / f"{name}.py").write_text(_COMMON.format(witness=str(witness), name=name) + text)


def config(home: Path, *, version: int = 0, visitor: bool = True) -> str:
    """The text of the configuration. A `version` changes `swift` only; `visitor` says whether that source is there."""
    parts = [_HEAD.replace("HOME", str(home))]
    for name, (_, more) in _FILES.items():
        if name == "visitor" and not visitor:
            continue
        grace = f'cancel_grace = "{200 + version}ms"\n' if name == "swift" else ""
        parts.append(f'[source.{name}]\nkind = "python"\npath = "{name}.py"\n{more}{grace}')
    return "\n".join(parts)
