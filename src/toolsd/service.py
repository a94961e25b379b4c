"""The coordinator's shell: one asyncio loop that feeds events to the core and executes its instructions in order.

Owns the loop's wiring: reception (clients), node (workers), the core's clock, and the way to the end. It decides
nothing about turns and touches no process; a bug is either a wrong instruction (core) or one wrongly executed (here).

Theory of operation. Events are handled one at a time; one that arises while another is handled waits its turn. An
exception is a bug of ours. It is logged with the story it carries, and whom it concerns is told: its turn fails with
`internal_error`, or its worker is killed, which fails its turns in the ordinary way. Where there is neither, the core
cannot be trusted any more and the service ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from toolsd import __version__, messages, report, transport
from toolsd.config import Config
from toolsd.core import events, instructions
from toolsd.core.coordinator import Coordinator
from toolsd.core.instructions import Instruction
from toolsd.core.model import SourceSpec
from toolsd.core.snapshot import SourceView
from toolsd.errors import ConfigError, Failure, InternalError, NameCollision, ToolsdError
from toolsd.node import Node
from toolsd.reception import Reception
from toolsd.reload import OnEnd, Reloads
from toolsd.runtime import Place

_log = logging.getLogger("toolsd")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# How long the last answers may take to leave before the door is closed. Seconds.
_FAREWELL = 1.0
# An alarm that is noticed so late was not rung by a busy loop: the process did not run. Then what has arrived meanwhile
# gets so long to be read before anybody is blamed for being late. Seconds.
_ASLEEP, _CATCH_UP = 0.2, 0.1
# How long a start waits for sources that are not required: a slow one delays nobody but those who call it. Seconds.
_PATIENCE = 0.8

OnService = Callable[["Service"], None]


class Service:
    """One coordinator at one place. Made on the loop it lives on; `run` is its whole life.

    `stop_timeout` is how many seconds a drain may take. `on_ready` is called when clients are heard and every source
    that answers at once was looked at; before that, two sources with one tool name, or a required source that does
    not start, end the service. `on_looked`, if given, is called instead, when every source was looked at.
    `configuration` is where the sources came from: with it they can be reloaded.
    """

    def __init__(
        self,
        sources: Sequence[SourceSpec],
        place: Place,
        *,
        stop_timeout: float = 20.0,
        configuration: Config | None = None,
        on_ready: OnService | None = None,
        on_looked: OnService | None = None,
    ) -> None:
        self.place = place
        self.core = Coordinator(jitter=random.random)
        self.welcome = messages.Welcome(messages.PROTOCOL_VERSION, secrets.token_hex(8), os.getpid(), __version__)
        self._sources = tuple(sources)
        self._stop_timeout = stop_timeout
        self._on_ready = on_ready
        self._on_looked = on_looked
        self._loop = asyncio.get_running_loop()
        self.started = self._loop.time()
        self._pending: deque[events.Event] = deque()
        self._handling = False
        self._looking = True
        self._starting = True
        self._impatient = False
        self._early: list[tuple[bytes, messages.Ask]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._catching_up = False
        self._ended = asyncio.Event()
        self._fatal: ToolsdError | None = None
        self._context = transport.context()
        self.reception = Reception(self._loop, self.welcome, self.post, self._asked)
        self.node = Node(self._loop, self._context, str(place.work), self.post, self._note)
        self.reloads = Reloads(configuration, self.post)
        self._errands: set[asyncio.Task[None]] = set()
        self._questions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "tools": lambda _: report.tools(self),
            "ps": lambda _: report.ps(self),
            "stop": self._stop_asked,
        }
        to_node = self.node.execute
        self._executors: dict[type[Instruction], Callable[[Any], None]] = {
            instructions.SendBatch: to_node,
            instructions.StartWorker: to_node,
            instructions.CancelBatch: to_node,
            instructions.StopWorker: to_node,
            instructions.KillWorker: to_node,
            instructions.FinishTurn: self.reception.finish_turn,
            instructions.FailTurn: self.reception.fail_turn,
            instructions.ReportResults: self.reception.report_results,
            instructions.ReportProgress: self.reception.report_progress,
            instructions.ConfirmCancel: self.reception.confirm_cancel,
            instructions.Note: self._note,
            instructions.ReloadEnded: self._reload_ended,
            instructions.Drained: lambda _: self._ended.set(),
        }

    async def run(self) -> None:
        """Serve until stopped, then leave nothing behind.

        Raises:
            ConfigError: a required source does not start, names collide, or the socket cannot be bound.
            InternalError: a bug that the service could not survive.
        """
        try:
            self.reception.open(self._context, self.place.address)
            waiting = self._loop.call_later(_PATIENCE, self._wait_no_longer)
            try:
                self.post(events.RegistryPublished(self._sources))
                await self._ended.wait()
                if self._fatal is None:
                    self.reloads.stop()
                    self.reception.take_leave()
                await self.reception.flushed(_FAREWELL)
            finally:
                waiting.cancel()
                if self._alarm is not None:
                    self._alarm.cancel()
                self.reception.close(_FAREWELL)
        finally:
            await self.node.close()
            self._context.destroy(linger=0)  # term() would wait for ever for a socket that a failed start left open
        if self._fatal is not None:
            raise self._fatal

    def drain(self) -> None:
        """Finish what runs, refuse what comes, then end."""
        self.post(events.DrainRequested(self._stop_timeout))

    def reload(self, on_end: OnEnd, *, dry_run: bool = False) -> None:
        """Read the configuration again and publish it; `on_end` is called when it is in force, or is not to be."""
        errand = self._loop.create_task(self.reloads.reload(on_end, dry_run=dry_run))
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    def stop(self) -> None:
        """End now: what runs fails, the workers are killed."""
        self.post(events.StopRequested())

    # --- events and instructions ------------------------------------------------------------------------------------

    def post(self, event: events.Event) -> None:
        """Handle `event`, and whatever arises from it, now; or next, when another is being handled."""
        self._pending.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._pending and not self._ended.is_set():
                self._handle(self._pending.popleft())
        finally:
            self._handling = False
        if self._looking:
            self._look()
        self._set_alarm()

    def _handle(self, event: events.Event) -> None:
        try:
            told = self.core.handle(event, self._loop.time())
        except Exception as error:  # noqa: BLE001  # a bug of ours must not end the loop
            self._blame(event, error)
            return
        executors = self._executors
        for instruction in told:
            try:
                executors[type(instruction)](instruction)
            except Exception as error:  # noqa: BLE001  # as above
                self._blame(instruction, error)

    def _blame(self, on: Any, error: Exception) -> None:
        """A bug of ours came up while `on`, an event or an instruction, was worked on."""
        _log.error("internal error while working on %s: %s", type(on).__name__, error, exc_info=error)
        if hasattr(on, "turn") and hasattr(on, "client"):
            text = f"a bug in toolsd: {error}; please report this text whole"
            self.reception.fail_turn(instructions.FailTurn(on.client, on.turn, Failure("internal_error", text)))
        elif hasattr(on, "worker") and not isinstance(on, (events.WorkerExited, instructions.KillWorker)):
            self.node.execute(instructions.KillWorker(on.worker, "protocol"))
        elif not isinstance(on, instructions.Note):
            self._end_badly(InternalError(f"the coordinator cannot go on after {type(on).__name__}: {error}"))

    def _end_badly(self, error: ToolsdError) -> None:
        self._fatal = self._fatal or error
        self._ended.set()

    def _wait_no_longer(self) -> None:
        self._impatient = True
        if self._looking:
            self._look()

    def _look(self) -> None:
        """Which sources were looked at by now, and what follows from it."""
        sources = self.core.snapshot().sources
        pending = [source for source in sources if source.state == "discovering"]
        if len(sources) >= len(self._sources) and not pending:
            self._looking = False
            early, self._early = self._early, []
            for client, ask in early:
                self._asked(client, ask)
            if self._on_looked is not None:
                self._on_looked(self)
        if self._on_looked is not None or not self._starting:
            return
        if self._looking and not (self._impatient and not any(source.required for source in pending)):
            return
        self._starting = False
        refusal = _refusal(sources)
        if refusal is not None:
            self._end_badly(refusal)
        elif self._on_ready is not None:
            self._on_ready(self)

    # --- time -------------------------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        """Have the core's next deadline noticed. An alarm that rings too early costs less than one moved each time."""
        deadline = self.core.next_deadline()
        if deadline is None or self._catching_up:
            return
        if self._alarm is not None:
            if self._alarm.when() <= deadline:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(deadline, self._rang)

    def _rang(self) -> None:
        self._alarm = None
        deadline = self.core.next_deadline()
        late = -1.0 if deadline is None else self._loop.time() - deadline
        if late > _ASLEEP:
            self._catching_up = True
            self._loop.call_later(_CATCH_UP, self._overslept)
        elif late >= 0:
            self.post(events.TimePassed())
        else:
            self._set_alarm()

    def _overslept(self) -> None:
        self._catching_up = False
        self.post(events.TimePassed())

    # --- the operator -----------------------------------------------------------------------------------------------

    def _note(self, note: instructions.Note) -> None:
        extra = {"fields": dict(note.fields)}
        tail = " ".join(f"{name}={value!r}" for name, value in note.fields)
        _log.log(_LEVELS[note.level], "%s%s", note.message, f" ({tail})" if tail else "", extra=extra)

    def _asked(self, client: bytes, ask: messages.Ask) -> None:
        if ask.what == "tools" and self._looking:
            self._early.append((client, ask))  # a list with sources missing would be believed
            return
        if ask.what == "reload":
            dry_run = ask.args.get("dry_run") is True
            self.reload(lambda body: self.reception.answer(client, ask.ask, body), dry_run=dry_run)
            return
        question = self._questions.get(ask.what)
        if question is None:
            self.reception.answer(client, ask.ask, error=f"the coordinator has no answer to {ask.what!r}")
            return
        try:
            body = question(ask.args)
        except Exception as error:  # noqa: BLE001  # a bug in an answer concerns the one who asked
            _log.error("internal error while answering %s: %s", ask.what, error, exc_info=error)
            self.reception.answer(client, ask.ask, error=f"a bug in toolsd: {error}")
            return
        self.reception.answer(client, ask.ask, body)

    def _reload_ended(self, told: instructions.ReloadEnded) -> None:
        self.reloads.ended(told)
        if self.reloads.config is not None:
            self._sources = self.reloads.config.sources  # those are waited for now, if any still are

    def _stop_asked(self, args: dict[str, Any]) -> None:
        self._loop.call_soon(self.stop if args.get("now") is True else self.drain)


def _refusal(sources: Sequence[SourceView]) -> ConfigError | None:
    """What keeps a service from starting: a collision of tool names, or a required source that is not there."""
    failed = [(source, source.failure.message) for source in sources if source.failure is not None]
    collisions = [message for source, message in failed if source.state == "refused"]
    if collisions:
        return NameCollision("; ".join(collisions))
    missing = [f"{source.name}: {message}" for source, message in failed if source.required]
    return ConfigError(f"a required source does not start: {'; '.join(missing)}") if missing else None
