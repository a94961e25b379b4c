"""Everything the core can tell the shell to do, in the imperative. Frozen values, compared by equality in tests.

The shell executes them in order and never decides. Each has one addressee: the node (worker instructions), the client
side (turn instructions), or the log.
"""

from __future__ import annotations

from typing import Any, Literal

from toolsd.core.model import Call, CancelOutcome, Value
from toolsd.errors import Failure

KillReason = Literal["deadline", "cancel", "stop", "drain", "protocol", "start_timeout"]

# --- to the node ----------------------------------------------------------------------------------------------------


class StartWorker(Value, frozen=True):
    """Start one incarnation of a replica. `launch` is the source spec's, untouched.

    `rss_limit`: above so many bytes of resident memory, say so (`events.WorkerGrew`).
    """

    worker: int
    source: str
    replica: int
    launch: Any
    max_batches: int = 1
    rss_limit: int | None = None


class SendBatch(Value, frozen=True):
    """Hand the worker a batch: `calls` in call order, slot i is `calls[i]`.

    `deadline` is seconds from now. `flush` asks for finished slots to be reported early. `region` is the flight
    recorder's region for this batch, below the worker's `max_batches`.
    """

    worker: int
    batch: int
    turn: str
    calls: tuple[Call, ...]
    session: str | None = None
    deadline: float | None = None
    flush: bool = False
    region: int = 0


class CancelBatch(Value, frozen=True):
    """Ask the worker to stop this batch by itself (a message, and a signal for blocked code)."""

    worker: int
    batch: int


class StopWorker(Value, frozen=True):
    """Let the worker close its source and leave; kill it after `grace` seconds."""

    worker: int
    grace: float


class KillWorker(Value, frozen=True):
    """Kill the worker and everything it started. `autopsy` takes the stacks of its threads first."""

    worker: int
    reason: KillReason
    autopsy: bool = False


# --- to clients -----------------------------------------------------------------------------------------------------


class ReportResults(Value, frozen=True):
    """Results that landed while the turn goes on: (call index, outcome). Only for turns submitted with `stream`."""

    client: Any
    turn: str
    results: tuple[tuple[int, Any], ...]


class ReportProgress(Value, frozen=True):
    """Progress of a running call. Only for turns submitted with `stream`."""

    client: Any
    turn: str
    index: int
    payload: Any


class BatchRecord(Value, frozen=True):
    """Where one batch of a turn ran: for the account given to the caller. `elapsed` is seconds."""

    source: str
    replica: int
    worker: int
    pid: int | None
    indexes: tuple[int, ...]
    elapsed: float


class FinishTurn(Value, frozen=True):
    """The turn ended well. `results` holds (call index, outcome) of every call not reported before, in call order.

    An outcome is what the worker sent (opaque), or a `SlotError` made by the core.
    """

    client: Any
    turn: str
    results: tuple[tuple[int, Any], ...]
    batches: tuple[BatchRecord, ...] = ()


class FailTurn(Value, frozen=True):
    """The turn ended badly (or was refused)."""

    client: Any
    turn: str
    failure: Failure


class ConfirmCancel(Value, frozen=True):
    """Answer to a cancel request, sent when it is true. `None`: no such turn here."""

    client: Any
    turn: str
    outcome: CancelOutcome | None


# --- to the log and the operator ------------------------------------------------------------------------------------


class Note(Value, frozen=True):
    """Something a person may want to read. `fields` are (name, value) pairs."""

    level: Literal["debug", "info", "warning", "error"]
    message: str
    fields: tuple[tuple[str, Any], ...] = ()


class ReloadEnded(Value, frozen=True):
    """The oldest `RegistryPublished` (but the first one) that was not answered yet took effect; or it did not, and
    changed nothing: `refused` says why. `generation` is the current one."""

    generation: int
    refused: str | None = None


class Drained(Value, frozen=True):
    """Nothing runs and no worker lives: the shell may end."""


Instruction = (
    StartWorker
    | SendBatch
    | CancelBatch
    | StopWorker
    | KillWorker
    | ReportResults
    | ReportProgress
    | FinishTurn
    | FailTurn
    | ConfirmCancel
    | Note
    | ReloadEnded
    | Drained
)
