"""The machine itself: impossible events, alarms, bounds on memory."""

from __future__ import annotations

import pytest

from core.conversation import eager, up
from toolsd.core import turns
from toolsd.core.alarms import Alarms
from toolsd.core.coordinator import Coordinator
from toolsd.core.events import NamesSeen
from toolsd.core.instructions import FailTurn, FinishTurn
from toolsd.core.replica import TRANSITIONS as WORKER
from toolsd.core.turn import TRANSITIONS as TURN
from toolsd.core.turn import Turn
from toolsd.errors import InternalError


class Sleeper:
    alarm: float | None = None


def test_an_impossible_transition_tells_the_story_of_the_turn():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    turn = talk.core._turns.open["t"]
    talk.finish(batch)
    with pytest.raises(InternalError) as caught:
        turn.to("running", talk.now)
    text = str(caught.value)
    assert "turn 't' (ended) cannot become running" in text
    assert ["waiting", f"sent {batch.batch}", "running", f"over {batch.batch}", "ended"] == [
        line.split(maxsplit=1)[1].removeprefix("batch ") for line in text.splitlines()[1:-1]
    ]


def test_a_story_is_bounded():
    turn = Turn("t", "host", None, "streaming", 0.0)
    for i in range(1000):
        turn.story.append((float(i), "something", i))
    with pytest.raises(InternalError) as caught:
        turn.to("running", 0.0)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("table", [TURN, WORKER])
def test_tables_name_only_their_states_and_end_somewhere(table):
    assert set().union(*table.values()) <= table.keys()
    assert [state for state, following in table.items() if not following] in (["ended"], ["gone"])


def test_an_event_of_no_known_kind_is_a_bug():
    with pytest.raises(InternalError, match="str"):
        Coordinator().handle("hello", 0.0)


def test_alarms_ring_in_order_and_once():
    alarms, one, two = Alarms(), Sleeper(), Sleeper()
    alarms.arm(one, 5.0)
    alarms.arm(two, 3.0)
    alarms.arm(one, 4.0)
    alarms.arm(one, 9.0)
    assert alarms.next() == 3.0
    assert alarms.due(4.5) == [two, one]
    assert alarms.due(100.0) == [] and alarms.next() is None


def test_alarms_taken_back_do_not_pile_up():
    alarms = Alarms()
    for i in range(10_000):
        sleeper = Sleeper()
        alarms.arm(sleeper, float(i))
        alarms.disarm(sleeper)
    assert len(alarms) < 200


def test_ended_turns_are_forgotten(monkeypatch):
    monkeypatch.setattr(turns, "ENDED_MAX", 10)
    talk = up(eager("notes"))
    for i in range(500):
        (batch,) = talk.submit(f"t{i}", "notes_add", deadline=1e6)
        talk.finish(batch)
    assert len(talk.core._turns._ended) == 10
    assert len(talk.core._shared.alarms) < 200
    assert talk.core._turns.open == {} and talk.core._turns._by_client == {}
    talk.submit("t499", "notes_add")
    assert talk.one(FailTurn).failure.code == "duplicate_turn"


def test_a_finished_turn_holds_no_payload():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    turn = talk.core._turns.open["t"]
    talk.finish(batch)
    assert talk.one(FinishTurn).results
    assert (turn.calls, turn.results, turn.batches) == ((), [], [])


def test_only_so_many_streams_are_kept_open_and_the_rest_still_runs(monkeypatch):
    monkeypatch.setattr(turns, "STREAMING_MAX", 2)
    talk = up(eager("notes"))
    for i in range(4):
        talk.post(NamesSeen("host", f"t{i}", ("notes_add",)))
    assert len(talk.core.snapshot().turns) == 2
    assert len(talk.submit("t3", "notes_add")) == 1
