"""Every message on the two links, as typed values: client <-> coordinator and coordinator <-> worker.

Owns the fields; `codec` owns the bytes. A message is `[kind byte + msgpack header] [binary frame]*`. Unknown kinds
and unknown header keys are ignored within a major version (`PROTOCOL_VERSION`), so fields may be added, never
renamed or given another meaning.

A *payload* (arguments: text; an outcome, progress: bytes) is in the header, or, when it is large, the header has the
number of the binary frame that holds it (frame 0 is the first one after the header). The coordinator passes payloads
on unread.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from toolsd.core.instructions import BatchRecord
from toolsd.core.model import Call, CancelOutcome, OnCrash, OnDefect, ToolSpec
from toolsd.errors import Failure

PROTOCOL_VERSION = 1

Text = str | int
Blob = bytes | int
TURN_ID_MAX = 128
TurnId = Annotated[str, msgspec.Meta(min_length=1, max_length=TURN_ID_MAX)]
Slots = tuple[tuple[int, Blob], ...]


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all messages. `kind` is the first byte on the wire."""

    kind = b"\x00"


class WireCall(Call, frozen=True):
    """One call in a `Run` or a `Batch`: `[id, tool, arguments, defect]`."""

    arguments: Text


# --- both links -----------------------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """First message of a client or worker. `versions` are the protocol versions it speaks."""

    kind = b"H"
    versions: tuple[int, ...]
    name: str = ""
    pid: int | None = None


class Refused(Message, frozen=True):
    """The coordinator will not talk to this peer."""

    kind = b"X"
    code: str
    message: str


# --- client -> coordinator ------------------------------------------------------------------------------------------


class Open(Message, frozen=True):
    """Tool names became known in a running stream (`events.NamesSeen`)."""

    kind = b"O"
    turn: TurnId
    names: tuple[str, ...]
    session: str | None = None


class Run(Message, frozen=True):
    """All calls of a turn (`events.TurnSubmitted`).

    `taken_by` is the incarnation of the coordinator that took this session's last turn, as far as the client knows.
    """

    kind = b"R"
    turn: TurnId
    calls: tuple[WireCall, ...]
    session: str | None = None
    deadline: float | None = None
    defects: tuple[str, ...] = ()
    on_defect: OnDefect = "refuse"
    on_crash: OnCrash | None = None
    stream: bool = False
    taken_by: str | None = None


class CancelTurn(Message, frozen=True):
    kind = b"C"
    turn: TurnId


class Ask(Message, frozen=True):
    """A question or an order that is not a turn (`tools`, `ps`, `reload`, `stop`), answered by one `Answer`."""

    kind = b"A"
    ask: int
    what: str
    args: dict[str, Any] = {}


# --- coordinator -> client ------------------------------------------------------------------------------------------


class Welcome(Message, frozen=True):
    """Answer to `Hello`. `incarnation` is new for every life of a coordinator."""

    kind = b"W"
    version: int
    incarnation: str
    pid: int
    toolsd: str


class Results(Message, frozen=True):
    """Results that landed while the turn goes on: (call index, outcome)."""

    kind = b"r"
    turn: str
    results: Slots


class Progress(Message, frozen=True):
    kind = b"p"
    turn: str
    index: int
    payload: Blob


class Done(Message, frozen=True):
    """The turn ended well: the outcomes not sent before, in call order."""

    kind = b"d"
    turn: str
    results: Slots
    batches: tuple[BatchRecord, ...] = ()


class Failed(Message, frozen=True):
    kind = b"f"
    turn: str
    failure: Failure


class CancelConfirmed(Message, frozen=True):
    kind = b"c"
    turn: str
    outcome: CancelOutcome | None


class Answer(Message, frozen=True):
    """`body` is a packed plain value (`codec.pack`); `error` is set instead when there is no answer."""

    kind = b"a"
    ask: int
    body: Blob = b"\xc0"
    error: str | None = None


# --- worker -> coordinator ------------------------------------------------------------------------------------------


class Ready(Message, frozen=True):
    kind = b"Y"
    tools: tuple[ToolSpec, ...]
    reentrant: bool = False


class StartFailed(Message, frozen=True):
    """The source does not load; the worker leaves after this."""

    kind = b"E"
    message: str
    detail: str | None = None


class Partial(Message, frozen=True):
    """Finished slots of a batch that goes on: (slot, outcome)."""

    kind = b"P"
    batch: int
    results: Slots


class BatchDone(Message, frozen=True):
    """The batch ended: the outcomes not sent before, or the failure of the whole batch."""

    kind = b"D"
    batch: int
    results: Slots = ()
    failure: Failure | None = None


class CallProgress(Message, frozen=True):
    kind = b"G"
    batch: int
    slot: int
    payload: Blob


class Bye(Message, frozen=True):
    """A worker whose source is closed leaves. A coordinator leaves, and has answered every turn that it took: to one
    that hears this, a turn without an answer was never taken, and nothing of it ran.
    """

    kind = b"B"


# --- coordinator -> worker ------------------------------------------------------------------------------------------


class Batch(Message, frozen=True):
    """All calls of one turn for this source, in call order. `deadline` is seconds from receipt."""

    kind = b"b"
    batch: int
    turn: str
    calls: tuple[WireCall, ...]
    session: str | None = None
    deadline: float | None = None
    flush: bool = False
    region: int = 0


class CancelBatch(Message, frozen=True):
    kind = b"x"
    batch: int


class Deinit(Message, frozen=True):
    kind = b"z"


FROM_CLIENT = (Hello, Open, Run, CancelTurn, Ask)
TO_CLIENT = (Welcome, Refused, Results, Progress, Done, Failed, CancelConfirmed, Answer, Bye)
FROM_WORKER = (Hello, Ready, StartFailed, Partial, BatchDone, CallProgress, Bye)
TO_WORKER = (Refused, Batch, CancelBatch, Deinit)
