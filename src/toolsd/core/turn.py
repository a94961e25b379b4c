"""One turn: its calls, their results, and what may happen to it.

Owns the states of a turn, the order of its results and its ledger. Must not know workers beyond the batches it has.

Theory of operation.

    streaming ──▶ waiting ──▶ running ──▶ closing ──▶ ended
        │            ├───────────┼────────────┘         ▲
        └────────────┴───────────┴──────────────────────┘

`streaming`: names were seen, the calls are not known yet. `waiting`: submitted, nothing was sent. `running`: at least
one batch was sent. `closing`: how it ends is decided, and the proof is awaited: a cancel must be able to say
*stopped* or *killed*, a deadline wants the stacks and the flight record of the worker it killed. Results that arrive
while it is closing count for the ledger and are not delivered. `ended` is final; the payloads are freed then.

Results are kept at the place of their call, so they go back in the model's order whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from toolsd.core.instructions import BatchRecord
from toolsd.core.model import Call, CancelOutcome, OnCrash
from toolsd.core.story import Story, Table, broken, new_story
from toolsd.errors import CallState, LedgerEntry, SlotError

if TYPE_CHECKING:
    from toolsd.core.batch import Batch
    from toolsd.core.registry import Generation

TurnState = Literal["streaming", "waiting", "running", "closing", "ended"]

TRANSITIONS: Table = {
    "streaming": frozenset({"waiting", "ended"}),
    "waiting": frozenset({"running", "closing", "ended"}),
    "running": frozenset({"closing", "ended"}),
    "closing": frozenset({"ended"}),
    "ended": frozenset(),
}

# What a dead worker's flight record adds to what was known: the later state wins, a guess never beats a claim.
_RANK: dict[CallState, int] = {"not_sent": 0, "sent": 1, "unknown": 2, "started": 3, "finished": 4}


class Slot(Enum):
    """The one value that stands for 'no result yet'; any other value is an outcome."""

    EMPTY = 0


EMPTY: Final = Slot.EMPTY


class Turn:
    """See the module. `pending` counts batches that are not over, `left` empty places, `unresolved` are calls whose
    tool nobody declares yet.

    `awaited` is the batch whose worker's death a closing turn waits for (`None`: it was cancelled and waits for all);
    `later` is a second cause that came while it waited. `outcome` is how a cancel would end, `askers` are the clients
    that asked for one. `deserted`: its client is gone.
    """

    __slots__ = (
        "alarm",
        "askers",
        "awaited",
        "batches",
        "calls",
        "client",
        "deadline",
        "deadline_at",
        "deserted",
        "generation",
        "id",
        "known",
        "later",
        "left",
        "on_crash",
        "orphaned",
        "outcome",
        "pending",
        "records",
        "reported",
        "results",
        "session",
        "since",
        "state",
        "story",
        "stream",
        "unresolved",
    )

    def __init__(self, number: str, client: Any, session: str | None, state: TurnState, now: float) -> None:
        self.id = number
        self.client = client
        self.session = session
        self.state: TurnState = state
        self.since = now
        self.calls: tuple[Call, ...] = ()
        self.results: list[Any] = []
        self.reported: set[int] | None = None
        self.batches: list[Batch] = []
        self.records: list[BatchRecord] = []
        self.pending = 0
        self.left = 0
        self.unresolved: list[int] = []
        self.known: dict[int, CallState] | None = None
        self.stream = False
        self.orphaned = False
        self.on_crash: OnCrash | None = None
        self.deadline: float | None = None
        self.deadline_at: float | None = None
        self.generation: Generation | None = None
        self.later: str | None = None
        self.awaited: Batch | None = None
        self.outcome: CancelOutcome = "finished_first"
        self.askers: list[Any] = []
        self.deserted = False
        self.alarm: float | None = None
        self.story: Story = new_story()
        self.story.append((now, state, 0))

    def to(self, state: TurnState, now: float) -> None:
        """Change state. Raises InternalError with the turn's story."""
        if state not in TRANSITIONS[self.state]:
            raise broken(f"turn {self.id!r} ({self.state})", f"become {state}", self.story)
        self.state = state
        self.since = now
        self.story.append((now, state, 0))

    def cancel_outcome(self) -> CancelOutcome:
        """How a cancel of this turn ended, if it ends now."""
        return "stopped" if self.outcome == "finished_first" and self.left else self.outcome

    # --- results ---

    def put(self, index: int, outcome: Any) -> None:
        """Fill the place of call `index`. Raises InternalError when it is taken."""
        if self.results[index] is not EMPTY:
            raise broken(f"turn {self.id!r}", f"fill the slot of call {index} twice", self.story)
        self.results[index] = outcome
        self.left -= 1

    def take_new(self, indexes: Iterable[int]) -> tuple[tuple[int, Any], ...]:
        """The results of these calls that were not reported, in call order; they count as reported now."""
        if self.reported is None:
            self.reported = set()
        fresh = [i for i in sorted(indexes) if i not in self.reported and self.results[i] is not EMPTY]
        self.reported.update(fresh)
        return tuple([(i, self.results[i]) for i in fresh])

    def take_rest(self) -> tuple[tuple[int, Any], ...]:
        """Everything that was not reported, in call order. Raises InternalError when a place is empty."""
        results = self.results
        if self.left:
            raise broken(f"turn {self.id!r}", f"end with {self.left} empty slots", self.story)
        if not self.reported:
            return tuple(enumerate(results))
        return tuple([(i, results[i]) for i in range(len(results)) if i not in self.reported])

    # --- the ledger ---

    def learn(self, batch: Batch, states: tuple[CallState, ...] | None, otherwise: CallState) -> None:
        """Note what is known of the calls of a batch that ended without answering for all of them.

        `states` is the flight record of this batch; `otherwise` is what holds for calls it does not cover.
        """
        known = self.known
        if known is None:
            known = self.known = {}
        for slot, index in enumerate(batch.indexes):
            state: CallState = "not_sent" if batch.worker is None else otherwise
            if states is not None and slot < len(states):
                state = states[slot]
            if batch.started is not None and slot in batch.started:
                state = max("started", state, key=_RANK.__getitem__)
            known[index] = max(known.get(index, "not_sent"), state, key=_RANK.__getitem__)

    def ledger(self) -> tuple[LedgerEntry, ...]:
        """What is known of each call now."""
        sources: dict[int, str] = {}
        states: dict[int, CallState] = dict(self.known or {})
        for batch in self.batches:
            for slot, index in enumerate(batch.indexes):
                sources[index] = batch.pool.name
                if batch.state != "over":
                    states[index] = max(states.get(index, "not_sent"), batch.known_state(slot), key=_RANK.__getitem__)
        entries: list[LedgerEntry] = []
        for index, call in enumerate(self.calls):
            state = states.get(index, "not_sent")
            if index in sources and self.results and self.results[index] is not EMPTY:
                # An error that stands for a dead worker fills the slot too, and claims nothing of the call.
                state = state if isinstance(self.results[index], SlotError) else "finished"
            entries.append(LedgerEntry(index, call.id, call.tool, sources.get(index), state))
        return tuple(entries)

    def free(self) -> None:
        """Drop the payloads; what remains is small and known by whom still holds it."""
        self.calls = ()
        self.results = []
        self.unresolved = []
        for batch in self.batches:
            batch.calls = ()
        self.batches = []
