"""Every error toolsd raises or reports: one hierarchy, stable codes.

Owns the codes and the shape of a failure. Knows nothing of sockets, processes or the core's states.

Two families. A *slot error* belongs to one call and is text for the model (`SlotError`, a value, never raised by
toolsd itself). Everything else is for the caller and is raised as an exception below `ToolsdError`; the failure of a
turn travels as a `Failure` value and is raised as the `TurnFailed` subclass of its code.

A code is a promise: it is never renamed. Text is for people and may change.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

Scope = Literal["slot", "turn", "source", "config", "link"]
CallState = Literal["not_sent", "sent", "started", "finished", "unknown"]
Retry = Literal["safe", "idempotent_only", "never"]

# Exit statuses of the command line: BSD sysexits where one fits (sysexits.h), 130/143 by signal.
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_UNAVAILABLE, EXIT_INTERNAL, EXIT_TEMPORARY, EXIT_KEY_REFUSED, EXIT_CONFIG = 69, 70, 75, 77, 78


class SlotError(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The error in one call's slot.

    `message` is written for the model: what was wrong and what would be right. `details` is a JSON object for hosts
    (for `arguments_invalid`: `{"path": "$.limit", "expected": "..."}`).
    """

    code: str
    message: str
    details: dict[str, Any] | None = None


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """What is known of one call of a failed turn. `started` and `finished` are claims, not guesses."""

    index: int
    id: str | None
    tool: str
    source: str | None
    state: CallState


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was seen of a death or a limit. `None` means not seen; nothing here is inferred.

    `elapsed` and `limit` are seconds, `peak_rss` is bytes.
    """

    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    verdict: str | None = None
    oom: str | None = None
    peak_rss: int | None = None
    stderr_tail: str | None = None
    stacks: str | None = None
    running: str | None = None
    elapsed: float | None = None
    limit: float | None = None
    traceback: str | None = None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a turn failed: the value that travels, is logged, and is raised as `TurnFailed`."""

    code: str
    message: str
    source: str | None = None
    evidence: Evidence | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    cause: str | None = None
    retry_after: float | None = None

    @property
    def retry(self) -> Retry:
        """Whether sending the turn again can run something twice: derived from the ledger, never written by hand."""
        if self.code in _CALLER_FAULTS:
            return "never"
        return "safe" if all(e.state == "not_sent" for e in self.ledger) else "idempotent_only"


# The caller must change something first; asking again gives the same answer.
_CALLER_FAULTS = frozenset(
    {"completion_defective", "duplicate_turn", "sandbox_unavailable", "version_mismatch", "request_invalid"}
)

# Codes of slot errors, for reference and for checks.
SLOT_CODES = frozenset(
    {
        "unknown_tool",
        "arguments_malformed",
        "arguments_invalid",
        "call_refused",
        "call_defective",
        "tool_error",
        "tool_timeout",
        "result_too_large",
        "result_invalid",
        # on_crash = "fail_calls" puts the code of the turn failure into the dead worker's slots.
    }
)


class ToolsdError(Exception):
    """Base of everything toolsd raises. `code` is stable; `exit_status` is what the command line exits with."""

    code: ClassVar[str] = "toolsd_error"
    exit_status: ClassVar[int] = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(ToolsdError):
    """The program called toolsd wrongly (deltas after finish, a turn used twice)."""

    code = "usage"
    exit_status = EXIT_USAGE


class ConfigError(ToolsdError):
    """A mistake in `toolsd.toml` or in what it points to. The message names file, line and key."""

    code = "config_invalid"
    exit_status = EXIT_CONFIG


class NameCollision(ConfigError):
    """Two sources export the same tool name."""

    code = "name_collision"


class CoordinatorUnreachable(ToolsdError):
    """No coordinator answered within the bound."""

    code = "coordinator_unreachable"
    exit_status = EXIT_UNAVAILABLE


class CoordinatorLost(ToolsdError):
    """The coordinator went away or restarted while it owed us an answer; what ran is unknown."""

    code = "coordinator_lost"
    exit_status = EXIT_UNAVAILABLE


class ProtocolError(ToolsdError):
    """Bytes that are not the protocol. `Local` is our mistake, `Peer` is the other side's."""

    code = "protocol_violation"
    exit_status = EXIT_INTERNAL


class LocalProtocolError(ProtocolError):
    """We were asked to send what the protocol cannot carry (too large, too many)."""


class PeerProtocolError(ProtocolError):
    """The other side sent a frame that does not decode, is too large or too deep, or does not fit."""


class VersionMismatch(ProtocolError):
    """The two sides speak no common protocol version."""

    code = "version_mismatch"


class AlreadyRunning(ToolsdError):
    """Another daemon owns this socket."""

    code = "already_running"
    exit_status = EXIT_TEMPORARY


class InternalError(ToolsdError):
    """A bug in toolsd. The message carries the story that led to it; please report it whole."""

    code = "internal_error"
    exit_status = EXIT_INTERNAL


class ToolError(ToolsdError):
    """Raised by a tool: its own failure, told to the model in the call's slot. Never fails the turn."""

    code = "tool_error"


class ResultInvalid(ToolsdError):
    """A tool's result cannot be sent. `path` says where in it (`$.rows[3].when`); becomes the call's slot error."""

    code = "result_invalid"

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message if path == "$" else f"{message} (at {path})")
        self.path = path


class TurnFailed(ToolsdError):
    """The whole turn failed; no result of it is usable.

    `failure` has everything; `code`, `cause`, `evidence` and `ledger` are its fields at hand.
    """

    code = "turn_failed"

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.code = failure.code  # type: ignore[misc]  # the instance's code is more exact than the class's
        if failure.code in _TEMPORARY:
            self.exit_status = EXIT_TEMPORARY  # type: ignore[misc]

    @property
    def cause(self) -> str | None:
        return self.failure.cause

    @property
    def evidence(self) -> Evidence | None:
        return self.failure.evidence

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        return self.failure.ledger

    @property
    def retry(self) -> Retry:
        return self.failure.retry

    def __str__(self) -> str:
        return describe_failure(self.failure)

    def __reduce__(self) -> tuple[Any, ...]:
        return (turn_failed, (self.failure,))


class WorkerCrashed(TurnFailed):
    """A worker ended by exit or signal while it held a batch of the turn."""


class WorkerOutOfMemory(TurnFailed):
    """As WorkerCrashed, with proof that memory was the cause."""


class WorkerLost(TurnFailed):
    """The worker is gone and did not crash: its machine is out of reach, or it was killed for another turn it held."""


class BatchRaised(TurnFailed):
    """An error came out of a source's `invoke_batch`."""


class ResultsIncomplete(TurnFailed):
    """A source's `invoke_batch` returned with empty slots."""


class BatchTimeout(TurnFailed):
    """The batch deadline passed; the worker was killed."""


class TurnTimeout(TurnFailed):
    """The deadline the caller gave for the whole turn passed."""


class StateLost(TurnFailed):
    """The replica that held this session's state is gone."""


class SourceStartFailed(TurnFailed):
    """The source's worker never became ready."""


class SourceUnavailable(TurnFailed):
    """The source crashed too often; its breaker is open."""


class Overloaded(TurnFailed):
    """A bounded queue is full; come back after `failure.retry_after` seconds."""


class QueueTimeout(TurnFailed):
    """The batch waited too long for a free worker and was never sent."""


class Draining(TurnFailed):
    """The coordinator is stopping and takes no new turns."""


class TurnCancelled(TurnFailed):
    """Cancelled by its caller; `cause` is `stopped`, `killed` or `finished_first`."""


class CompletionDefective(TurnFailed):
    """The model's completion was cut or damaged; nothing was run."""


class DuplicateTurn(TurnFailed):
    """The turn id was used before."""


class ProtocolViolation(TurnFailed):
    """A worker broke the protocol while it held a batch of the turn."""


_TURN_FAILURES: dict[str, type[TurnFailed]] = {
    "worker_crashed": WorkerCrashed,
    "worker_out_of_memory": WorkerOutOfMemory,
    "worker_lost": WorkerLost,
    "batch_raised": BatchRaised,
    "results_incomplete": ResultsIncomplete,
    "batch_timeout": BatchTimeout,
    "turn_timeout": TurnTimeout,
    "state_lost": StateLost,
    "source_start_failed": SourceStartFailed,
    "source_unavailable": SourceUnavailable,
    "overloaded": Overloaded,
    "queue_timeout": QueueTimeout,
    "draining": Draining,
    "turn_cancelled": TurnCancelled,
    "completion_defective": CompletionDefective,
    "duplicate_turn": DuplicateTurn,
    "protocol_violation": ProtocolViolation,
}
_TEMPORARY = frozenset({"overloaded", "queue_timeout", "draining", "source_unavailable"})


def turn_failed(failure: Failure) -> TurnFailed:
    """The exception for `failure`: a fresh one each time, of the class its code names."""
    return _TURN_FAILURES.get(failure.code, TurnFailed)(failure)


def describe_failure(failure: Failure) -> str:
    """A failure as a few readable lines: message, evidence that was seen, ledger."""
    lines = [f"{failure.code}: {failure.message}"]
    if failure.cause:
        lines.append(f"  cause: {failure.cause}")
    evidence = failure.evidence
    if evidence is not None:
        for name in evidence.__struct_fields__:
            value = getattr(evidence, name)
            if value is not None:
                text = str(value).rstrip()
                lines.append(f"  {name}: " + text.replace("\n", "\n    "))
    for entry in failure.ledger:
        lines.append(f"  call {entry.index} {entry.tool} ({entry.id or 'no id'}): {entry.state}")
    return "\n".join(lines)
