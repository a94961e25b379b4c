"""Results and turns, for people and as JSON: what `call` and `turn` print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from toolsd.cli import output
from toolsd.client import CallReport
from toolsd.content import LogRecord, Output, Progress
from toolsd.core.instructions import BatchRecord
from toolsd.result import Result

# What a person sees of one result; --json has all of it.
_SHOWN = 2000


def result_json(result: Result) -> dict[str, Any]:
    """The stable JSON form of a result. Bytes are base64."""
    return {
        "index": result.index,
        "id": result.id,
        "tool": result.tool,
        "ok": result.ok,
        "content": msgspec.to_builtins(result.content),
        "text": result.text,
        "error": _error_json(result),
    }


def turn_json(results: Sequence[Result], batches: Sequence[BatchRecord]) -> dict[str, Any]:
    """The stable JSON form of a turn that ended well."""
    return {
        "ok": all(result.ok for result in results),
        "results": [result_json(result) for result in results],
        "batches": [
            {
                "source": batch.source,
                "replica": batch.replica,
                "pid": batch.pid,
                "calls": list(batch.indexes),
                "elapsed": batch.elapsed,
            }
            for batch in sorted(batches, key=_first_call)
        ],
    }


def results(found: Sequence[Result], batches: Sequence[BatchRecord]) -> None:
    """Results in the order of the calls, each with where it ran."""
    where = {index: batch for batch in batches for index in batch.indexes}
    for result in found:
        batch = where.get(result.index)
        ran = f"  {batch.source} (pid {batch.pid})" if batch is not None else ""
        verdict = ("ok", "green") if result.ok else ("error", "red")
        output.styled((f"{result.index}  ", "bold"), (result.tool, "bold cyan"), "  ", verdict, (ran, "dim"))
        for line in shortened(result.text).splitlines():
            output.styled("   ", line)
    for batch in sorted(batches, key=_first_call):
        calls = ", ".join(str(index) for index in batch.indexes)
        output.styled((f"batch of {batch.source}: calls {calls} in {batch.elapsed * 1000:.1f} ms", "dim"))


def _first_call(batch: BatchRecord) -> int:
    return batch.indexes[0]


def shortened(text: str) -> str:
    """`text` for the screen; says how much was left out."""
    return (
        text if len(text) <= _SHOWN else f"{text[:_SHOWN]}\n... {len(text) - _SHOWN} characters more (--json has all)"
    )


def reporter() -> Callable[[CallReport], None] | None:
    """Prints what running calls report to stderr, where somebody is there to read it."""
    return _report if sys.stderr.isatty() else None


def _report(said: CallReport) -> None:
    report = said.report
    if isinstance(report, Progress):
        done = f"{report.done:g}" + (f"/{report.total:g}" if report.total is not None else "")
        output.note(f"{said.tool}: {' '.join(part for part in (done, report.message) if part)}")
    elif isinstance(report, LogRecord):
        output.note(f"{said.tool}: {report.level}: {report.message}")
    elif isinstance(report, Output):
        output.note(f"{said.tool}| {report.text.rstrip()}")


def _error_json(result: Result) -> dict[str, Any] | None:
    error = result.error
    return None if error is None else {"code": error.code, "message": error.message, "details": error.details}
