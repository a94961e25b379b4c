"""Everything that can happen to the core, in the past tense. Frozen values; time comes beside them, not inside.

`client` is an opaque hashable peer id given by the shell. `worker` is an incarnation: one life of one replica, a
number the core chose in `StartWorker` and never uses again. `batch` likewise. An event about a worker or batch the
core no longer knows is stale: it changes nothing and is counted.
"""

from __future__ import annotations

from typing import Any

from toolsd.core.model import Call, ExitReport, OnCrash, OnDefect, SourceSpec, ToolSpec, Value
from toolsd.errors import CallState, Failure

# --- from clients ---------------------------------------------------------------------------------------------------


class NamesSeen(Value, frozen=True):
    """Tool names became known in a stream that is still running: their sources may be warmed. Opens the turn."""

    client: Any
    turn: str
    names: tuple[str, ...]
    session: str | None = None


class TurnSubmitted(Value, frozen=True):
    """All calls of a turn are known. `deadline` is seconds from now for the whole turn, `defects` are turn-level.

    `stream` asks for results as they land and for progress. `orphaned`: the session's last turn went to a coordinator
    that is gone, and its state with it.
    """

    client: Any
    turn: str
    calls: tuple[Call, ...]
    session: str | None = None
    deadline: float | None = None
    defects: tuple[str, ...] = ()
    on_defect: OnDefect = "refuse"
    on_crash: OnCrash | None = None
    stream: bool = False
    orphaned: bool = False


class CancelRequested(Value, frozen=True):
    """Somebody asked to cancel a turn (its owner, or another connection of the same user)."""

    client: Any
    turn: str


class ClientGone(Value, frozen=True):
    """The client's connection closed: its turns have nobody to go to."""

    client: Any


# --- from workers, through the node ---------------------------------------------------------------------------------


class WorkerStarted(Value, frozen=True):
    """The process exists."""

    worker: int
    pid: int


class WorkerReady(Value, frozen=True):
    """The source is loaded and has declared its tools. `reentrant`: it may hold more than one batch."""

    worker: int
    tools: tuple[ToolSpec, ...]
    reentrant: bool = False


class WorkerStartFailed(Value, frozen=True):
    """The worker could not be started, or reported that its source does not load. Its exit may follow."""

    worker: int
    message: str
    detail: str | None = None


class SlotsFilled(Value, frozen=True):
    """Some slots of a batch are filled, others still run. `results` are (slot, opaque outcome) pairs."""

    worker: int
    batch: int
    results: tuple[tuple[int, Any], ...]


class BatchFinished(Value, frozen=True):
    """The batch returned. `results` are the (slot, outcome) pairs not reported before."""

    worker: int
    batch: int
    results: tuple[tuple[int, Any], ...]


class BatchFailed(Value, frozen=True):
    """The batch ended as a whole: an error came out of `invoke_batch`, a slot stayed empty, or it was cancelled.

    `failure.code` is `batch_raised`, `results_incomplete`, `protocol_violation` or `turn_cancelled`. `states` is the
    flight record of its calls, if there was one.
    """

    worker: int
    batch: int
    failure: Failure
    states: tuple[CallState, ...] | None = None


class ProgressReported(Value, frozen=True):
    """A running call reported progress, partial output or a log record; `payload` is opaque."""

    worker: int
    batch: int
    slot: int
    payload: Any


class WorkerGrew(Value, frozen=True):
    """The worker's memory is above the `rss_limit` it was started with. Said once in its life; `rss` is bytes."""

    worker: int
    rss: int


class WorkerMisbehaved(Value, frozen=True):
    """A worker sent what the protocol does not allow."""

    worker: int
    message: str


class WorkerExited(Value, frozen=True):
    """The process is gone; nothing will come from it any more."""

    worker: int
    exit: ExitReport


# --- from the operator and the clock --------------------------------------------------------------------------------


class RegistryPublished(Value, frozen=True):
    """A whole new set of sources, in file order. Sources whose spec is equal keep their workers."""

    sources: tuple[SourceSpec, ...]


class TimePassed(Value, frozen=True):
    """The instant given by `next_deadline()` has come."""


class DrainRequested(Value, frozen=True):
    """Finish what runs, refuse what comes. After `timeout` seconds what still runs is killed."""

    timeout: float


class StopRequested(Value, frozen=True):
    """End now: fail what runs, kill the workers."""


Event = (
    NamesSeen
    | TurnSubmitted
    | CancelRequested
    | ClientGone
    | WorkerStarted
    | WorkerReady
    | WorkerStartFailed
    | SlotsFilled
    | BatchFinished
    | BatchFailed
    | ProgressReported
    | WorkerGrew
    | WorkerMisbehaved
    | WorkerExited
    | RegistryPublished
    | TimePassed
    | DrainRequested
    | StopRequested
)
