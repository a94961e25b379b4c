"""Drain and stop."""

from __future__ import annotations

from core.conversation import Conversation, eager, lazy, up
from toolsd.core.events import DrainRequested, NamesSeen, RegistryPublished, StopRequested
from toolsd.core.fleet import EVIDENCE_WAIT
from toolsd.core.instructions import (
    Drained,
    FailTurn,
    FinishTurn,
    KillWorker,
    ReloadEnded,
    SendBatch,
    StartWorker,
    StopWorker,
)
from toolsd.core.model import ExitReport

LEFT = ExitReport(exit_code=0, reason="stop")


def test_nothing_to_do_is_drained_at_once():
    assert Conversation().post(DrainRequested(5.0)) == [Drained()]


def test_what_runs_and_waits_is_finished_and_what_comes_is_refused():
    talk = up(eager("notes"))
    (first,) = talk.submit("t", "notes_add")
    talk.submit("queued", "notes_add")
    talk.post(NamesSeen("host", "stream", ("notes_add",)))
    talk.post(DrainRequested(60.0))
    assert (talk.one(FailTurn).turn, talk.one(FailTurn).failure.code) == ("stream", "draining")
    talk.submit("late", "notes_add")
    assert talk.one(FailTurn).failure.retry == "safe"
    talk.finish(first)
    second = talk.one(SendBatch)
    assert talk.of(FinishTurn) and talk.of(StopWorker) == []
    talk.finish(second)
    assert talk.one(StopWorker).worker == 1
    assert talk.die(1, LEFT) == [Drained()]
    assert talk.core.snapshot().mode == "stopped"
    talk.submit("later", "notes_add")
    assert talk.one(FailTurn).failure.code == "draining"


def test_a_crash_while_draining_starts_what_still_waits():
    talk = up(eager("notes"))
    (first,) = talk.submit("t", "notes_add")
    talk.submit("queued", "notes_add")
    talk.post(DrainRequested(60.0))
    talk.die(first.worker)
    start = talk.one(StartWorker)
    talk.ready(start)
    talk.finish(talk.said[0])
    assert talk.one(StopWorker).worker == start.worker


def test_what_runs_too_long_is_killed():
    talk = up(eager("notes"), eager("files"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(DrainRequested(10.0))
    assert talk.of(StopWorker) == []
    talk.wait(10.0)
    failure = talk.one(FailTurn).failure
    assert (failure.code, [e.state for e in failure.ledger]) == ("draining", ["sent"])
    assert {(k.worker, k.reason) for k in talk.of(KillWorker)} == {(1, "drain"), (2, "drain")}
    talk.die(batch.worker, ExitReport(signal="SIGKILL", reason="drain"))
    assert talk.die(2, ExitReport(signal="SIGKILL", reason="drain")) == [Drained()]


def test_stop_ends_everything_now():
    talk = up(eager("notes"), lazy("files"))
    talk.submit("t", "notes_add")
    talk.post(DrainRequested(10.0))
    talk.post(StopRequested())
    assert talk.one(FailTurn).failure.code == "draining"
    assert {k.reason for k in talk.of(KillWorker)} == {"stop"}
    talk.die(1, ExitReport(signal="SIGKILL", reason="stop"))
    assert talk.die(2, ExitReport(signal="SIGKILL", reason="stop")) == [Drained()]
    assert talk.post(StopRequested()) == []
    talk.post(RegistryPublished((eager("notes"),)))
    assert talk.one(ReloadEnded).refused == "the coordinator is stopping"


def test_workers_that_never_report_their_exit_do_not_hold_up_the_end():
    talk = up(eager("notes"))
    talk.post(StopRequested())
    talk.wait(EVIDENCE_WAIT)
    assert talk.said == [Drained()]
    assert talk.die(1) == []


def test_a_stopping_worker_that_stays_is_killed_when_the_drain_is_over():
    talk = up(eager("notes"))
    talk.post(DrainRequested(10.0))
    assert talk.one(StopWorker).worker == 1
    talk.wait(10.0)
    assert talk.one(KillWorker).reason == "drain"
