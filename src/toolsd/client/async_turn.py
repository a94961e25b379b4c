"""A turn as its caller sees it: deltas in, results out.

Owns the state of one turn on the client's side. The deltas are assembled here, in the caller's process; one message
takes the finished calls to the coordinator. Must not know sockets.

Theory of operation.

    open ──▶ submitted ──▶ over            `open ─▶ over`: cancelled, or the stream broke its bounds

While it is open, names of tools that become known are told to the coordinator, as a hint only. Whoever leaves a
submitted turn before it is over (an exception, Ctrl-C, a loop that breaks) cancels it on the way out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from toolsd import codec, conversation, messages
from toolsd.client.async_link import AsyncLink
from toolsd.client.calls import not_taken, to_wire
from toolsd.client.routes import Arrival, CoordinatorLeft, Inbox, cancel_key
from toolsd.client.views import CallReport
from toolsd.content import unpack_report
from toolsd.core.instructions import BatchRecord
from toolsd.core.model import CancelOutcome, OnCrash, OnDefect
from toolsd.errors import Failure, PeerProtocolError, ToolsdError, UsageError, turn_failed
from toolsd.messages import Progress
from toolsd.result import Result, read_result
from toolsd.streams import AssembledCall, CompletionAssembler, StreamWatchdog

if TYPE_CHECKING:
    from toolsd.client.async_client import AsyncClient

OnReport = Callable[[CallReport], None]


class AsyncTurn:
    """One turn, made by `client.turn()`. Use it once.

    `id` names it everywhere (logs, `toolsd ps`). `calls` are its calls, `batches` says where each part of it ran;
    both are there once it was submitted and has ended.
    """

    def __init__(
        self,
        client: AsyncClient,
        turn: str,
        assembler: CompletionAssembler,
        said: conversation.Listener,
        names: Mapping[str, str],
        *,
        session: str | None,
        deadline: float | None,
        on_crash: OnCrash | None,
        on_defect: OnDefect,
        on_report: OnReport | None,
        idle: float | None,
        total: float | None,
    ) -> None:
        self.id = turn
        self.calls: tuple[AssembledCall, ...] = ()
        self.batches: tuple[BatchRecord, ...] = ()
        self._client = client
        self._assembler = assembler
        self._said = said
        self._names = names  # of the tools that a provider knows under other names
        self._as_called: tuple[AssembledCall, ...] = ()
        self._session = session
        self._deadline = deadline
        self._on_crash: OnCrash | None = on_crash
        self._on_defect: OnDefect = on_defect
        self._on_report = on_report
        self._bounds = (idle, total)
        self._clock: StreamWatchdog | None = None
        self._state: Literal["open", "submitted", "over"] = "open"
        self._over_because = ""
        self._link: AsyncLink | None = None
        self._inbox: Inbox | None = None
        self._results: dict[int, Result] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._state == "open":
            self._give_up("left before it was finished")

    # --- deltas in --------------------------------------------------------------------------------------------------

    def observe(self, deltas: Iterable[Any] | None) -> None:
        """Take the OpenAI `tool_calls` deltas of one chunk: a list of dicts or SDK objects, an empty list, or None.

        Raises:
            UsageError: the turn was finished or cancelled before.
            CompletionDefective: the stream is beyond its clocks or its budget; the turn is over.
        """
        self._expect_open("observe")
        self._assembler.observe(deltas)
        self._watch()

    def feed(self, chunk: Any) -> None:
        """Take one chunk of the stream as the SDK gave it, as a dict, or as raw text or bytes.

        Raises: as `observe`.
        """
        self._expect_open("feed")
        self._assembler.feed(chunk)
        self._watch()

    def _watch(self) -> None:
        """Apply the stream's bounds, and warm the sources of tools that were just named."""
        now = time.monotonic()
        if self._clock is None:
            idle, total = self._bounds
            self._clock = StreamWatchdog(idle, total, now=now)
        code = self._assembler.stopped or self._clock.expired(now)
        if code is not None:
            self._give_up(f"its stream ended with {code}")
            raise turn_failed(Failure("completion_defective", _BOUND_TEXTS[code], cause=code))
        self._clock.saw(now)
        names = self._assembler.new_names()
        if names:
            with contextlib.suppress(ToolsdError):  # a hint; if the link is in trouble, finish() will say so
                self._announce(tuple([self._names.get(name, name) for name in names]))

    def _announce(self, names: tuple[str, ...]) -> None:
        link = self._link = self._link or self._client.existing_link()
        if link is not None and link.usable:
            link.post(messages.Open(self.id, names, self._session))

    # --- results out ------------------------------------------------------------------------------------------------

    async def finish(self, finish_reason: str | None = None) -> list[Result]:
        """The stream is complete: run its calls and wait for all results, in the order of the calls.

        `finish_reason` is the provider's, where it was not part of what was fed.

        Raises:
            TurnFailed: the subclass that names the cause; no result of the turn is usable.
            CoordinatorUnreachable, CoordinatorLost: there is no coordinator, or it went away meanwhile.
            LocalProtocolError: the calls are larger than the protocol carries.
            UsageError: the turn was finished or cancelled before.
        """
        await self._submit(self._assemble(finish_reason, "finish"), stream=self._on_report is not None)
        return await self._all()

    async def landed(self, finish_reason: str | None = None) -> AsyncIterator[Result]:
        """As `finish`, and gives each result when it lands; `results` has them in the order of the calls afterwards."""
        await self._submit(self._assemble(finish_reason, "iterate"), stream=True)
        try:
            while self._state == "submitted":
                for result in await self._next():
                    yield result
        finally:
            self._leave()

    def __aiter__(self) -> AsyncIterator[Result]:
        return self.landed()

    async def run(self, calls: Sequence[AssembledCall]) -> list[Result]:
        """Run finished calls, for a turn that was not streamed. Raises as `finish`."""
        self._expect_open("run")
        await self._submit((tuple(calls), ()), stream=self._on_report is not None)
        return await self._all()

    @property
    def results(self) -> list[Result]:
        """All results in the order of the calls, once the turn ended well. Raises UsageError before."""
        if self._state != "over" or len(self._results) != len(self.calls):
            raise UsageError(
                f"turn {self.id} has no results{f': it was {self._over_because}' * bool(self._over_because)}"
            )
        return [self._results[index] for index in range(len(self.calls))]

    def messages(self, format: str | None = None) -> list[dict[str, Any]]:
        """What to append to the conversation after the turn ended well: the assistant's message and all results.

        They are in the shape of the stream, or of `format` (a key of `toolsd.conversation.FORMATS`). The assistant's
        message has what the model said beside its calls, if the whole of it went through `feed` and `format` is the
        stream's own. Ids that are missing, used twice or of a form that the provider refuses are replaced, in the call
        and in its result. Pictures go where the provider takes them in a result; elsewhere, and like other bytes, they
        are described. A turn without calls has no messages: what the model said then is the answer.

        Raises:
            UsageError: the turn has no results, it was not streamed and no `format` is given, or that is not known.
        """
        format = format or self._assembler.format
        said = self._said.parts() if format == self._said.format else ()
        return conversation.messages(format, self._as_called, self.results, said=said, seed=self.id)

    async def cancel(self) -> CancelOutcome:
        """Stop the turn; may be called from another task or thread than the one that waits in `finish`.

        Returns how it ended, once that is true: `stopped` (by itself, or nothing ran yet), `killed` (its worker had to
        be), `finished_first`.

        Raises:
            CoordinatorUnreachable, CoordinatorLost: there is no coordinator to ask.
        """
        if self._state == "over":
            return "finished_first"
        if self._state == "open":
            self._give_up("cancelled")
            return "stopped"
        link = await self._client.link()
        key = cancel_key(self.id)
        inbox = link.routes.open(key)
        try:
            await link.send(messages.CancelTurn(self.id))
            arrival = await link.next(inbox)
        finally:
            link.routes.close(key)
        assert isinstance(arrival.message, messages.CancelConfirmed)
        return arrival.message.outcome or "finished_first"

    # --- the way of a turn ------------------------------------------------------------------------------------------

    def _expect_open(self, what: str) -> None:
        if self._state == "submitted" or (self._state == "over" and not self._over_because):
            raise UsageError(f"cannot {what}: turn {self.id} was finished before", hint="a turn is used once")
        if self._state == "over":
            raise UsageError(f"cannot {what}: turn {self.id} was {self._over_because}", hint="a turn is used once")

    def _assemble(self, finish_reason: str | None, what: str) -> tuple[tuple[AssembledCall, ...], tuple[str, ...]]:
        self._expect_open(what)
        now = time.monotonic()
        if self._clock is not None and self._assembler.stopped is None:
            code = self._clock.expired(now)
            if code is not None:
                self._assembler.fail(code)
        assembly = self._assembler.finish(finish_reason)
        return assembly.calls, assembly.defects

    def _named(self, calls: tuple[AssembledCall, ...]) -> tuple[AssembledCall, ...]:
        """The calls under the names that their tools have here."""
        names = self._names
        return tuple(
            [msgspec.structs.replace(call, name=names[call.name]) if call.name in names else call for call in calls]
        )

    async def _submit(self, assembled: tuple[tuple[AssembledCall, ...], tuple[str, ...]], *, stream: bool) -> None:
        self._as_called, defects = assembled
        self.calls = self._as_called if not self._names else self._named(self._as_called)
        self._state = "submitted"
        try:
            if not self.calls and not defects:
                self._end("")
                return
            frames = codec.Frames()
            run = messages.Run(
                self.id,
                to_wire(self.calls, frames),
                self._session,
                self._deadline,
                defects,
                self._on_defect,
                self._on_crash,
                stream,
                self._client.sessions.taken_by(self._session),
            )
            link = self._link
            if link is None or not link.usable:
                link = self._link = await self._client.link()
            self._inbox = link.routes.open(self.id)
            await link.send(run, frames.frames)
            if link.routes.welcome is not None:
                self._client.sessions.taken(self._session, link.routes.welcome.incarnation)
        except BaseException:
            self._leave()
            raise

    async def _all(self) -> list[Result]:
        while self._state == "submitted":
            await self._next()
        return self.results

    async def _next(self) -> list[Result]:
        """The results that come next, none if it was something else that came."""
        assert self._link is not None and self._inbox is not None
        try:
            return self._take(await self._link.next(self._inbox))
        except CoordinatorLeft:
            self._end("failed")
            raise not_taken(self.calls) from None
        except BaseException:
            self._leave()
            raise

    def _take(self, arrival: Arrival) -> list[Result]:
        message = arrival.message
        if isinstance(message, messages.Progress):
            self._report(message, arrival.frames)
            return []
        if isinstance(message, messages.Failed):
            self._end("failed")
            raise turn_failed(message.failure)
        if not isinstance(message, (messages.Results, messages.Done)):
            raise PeerProtocolError(f"the coordinator answered a turn with {type(message).__name__}")
        new, calls, results = [], self.calls, self._results
        for index, value in message.results:
            if not 0 <= index < len(calls) or index in results:
                raise PeerProtocolError(f"the coordinator sent a result for call {index} of {len(self.calls)} twice")
            call = calls[index]
            outcome = value if type(value) is bytes else codec.payload(value, arrival.frames)
            result = results[index] = read_result(call.id, call.name, outcome, index)
            new.append(result)
        if isinstance(message, messages.Done):
            if len(self._results) != len(self.calls):
                raise PeerProtocolError(f"the turn ended with {len(self._results)} of {len(self.calls)} results")
            self.batches = message.batches
            self._end("")
        return new

    def _report(self, message: Progress, frames: list[Any]) -> None:
        if self._on_report is not None and 0 <= message.index < len(self.calls):
            call = self.calls[message.index]
            report = unpack_report(codec.payload(message.payload, frames))
            self._on_report(CallReport(message.index, call.id, call.name, report))

    def _leave(self) -> None:
        """Left before it was over: nobody will take its results, so it is cancelled."""
        if self._state == "submitted":
            self._give_up("left before it was over")

    def _give_up(self, because: str) -> None:
        self._end(because)
        if self._link is not None and self._link.usable:
            with contextlib.suppress(ToolsdError):
                self._link.post(messages.CancelTurn(self.id))

    def _end(self, because: str) -> None:
        self._state = "over"
        self._over_because = because
        if self._link is not None:
            self._link.routes.close(self.id)


_BOUND_TEXTS = {
    "stream_idle": "nothing came from the model's stream for longer than its idle limit",
    "stream_timeout": "the model's stream took longer than its total limit",
    "budget_bytes": "the model's stream has more bytes than its budget allows",
    "budget_calls": "the model's stream has more calls than its budget allows",
}
