"""Cancelling: stopped by itself, killed, or finished first; and clients that go away."""

from __future__ import annotations

from core.conversation import eager, up
from toolsd.core.events import BatchFailed, CancelRequested, ClientGone, NamesSeen
from toolsd.core.instructions import CancelBatch, ConfirmCancel, FailTurn, FinishTurn, KillWorker, SendBatch
from toolsd.core.model import ExitReport
from toolsd.errors import Failure

STOPPED = Failure("turn_cancelled", "stopped")


def test_a_batch_that_stops_by_itself():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    assert talk.post(CancelRequested("other", "t")) == [CancelBatch(batch.worker, batch.batch)]
    talk.post(BatchFailed(batch.worker, batch.batch, STOPPED))
    assert talk.one(ConfirmCancel) == ConfirmCancel("other", "t", "stopped")
    failure = talk.one(FailTurn).failure
    assert talk.one(FailTurn).client == "host"
    assert (failure.code, failure.cause) == ("turn_cancelled", "stopped")
    assert talk.core.next_deadline() is not None  # the old alarm of the worker
    assert talk.wait(1000) == []


def test_a_batch_that_does_not_stop_is_killed_after_the_grace():
    talk = up(eager("notes", cancel_grace=2.0))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(CancelRequested("host", "t"))
    talk.wait(2.0)
    assert talk.one(KillWorker) == KillWorker(batch.worker, "cancel")
    talk.die(batch.worker, ExitReport(signal="SIGKILL", reason="cancel", states={batch.batch: ("started",)}))
    assert talk.one(ConfirmCancel).outcome == "killed"
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.cause) == ("turn_cancelled", "killed")
    assert [e.state for e in failure.ledger] == ["started"]


def test_a_batch_that_finished_first():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(CancelRequested("host", "t"))
    talk.finish(batch)
    assert talk.one(ConfirmCancel).outcome == "finished_first"
    assert [e.state for e in talk.one(FailTurn).failure.ledger] == ["finished"]


def test_cancelling_what_only_waits_ends_at_once():
    talk = up(eager("notes"))
    (first,) = talk.submit("t", "notes_add")
    assert talk.submit("u", "notes_add") == []
    talk.post(CancelRequested("host", "u"))
    assert talk.one(FailTurn).failure.cause == "stopped"
    assert talk.one(FailTurn).failure.retry == "safe"
    assert talk.source("notes").queued == 0
    talk.finish(first)
    assert talk.of(SendBatch) == []


def test_cancelling_a_stream_a_stranger_and_an_ended_turn():
    talk = up(eager("notes"))
    talk.post(NamesSeen("host", "t", ("notes_add",)))
    talk.post(CancelRequested("host", "t"))
    assert talk.one(ConfirmCancel).outcome == "stopped"
    assert talk.post(CancelRequested("host", "never")) == [ConfirmCancel("host", "never", None)]
    (batch,) = talk.submit("u", "notes_add")
    talk.finish(batch)
    assert talk.post(CancelRequested("host", "u")) == [ConfirmCancel("host", "u", "finished_first")]


def test_two_who_cancel_are_both_told_and_the_turn_ends_once():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(CancelRequested("host", "t"))
    assert talk.post(CancelRequested("other", "t")) == []
    talk.post(BatchFailed(batch.worker, batch.batch, STOPPED))
    assert [c.client for c in talk.of(ConfirmCancel)] == ["host", "other"]
    assert len(talk.of(FailTurn)) == 1


def test_a_client_that_goes_takes_its_turns_along_silently():
    talk = up(eager("notes"), eager("files"))
    notes, files = talk.submit("t", "notes_add", "files_read")
    talk.submit("u", "notes_add")
    (mine,) = talk.submit("v", "files_read", client="other") or (None,)
    talk.post(ClientGone("host"))
    assert {c.batch for c in talk.of(CancelBatch)} == {notes.batch, files.batch}
    assert talk.of(FailTurn) == []
    assert [t.turn for t in talk.core.snapshot().turns] == ["v"]
    talk.finish(files)
    talk.finish(talk.one(SendBatch))
    assert talk.one(FinishTurn).client == "other"
    assert mine is None


def test_who_cancelled_anothers_turn_is_told_even_if_its_owner_goes():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(CancelRequested("other", "t"))
    assert talk.post(ClientGone("host")) == []
    talk.post(BatchFailed(batch.worker, batch.batch, STOPPED))
    assert talk.said == [ConfirmCancel("other", "t", "stopped")]


def test_a_cancel_nobody_asked_for_is_a_protocol_violation():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(BatchFailed(batch.worker, batch.batch, STOPPED))
    assert talk.one(KillWorker).reason == "protocol"


def test_the_callers_deadline_ends_the_turn_at_once_and_then_the_work():
    talk = up(eager("notes", cancel_grace=2.0))
    (batch,) = talk.submit("t", "notes_add", deadline=5.0)
    assert batch.deadline == 5.0
    talk.wait(5.0)
    assert talk.one(FailTurn).failure.code == "turn_timeout"
    assert talk.one(CancelBatch).batch == batch.batch
    talk.wait(2.0)
    assert talk.one(KillWorker).reason == "cancel"
    talk.die(batch.worker, ExitReport(signal="SIGKILL", reason="cancel"))
    assert talk.of(FailTurn) == []


def test_a_deadline_that_has_passed_already():
    talk = up(eager("notes"))
    talk.submit("t", "notes_add", deadline=0.0)
    assert talk.one(FailTurn).failure.code == "turn_timeout"
    assert talk.one(FailTurn).failure.retry == "safe"
