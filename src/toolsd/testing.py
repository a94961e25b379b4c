"""A test kit for authors of Python sources: a source runs in memory, without processes, sockets or a daemon.

    from toolsd import testing
    import notes

    def test_adds():
        results = testing.run(notes.source, [("add", {"text": "milk"}), ("list_notes", {})])
        assert [result.ok for result in results] == [True, True]

    def test_state_lives_across_turns():
        with testing.Harness("tools/notes.py") as harness:
            harness.call("add", text="milk")
            assert harness.call("list_notes").content == ["milk"]

Calls go through the code that runs in a worker, so arguments are checked, results encoded and errors told as there.
What needs a process is not here: a blocked call is not killed, a deadline is only shown, memory is not bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from toolsd.content import LogRecord, Output, Progress, Report, unpack_report
from toolsd.core.model import ToolSpec
from toolsd.errors import Failure, LedgerEntry, UsageError, turn_failed
from toolsd.host import Host, HostCall, Manifest, SlotMisuse
from toolsd.launch import Launch
from toolsd.result import Result, read_result
from toolsd.source import Source

if TYPE_CHECKING:
    import asyncio

# A call: a tool's name alone, with arguments (an object, or the raw text a model sent), or with an id before them.
CallLike = str | tuple[str, Any] | tuple[str, str, Any]


class TestBatch:
    """The batch a Host is given, in memory. What the calls report is kept in `reports`, by slot, in order."""

    __test__ = False  # pytest: not a test class

    def __init__(self, calls: tuple[HostCall, ...], session: str | None, deadline: float | None) -> None:
        self.turn = "turn-test"
        self.session = session
        self.deadline = None if deadline is None else time.monotonic() + deadline
        self.calls = calls
        self.cancelled = False
        self.outcomes: dict[int, bytes] = {}
        self.begun: set[int] = set()
        self.misuse: SlotMisuse | None = None
        self.reports: dict[int, list[Report]] = {call.slot: [] for call in calls}
        self._lock = Lock()

    def started(self, slot: int) -> None:
        self.begun.add(slot)

    def finished(self, slot: int, outcome: bytes) -> None:
        with self._lock:
            if not 0 <= slot < len(self.calls) or slot in self.outcomes:
                tool = f" ({self.calls[slot].tool})" if 0 <= slot < len(self.calls) else ""
                self.misuse = SlotMisuse(f"slot {slot}{tool} does not exist or was filled twice")
                raise self.misuse
            self.outcomes[slot] = outcome

    def exhausted(self) -> bool:
        return False

    def progress(self, slot: int, payload: bytes) -> None:
        self.reports[slot].append(unpack_report(payload))

    def failure(self, raised: Exception | None) -> Failure | None:
        """Why the batch failed as a whole; `raised` came out of the source."""
        if self.misuse is not None:
            return Failure("protocol_violation", str(self.misuse), ledger=self.ledger())
        if raised is not None:
            message = f"an error came out of the source: {type(raised).__name__}: {raised}"
            return Failure("batch_raised", message, ledger=self.ledger())
        empty = [f"{call.tool} (slot {call.slot})" for call in self.calls if call.slot not in self.outcomes]
        if empty:
            message = f"the source returned with empty slots: {', '.join(empty)}"
            return Failure("results_incomplete", message, ledger=self.ledger())
        return None

    def ledger(self) -> tuple[LedgerEntry, ...]:
        return tuple(
            LedgerEntry(
                call.slot,
                call.id,
                call.tool,
                None,
                "finished" if call.slot in self.outcomes else "started" if call.slot in self.begun else "sent",
            )
            for call in self.calls
        )


class Harness:
    """A source that is loaded and started, as in a worker; a context manager that closes it.

    `source` is a `Source`, a function declared with `@toolsd.tool`, or the path of a source's file. `settings` are
    those of `toolsd.launch.Launch` (`result_max`, `tools`).

    `progress`, `logs` and `output` have what the calls of the last batch reported, by the call's position.
    """

    def __init__(self, source: Source | Callable[..., Any] | str | Path, **settings: Any) -> None:
        self._host = _host(source, settings)
        self._manifest: Manifest | None = None
        self._runner: asyncio.Runner | None = None
        self._last = TestBatch((), None, None)

    def __enter__(self) -> Self:
        """Load and start the source. Raises SourceLoadError."""
        self._manifest = self._host.load()
        if self._manifest.asynchronous:
            self._runner = _runner()
        try:
            self._finish(self._host.start())
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._finish(self._host.close())
        finally:
            self._leave()

    @property
    def tools(self) -> dict[str, ToolSpec]:
        """The tools as a model is told of them: name, description, schema."""
        if self._manifest is None:
            raise UsageError("the harness is not open: with testing.Harness(source) as harness: ...")
        return {spec.name: spec for spec in self._manifest.tools}

    def run(
        self, calls: Iterable[CallLike], *, session: str | None = None, deadline: float | None = None
    ) -> list[Result]:
        """The results of one batch, in the order of the calls. `deadline` is seconds, shown to the tools only.

        Raises:
            TurnFailed: an exception came out of `invoke_batch`, or it left a slot empty or filled one twice.
        """
        known = self.tools
        made = tuple(_call(slot, call) for slot, call in enumerate(calls))
        strangers = [call.tool for call in made if call.tool not in known]
        if strangers:
            raise UsageError(f"the source has no {', '.join(strangers)}; it has: {', '.join(known)}")
        batch = self._last = TestBatch(made, session, deadline)
        raised: Exception | None = None
        try:
            self._finish(self._host.run(batch))
        except Exception as error:  # noqa: BLE001 - told below, as a worker would
            raised = error
        failure = batch.failure(raised)
        if failure is not None:
            raise turn_failed(failure) from raised
        return [read_result(call.id, call.tool, batch.outcomes[call.slot], call.slot) for call in made]

    def call(self, tool: str, /, **arguments: Any) -> Result:
        """The result of one call, alone in its batch."""
        return self.run([(tool, arguments)])[0]

    @property
    def progress(self) -> list[list[Progress]]:
        return [[said for said in each if isinstance(said, Progress)] for each in self._last.reports.values()]

    @property
    def logs(self) -> list[list[LogRecord]]:
        return [[said for said in each if isinstance(said, LogRecord)] for each in self._last.reports.values()]

    @property
    def output(self) -> list[str]:
        """What each call wrote before its result, joined."""
        return ["".join(said.text for said in each if isinstance(said, Output)) for each in self._last.reports.values()]

    def _finish(self, awaited: Any) -> None:
        if awaited is not None:
            assert self._runner is not None
            self._runner.run(_wait(awaited))

    def _leave(self) -> None:
        if self._runner is not None:
            self._runner.close()


def run(source: Source | Callable[..., Any] | str | Path, calls: Iterable[CallLike], **settings: Any) -> list[Result]:
    """Start a source, run one batch, close it: the results, in the order of the calls.

    A call is `"tool"`, `("tool", arguments)` or `("id", "tool", arguments)`; arguments are an object or raw text.
    """
    with Harness(source, **settings) as harness:
        return harness.run(calls)


def _runner() -> asyncio.Runner:
    import asyncio

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError(
            "an asynchronous source needs an event loop of its own, and one is running in this thread",
            hint="use the kit in a plain test, or in await asyncio.to_thread(...)",
        )
    return asyncio.Runner()


async def _wait(awaited: Any) -> None:
    await awaited


def _call(slot: int, call: CallLike) -> HostCall:
    parts: tuple[Any, ...] = (call, {}) if isinstance(call, str) else call
    id, tool, arguments = parts if len(parts) == 3 else (f"call_{slot}", *parts)
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return HostCall(slot, id, tool, text)


def _host(source: Source | Callable[..., Any] | str | Path, settings: dict[str, Any]) -> Host:
    python: Any = import_module("toolsd_workers.python")
    if isinstance(source, (str, Path)):
        path = Path(source).absolute()
        made: Host = python.make_host(Launch("python", str(path), str(path.parent), **settings))
    else:
        made = python.host_of(source, Launch("python", "<in memory>", "", **settings))
    return made
