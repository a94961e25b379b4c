"""Recycling: a worker that is well is replaced between batches, its successor first."""

from __future__ import annotations

from core.conversation import NOTES, eager, up
from toolsd.core.events import DrainRequested, WorkerGrew, WorkerStartFailed
from toolsd.core.instructions import FailTurn, FinishTurn, SendBatch, StartWorker, StopWorker
from toolsd.core.model import ExitReport, Recycle, ToolSpec

LEFT = ExitReport(exit_code=0, reason="stop")
TWO = Recycle(turns=2)


def _used_up(**more):
    """A conversation whose worker 1 has just ended its last batch; gives it and the start of the successor."""
    talk = up(eager("notes", recycle=TWO, **more))
    for number in range(2):
        (batch,) = talk.submit(f"t{number}", "notes_add")
        talk.finish(batch)
    return talk, talk.one(StartWorker)


def test_after_its_turns_a_successor_is_started_while_it_goes_on():
    talk, start = _used_up()
    assert talk.of(StopWorker) == []
    (batch,) = talk.submit("u", "notes_add")
    assert batch.worker == 1
    assert talk.finish(batch) == [talk.one(FinishTurn)]
    talk.ready(start)
    assert talk.one(StopWorker).worker == 1
    assert talk.submit("v", "notes_add")[0].worker == start.worker
    talk.die(1, LEFT)
    assert talk.of(StartWorker) == []
    assert talk.source("notes").restarts == 0


def test_it_ends_what_it_holds_and_what_waits_goes_to_the_successor():
    talk, start = _used_up()
    (held,) = talk.submit("held", "notes_add")
    talk.submit("waits", "notes_add")
    talk.ready(start)
    assert talk.one(SendBatch).worker == start.worker and talk.of(StopWorker) == []
    talk.finish(held)
    assert talk.one(FinishTurn).turn == "held"
    assert talk.one(StopWorker).worker == 1
    assert talk.of(SendBatch) == []


def test_by_age():
    talk = up(eager("notes", recycle=Recycle(age=60.0)))
    assert talk.wait(59.0) == []
    (start,) = talk.wait(2.0)
    assert isinstance(start, StartWorker)
    talk.ready(start)
    assert talk.one(StopWorker).worker == 1


def test_by_memory_only_if_the_node_says_so():
    talk = up(eager("notes", recycle=Recycle(rss=1 << 30)))
    talk.post(WorkerGrew(1, 2 << 30))
    talk.ready(talk.one(StartWorker))
    assert talk.one(StopWorker).worker == 1


def test_replicas_are_replaced_one_at_a_time():
    talk = up(eager("notes", replicas=3, recycle=Recycle(age=60.0)))
    told = talk.wait(61.0)
    assert [type(i) for i in told] == [StartWorker]
    for old in (1, 2, 3):
        start = talk.one(StartWorker)
        talk.ready(start)
        assert talk.one(StopWorker).worker == old
        assert talk.of(StartWorker) == []
        talk.die(old, LEFT)
    assert talk.of(StartWorker) == []
    assert talk.source("notes").processes == 3


def test_a_worker_that_dies_meanwhile_leaves_its_seat_to_the_spare():
    talk, start = _used_up()
    (batch,) = talk.submit("u", "notes_add")
    talk.submit("waits", "notes_add")
    talk.die(batch.worker)
    assert talk.one(FailTurn).turn == "u"
    assert talk.of(StartWorker) == []
    talk.ready(start)
    assert talk.one(SendBatch).worker == start.worker and talk.of(StopWorker) == []


def test_a_spare_that_does_not_start_changes_nothing_for_turns():
    talk, start = _used_up()
    talk.post(WorkerStartFailed(start.worker, "the disk is full"))
    again = talk.one(StartWorker)  # the first failure costs nothing
    assert talk.submit("u", "notes_add")[0].worker == 1
    talk.post(WorkerStartFailed(again.worker, "the disk is full"))
    assert talk.of(StartWorker) == []
    assert [type(i) for i in talk.wait(1.0)] == [StartWorker]


def test_a_spare_with_other_tools_is_not_let_in():
    talk, start = _used_up()
    talk.ready(start, (*NOTES, ToolSpec("notes_new")))
    assert talk.of(StopWorker) == []
    assert talk.submit("u", "notes_add")[0].worker == 1


def test_a_session_hears_that_its_state_went():
    talk = up(eager("notes", recycle=TWO, affinity="session"))
    for number in range(2):
        talk.finish(talk.submit(f"t{number}", "notes_add", session="s")[0])
    start = talk.one(StartWorker)
    (held,) = talk.submit("held", "notes_add", session="other")
    talk.submit("waits", "notes_add", session="s")
    talk.ready(start)
    assert talk.one(FailTurn).failure.code == "state_lost"
    talk.finish(held)
    assert talk.submit("fresh", "notes_add", session="s")[0].worker == start.worker


def test_a_reload_sends_the_spare_away_too():
    talk, start = _used_up()
    (new,) = [s for s in talk.publish(eager("notes", recycle=TWO, batch_timeout=9.0)) if s.worker != start.worker] or [
        None
    ]
    if new is None:  # two processes are the bound: the new generation's first start waits for the spare to go
        talk.ready(start)
        assert talk.one(StopWorker).worker == 1
        talk.die(1, LEFT)
        new = talk.one(StartWorker)
    talk.ready(new)
    assert talk.one(StopWorker).worker == start.worker


def test_a_drain_waits_for_no_spare():
    talk, start = _used_up()
    talk.post(DrainRequested(5.0))
    assert {stop.worker for stop in talk.of(StopWorker)} == {1, start.worker}
