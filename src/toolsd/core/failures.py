"""The failures the core names: what happened, to whom, and what to do about it.

Owns the texts. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolsd.core.batch import Batch
from toolsd.core.model import Call, ExitReport
from toolsd.core.pool import Pool
from toolsd.core.replica import Worker
from toolsd.errors import Evidence, Failure, SlotError

# Defects of a call that lie in its arguments; the others are of its name or id.
_ARGUMENT_DEFECTS = frozenset({"non_finite_number", "unterminated_block"})


def evidence_of(
    worker: Worker, exit: ExitReport | None, *, elapsed: float | None = None, limit: float | None = None
) -> Evidence:
    """What was seen of the end of `worker`; `elapsed` and `limit` are the batch's, in seconds."""
    if exit is None:
        return Evidence(pid=worker.pid, elapsed=elapsed, limit=limit)
    return Evidence(
        pid=worker.pid,
        exit_code=exit.exit_code,
        signal=exit.signal,
        verdict=exit.verdict,
        oom=exit.oom,
        peak_rss=exit.peak_rss,
        stderr_tail=exit.stderr_tail,
        stacks=exit.stacks,
        running=exit.running,
        elapsed=elapsed if elapsed is not None else exit.elapsed,
        limit=limit,
    )


def how_it_ended(exit: ExitReport) -> str:
    """The end of a process in a few words."""
    if exit.signal is not None:
        return f"was ended by {exit.signal}"
    if exit.exit_code is not None:
        return f"exited with status {exit.exit_code}"
    return "ended"


def last_line(text: str | None) -> str:
    """The last line of a text that says something, bounded."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else ""


def _running(exit: ExitReport | None) -> str:
    return f" while it ran {exit.running!r}" if exit is not None and exit.running else ""


# What a verdict (`sandbox.verdict`) adds to "was ended by SIGKILL".
_VERDICTS = {
    "cpu": " (its CPU time, limits.cpu_time, was used up)",
    "scratch": " (its scratch directory had grown beyond limits.scratch_size)",
    "file_size": " (it wrote a file beyond limits.file_size)",
    "forbidden_syscall": " (for a system call that the sandbox does not know)",
    "crash_near_memory_limit": " (near its memory limit, limits.memory)",
    "killed_externally": " (not by toolsd)",
}


def _calls(number: int) -> str:
    return "call" if number == 1 else f"{number} calls"


def crashed(worker: Worker, exit: ExitReport, elapsed: float) -> Failure:
    """A worker died by itself while it held a batch."""
    code = "worker_out_of_memory" if exit.oom else "worker_crashed"
    why = f" (out of memory: {exit.oom})" if exit.oom else _VERDICTS.get(exit.verdict or "", "")
    return Failure(
        code=code,
        message=(
            f"the worker of source {worker.pool.name!r} {how_it_ended(exit)}{why}{_running(exit)}; "
            "other sources of the turn were not at fault. The next turn gets a new worker"
        ),
        source=worker.pool.name,
        evidence=evidence_of(worker, exit, elapsed=elapsed),
    )


def killed_for_another(worker: Worker, exit: ExitReport | None, reason: str, elapsed: float) -> Failure:
    """We killed a worker that held several batches for the sake of one of the others."""
    return Failure(
        code="worker_lost",
        message=(
            f"the worker of source {worker.pool.name!r} was killed because of another turn it held ({reason}); "
            "set max_batches = 1 for this source to keep turns apart"
        ),
        source=worker.pool.name,
        evidence=evidence_of(worker, exit, elapsed=elapsed),
        cause=reason,
    )


def timed_out(batch: Batch, worker: Worker, exit: ExitReport | None, elapsed: float) -> Failure:
    """The batch deadline passed and the worker was killed."""
    limit = batch.pool.spec.batch_timeout
    return Failure(
        code="batch_timeout",
        message=(
            f"source {batch.pool.name!r} did not finish its {_calls(len(batch.indexes))} within {limit:g} s"
            f"{_running(exit)}; its worker was killed. Raise batch_timeout of the source if the work needs longer"
        ),
        source=batch.pool.name,
        evidence=evidence_of(worker, exit, elapsed=elapsed, limit=limit),
    )


def misbehaved(worker: Worker, exit: ExitReport | None) -> Failure:
    """The worker broke the protocol and was killed."""
    return Failure(
        code="protocol_violation",
        message=f"the worker of source {worker.pool.name!r} broke the protocol ({worker.complaint}) and was killed",
        source=worker.pool.name,
        evidence=evidence_of(worker, exit),
    )


def start_failed(pool: Pool, what: str, evidence: Evidence | None) -> Failure:
    """The worker never became ready."""
    line = last_line(evidence.stderr_tail if evidence else None)
    if line and line not in what:
        what = f"{what}; its last words: {line}"
    return Failure(
        code="source_start_failed",
        message=f"source {pool.name!r} did not start: {what}",
        source=pool.name,
        evidence=evidence,
    )


def unavailable(pool: Pool, now: float) -> Failure:
    """The breaker is open."""
    wait = max(0.0, round(pool.restarts.may_start_at(now) - now, 3))
    policy = pool.spec.restart
    last = f" Last failure: {pool.failure.message}" if pool.failure is not None else ""
    return Failure(
        code="source_unavailable",
        message=(
            f"source {pool.name!r} failed more than {policy.max} times within {policy.within:g} s and rests; "
            f"it is tried again in {wait:g} s.{last}"
        ),
        source=pool.name,
        retry_after=wait,
    )


def overloaded(pool: Pool, how: str) -> Failure:
    """The queue of the source is full, or what is left of it is for others."""
    return Failure(
        code="overloaded",
        message=f"source {pool.name!r} has {len(pool.queue)} turns waiting, {how}",
        source=pool.name,
        retry_after=pool.retry_after(),
    )


def queue_timeout(pool: Pool, waited: float) -> Failure:
    """The batch waited too long for a worker."""
    return Failure(
        code="queue_timeout",
        message=(
            f"no worker of source {pool.name!r} became free within {pool.spec.queue_wait:g} s; "
            "the calls were not sent. Add replicas, or raise queue.wait"
        ),
        source=pool.name,
        evidence=Evidence(elapsed=waited, limit=pool.spec.queue_wait),
        retry_after=pool.retry_after(),
    )


def state_lost(pool: Pool, session: str) -> Failure:
    """The incarnation that held the session's state is gone."""
    return Failure(
        code="state_lost",
        message=(
            f"the worker of source {pool.name!r} that held the state of session {session!r} is gone; "
            "the next turn of this session begins with a fresh state"
        ),
        source=pool.name,
    )


def draining(running: bool) -> Failure:
    """The coordinator is stopping."""
    if running:
        return Failure(code="draining", message="the coordinator stopped before the turn ended")
    return Failure(code="draining", message="the coordinator is stopping and takes no new turns")


def duplicate(turn: str) -> Failure:
    """The turn id is, or was, in use."""
    return Failure(code="duplicate_turn", message=f"the turn id {turn!r} was used before; every turn needs its own")


def defective(defects: Sequence[str]) -> Failure:
    """The completion has turn-level defects and nobody asked to run it all the same."""
    return Failure(
        code="completion_defective",
        message=f"the model's completion is damaged ({', '.join(defects)}); nothing was run",
        cause=defects[0],
    )


def turn_timeout(deadline: float) -> Failure:
    """The caller's deadline for the whole turn passed."""
    return Failure(
        code="turn_timeout",
        message=f"the turn did not end within its deadline of {deadline:g} s; what still runs is being stopped",
        evidence=Evidence(elapsed=deadline, limit=deadline),
    )


def cancelled(cause: str | None) -> Failure:
    """Somebody asked to cancel the turn."""
    return Failure(code="turn_cancelled", message="the turn was cancelled", cause=cause)


def defective_call(call: Call) -> SlotError:
    """The slot error of a call that came damaged out of the stream."""
    defect = call.defect or ""
    if defect.endswith("_arguments") or defect in _ARGUMENT_DEFECTS:
        return SlotError(
            "arguments_malformed",
            f"The arguments of this call are not a JSON object ({defect}). Send the call again with valid JSON.",
            {"defect": defect},
        )
    return SlotError(
        "call_defective",
        f"This call came damaged out of the model's stream ({defect}) and was not run. Send it again.",
        {"defect": defect},
    )


def in_slot(failure: Failure) -> SlotError:
    """A dead worker's failure as the error of one of its slots (`on_crash = "fail_calls"`)."""
    return SlotError(failure.code, failure.message, {"source": failure.source, "cause": failure.cause})
