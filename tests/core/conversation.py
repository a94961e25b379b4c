"""A way to talk to the core: post events, look at instructions, read the clock. No sleep, no socket."""

from __future__ import annotations

from typing import Any, TypeVar

from toolsd.core.coordinator import Coordinator
from toolsd.core.events import (
    BatchFinished,
    Event,
    RegistryPublished,
    TimePassed,
    TurnSubmitted,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from toolsd.core.instructions import Instruction, Note, SendBatch, StartWorker
from toolsd.core.model import Call, ExitReport, SourceSpec, ToolSpec

T = TypeVar("T")

NOTES = (ToolSpec("notes_add"), ToolSpec("notes_list"), ToolSpec("notes_find", idempotent=True))
FILES = (ToolSpec("files_read", idempotent=True), ToolSpec("files_grep", idempotent=True))
TOOLS = {"notes": NOTES, "files": FILES}
KILLED = ExitReport(signal="SIGKILL")


def call(tool: str, number: str | None = None, defect: str | None = None) -> Call:
    return Call(number or f"c-{tool}", tool, "{}", defect)


class Conversation:
    """A coordinator, its clock, and what it said last (notes for the log left out)."""

    def __init__(self, **options: Any) -> None:
        self.core = Coordinator(**options)
        self.now = 1000.0
        self.said: list[Instruction] = []
        self.notes: list[Note] = []
        self.pid = 100

    def post(self, event: Event, *, after: float = 0.0) -> list[Instruction]:
        self.now += after
        said = self.core.handle(event, self.now)
        self.notes += [i for i in said if isinstance(i, Note)]
        self.said = [i for i in said if not isinstance(i, Note)]
        return self.said

    def wait(self, seconds: float) -> list[Instruction]:
        """Let time pass, ringing every deadline on the way."""
        until = self.now + seconds
        heard: list[Instruction] = []
        while (due := self.core.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            heard += self.post(TimePassed())
        self.now = until
        self.said = heard
        return heard

    def of(self, kind: type[T]) -> list[T]:
        """What was said last, of one kind."""
        return [i for i in self.said if isinstance(i, kind)]

    def one(self, kind: type[T]) -> T:
        found = self.of(kind)
        assert len(found) == 1, f"{len(found)} {kind.__name__} in {self.said}"
        return found[0]

    def publish(self, *sources: SourceSpec) -> list[StartWorker]:
        self.post(RegistryPublished(sources))
        return self.of(StartWorker)

    def ready(
        self, start: StartWorker, tools: tuple[ToolSpec, ...] | None = None, *, reentrant: bool = False
    ) -> list[Instruction]:
        self.pid += 1
        self.post(WorkerStarted(start.worker, self.pid))
        return self.post(WorkerReady(start.worker, TOOLS[start.source] if tools is None else tools, reentrant))

    def submit(self, turn: str, *tools: str, client: Any = "host", **more: Any) -> list[SendBatch]:
        self.post(TurnSubmitted(client, turn, tuple(call(t, f"{turn}-{i}") for i, t in enumerate(tools)), **more))
        return self.of(SendBatch)

    def finish(self, batch: SendBatch) -> list[Instruction]:
        return self.post(
            BatchFinished(batch.worker, batch.batch, tuple((i, f"ok-{c.id}") for i, c in enumerate(batch.calls)))
        )

    def die(self, worker: int, exit: ExitReport = KILLED) -> list[Instruction]:
        return self.post(WorkerExited(worker, exit))

    def source(self, name: str) -> Any:
        return next(s for s in self.core.snapshot().sources if s.name == name)


def eager(name: str, **more: Any) -> SourceSpec:
    return SourceSpec(name, launch=name, start="eager", **more)


def lazy(name: str, **more: Any) -> SourceSpec:
    return SourceSpec(name, launch=name, **more)


def up(*sources: SourceSpec, reentrant: bool = False, **options: Any) -> Conversation:
    """A conversation in which every start has come up."""
    talk = Conversation(**options)
    for start in talk.publish(*sources):
        talk.ready(start, reentrant=reentrant)
    return talk
