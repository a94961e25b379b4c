"""The values the core works on: calls, sources, tools, policies. Frozen, compared by equality.

Payloads (arguments, results, progress) are opaque here: the core moves them and never looks inside.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from toolsd.errors import CallState

OnCrash = Literal["fail_turn", "fail_calls"]
OnDefect = Literal["refuse", "run"]
Affinity = Literal["none", "session"]
Start = Literal["lazy", "eager"]
CancelOutcome = Literal["stopped", "killed", "finished_first"]


class Value(msgspec.Struct, frozen=True, gc=False):
    """Base of the small immutable values: equality by fields, no cycle collector work."""


class Call(Value, frozen=True, array_like=True):
    """One finished tool call. `arguments` is the raw text as the model sent it (str, bytes or a message frame).

    Its fields are those of `messages.WireCall`, in order, so that one that came with a message leaves with the next.
    """

    id: str | None
    tool: str
    arguments: Any
    defect: str | None = None  # a call-level defect code: the slot gets an error, the tool is not run


class Restart(Value, frozen=True):
    """OTP-style restart intensity: more than `max` deaths `within` seconds open the breaker.

    Backoff doubles from `backoff_min` to `backoff_max` seconds between consecutive failures and is forgotten after
    `stable_after` seconds of sustained uptime. An open breaker half-opens (one trial start) after `cool_down` seconds.
    """

    backoff_min: float = 0.2
    backoff_max: float = 30.0
    max: int = 5
    within: float = 60.0
    stable_after: float = 10.0
    cool_down: float = 30.0


class Recycle(Value, frozen=True):
    """When a worker that is well is replaced all the same: after `turns` batches, `age` seconds, or above `rss` bytes.

    `None` is never. Its successor is started first; then it ends what it holds, takes no more, and leaves.
    """

    turns: int | None = None
    age: float | None = None
    rss: int | None = None


class SourceSpec(Value, frozen=True):
    """What the core needs to know of one configured source. Durations are seconds, `None` is unlimited.

    `launch` is what the node needs to start a worker (a `toolsd.launch.Launch`); the core only compares it, to know
    whether a reload left the source unchanged.
    """

    name: str
    launch: Any = None
    replicas: int = 1
    start: Start = "lazy"
    required: bool = False
    affinity: Affinity = "none"
    max_batches: int = 1
    start_timeout: float = 20.0
    batch_timeout: float | None = 120.0
    cancel_grace: float = 2.0
    stop_timeout: float = 5.0
    queue_turns: int = 256
    queue_bytes: int = 256 * 1024 * 1024
    queue_wait: float | None = 30.0
    on_crash: OnCrash = "fail_turn"
    restart: Restart = Restart()
    recycle: Recycle = Recycle()


class ToolSpec(Value, frozen=True):
    """One tool as its source declared it. `parameters` is a JSON schema object (a dict), opaque to the core."""

    name: str
    description: str = ""
    parameters: Any = None
    idempotent: bool = False
    timeout: float | None = None


class ExitReport(Value, frozen=True):
    """How a worker process ended, as far as it was seen. `states` is the flight recorder read after death.

    `states[batch]` gives the state of each of the batch's calls; `running` names the call that was executing.
    `reason` is set when *we* ended it (`deadline`, `cancel`, `stop`, `drain`, `protocol`, `start_timeout`), so that our
    own kills are never called crashes. `verdict` is the one word of `sandbox.verdict` for an end by a limit or
    by nobody's order. `oom` is the proof that memory was the cause, or `None`.
    """

    exit_code: int | None = None
    signal: str | None = None
    reason: str | None = None
    verdict: str | None = None
    oom: str | None = None
    peak_rss: int | None = None
    stderr_tail: str | None = None
    stacks: str | None = None
    states: dict[int, tuple[CallState, ...]] = {}
    running: str | None = None
    elapsed: float | None = None
