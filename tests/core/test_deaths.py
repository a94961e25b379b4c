"""Workers that die: by themselves, for a deadline, for breaking the protocol."""

from __future__ import annotations

from core.conversation import eager, lazy, up
from toolsd.core.events import (
    BatchFailed,
    BatchFinished,
    ProgressReported,
    SlotsFilled,
    WorkerMisbehaved,
)
from toolsd.core.fleet import EVIDENCE_WAIT
from toolsd.core.instructions import CancelBatch, FailTurn, FinishTurn, KillWorker, SendBatch, StartWorker
from toolsd.core.model import ExitReport, Restart
from toolsd.errors import Failure

PATIENT = Restart(max=1000)


def test_a_crash_fails_the_turn_with_evidence_and_ledger_and_the_sibling_is_cancelled():
    talk = up(eager("notes"), eager("files"))
    notes, files = talk.submit("t", "notes_add", "files_read", "notes_list", "nope")
    exit = ExitReport(
        signal="SIGSEGV", stderr_tail="boom\n", running="notes_list", states={notes.batch: ("finished", "started")}
    )
    talk.die(notes.worker, exit)
    failure = talk.one(FailTurn).failure
    assert failure.code == "worker_crashed" and failure.source == "notes"
    assert "SIGSEGV" in failure.message and "'notes_list'" in failure.message
    assert (failure.evidence.signal, failure.evidence.pid, failure.evidence.stderr_tail) == ("SIGSEGV", 101, "boom\n")
    assert [(e.source, e.state) for e in failure.ledger] == [
        ("notes", "finished"),
        ("files", "sent"),
        ("notes", "started"),
        (None, "not_sent"),
    ]
    assert failure.retry == "idempotent_only"
    assert talk.one(CancelBatch) == CancelBatch(files.worker, files.batch)
    start = talk.one(StartWorker)
    assert start.source == "notes"
    assert talk.finish(files) == []
    talk.ready(start)
    assert len(talk.submit("u", "notes_add", "files_read")) == 2


def test_out_of_memory_needs_proof():
    talk = up(eager("notes", restart=PATIENT))
    (batch,) = talk.submit("t", "notes_add")
    talk.die(batch.worker, ExitReport(signal="SIGKILL", oom="memory.events oom_kill 1"))
    assert talk.one(FailTurn).failure.code == "worker_out_of_memory"


def test_fail_calls_puts_the_error_into_the_empty_slots():
    talk = up(eager("notes", on_crash="fail_calls"), eager("files"))
    notes, files = talk.submit("t", "notes_add", "files_read", "notes_list")
    talk.post(SlotsFilled(notes.worker, notes.batch, ((0, "first"),)))
    talk.die(notes.worker)
    assert talk.of(FailTurn) == []
    talk.finish(files)
    outcomes = [o for _, o in talk.one(FinishTurn).results]
    assert outcomes[:2] == ["first", "ok-t-1"]
    assert outcomes[2].code == "worker_crashed"


def test_the_turn_may_ask_for_fail_calls_itself():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add", on_crash="fail_calls")
    talk.die(batch.worker)
    assert [o.code for _, o in talk.one(FinishTurn).results] == ["worker_crashed"]


def test_an_idempotent_batch_is_retried_once_under_a_new_number():
    talk = up(eager("files", restart=PATIENT))
    (batch,) = talk.submit("t", "files_read", "files_grep")
    talk.post(SlotsFilled(batch.worker, batch.batch, ((0, "kept"),)))
    talk.die(batch.worker)
    assert talk.of(FailTurn) == []
    start = talk.one(StartWorker)
    talk.ready(start)
    again = talk.one(SendBatch)
    assert again.batch != batch.batch and [c.tool for c in again.calls] == ["files_grep"]
    talk.post(BatchFinished(batch.worker, batch.batch, ((1, "ghost"),)))
    assert talk.said == []
    talk.post(BatchFinished(again.worker, again.batch, ((0, "second"),)))
    end = talk.one(FinishTurn)
    assert end.results == ((0, "kept"), (1, "second"))
    assert [b.worker for b in end.batches] == [batch.worker, again.worker]


def test_the_second_death_of_an_idempotent_batch_is_final():
    talk = up(eager("files", restart=PATIENT))
    (batch,) = talk.submit("t", "files_read")
    talk.die(batch.worker)
    talk.ready(talk.one(StartWorker))
    again = talk.one(SendBatch)
    talk.die(again.worker)
    assert talk.one(FailTurn).failure.code == "worker_crashed"


def test_a_blown_deadline_kills_with_autopsy_and_waits_for_the_proof():
    talk = up(eager("notes", batch_timeout=10.0), eager("files"))
    notes, files = talk.submit("t", "notes_add", "files_read")
    assert notes.deadline == 10.0
    talk.wait(9.9)
    assert talk.said == []
    talk.wait(0.2)
    assert talk.one(KillWorker) == KillWorker(notes.worker, "deadline", autopsy=True)
    assert talk.one(CancelBatch).batch == files.batch
    assert talk.of(FailTurn) == []
    talk.post(BatchFinished(notes.worker, notes.batch, ((0, "too late"),)))
    assert talk.said == []
    talk.die(
        notes.worker,
        ExitReport(signal="SIGKILL", reason="deadline", stacks="at line 3", states={notes.batch: ("started",)}),
    )
    failure = talk.one(FailTurn).failure
    assert failure.code == "batch_timeout"
    assert (failure.evidence.stacks, failure.evidence.limit) == ("at line 3", 10.0)
    assert [e.state for e in failure.ledger] == ["started", "sent"]
    assert talk.source("notes").restarts == 0


def test_a_killed_worker_that_does_not_report_its_exit_holds_nobody_up():
    talk = up(eager("notes", batch_timeout=10.0))
    (batch,) = talk.submit("t", "notes_add")
    talk.wait(10.0 + EVIDENCE_WAIT)
    failure = talk.one(FailTurn).failure
    assert failure.code == "batch_timeout" and failure.evidence.signal is None
    assert [e.state for e in failure.ledger] == ["unknown"]
    assert talk.die(batch.worker) == []


def test_garbage_from_a_worker_kills_it_and_fails_its_turns():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(WorkerMisbehaved(batch.worker, "a frame of kind 0xff"))
    assert talk.one(KillWorker) == KillWorker(batch.worker, "protocol")
    talk.die(batch.worker, ExitReport(signal="SIGKILL", reason="protocol"))
    failure = talk.one(FailTurn).failure
    assert failure.code == "protocol_violation" and "0xff" in failure.message


def test_wrong_slots_are_a_protocol_violation():
    for results in [((0, "a"),), ((0, "a"), (0, "b")), ((0, "a"), (2, "b")), ((0, "a"), (-1, "b"))]:
        talk = up(eager("notes"))
        (batch,) = talk.submit("t", "notes_add", "notes_list")
        talk.post(BatchFinished(batch.worker, batch.batch, results))
        assert talk.one(KillWorker).reason == "protocol"
        talk.die(batch.worker, ExitReport(signal="SIGKILL", reason="protocol"))
        assert talk.one(FailTurn).failure.code == "protocol_violation"


def test_a_failed_batch_fails_the_turn_and_the_worker_lives_on():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add", "notes_list")
    talk.post(ProgressReported(batch.worker, batch.batch, 1, b"50%"))
    talk.post(BatchFailed(batch.worker, batch.batch, Failure("batch_raised", "ValueError: no")))
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.source) == ("batch_raised", "notes")
    assert [e.state for e in failure.ledger] == ["sent", "started"]
    (again,) = talk.submit("u", "notes_add", "notes_list")
    assert again.worker == batch.worker
    failed = BatchFailed(again.worker, again.batch, Failure("batch_raised", "no"), ("finished", "started"))
    talk.post(failed)
    assert [e.state for e in talk.one(FailTurn).failure.ledger] == ["finished", "started"]


def test_a_death_fails_every_turn_the_worker_held_and_an_innocent_one_is_no_timeout():
    talk = up(eager("notes", max_batches=2, batch_timeout=10.0), reentrant=True)
    (one,) = talk.submit("t", "notes_add")
    talk.now += 5
    (two,) = talk.submit("u", "notes_add")
    assert (one.worker, one.region, two.region) == (two.worker, 0, 1)
    talk.wait(5.0)
    assert talk.one(KillWorker).reason == "deadline"
    talk.die(one.worker, ExitReport(signal="SIGKILL", reason="deadline"))
    codes = {f.turn: f.failure.code for f in talk.of(FailTurn)}
    assert codes == {"t": "batch_timeout", "u": "worker_lost"}


def test_two_hundred_deaths_between_good_turns_open_no_breaker_and_cost_no_delay():
    talk = up(eager("notes"))
    for number in range(200):
        (good,) = talk.submit(f"good {number}", "notes_add")
        talk.finish(good)
        (bad,) = talk.submit(f"bad {number}", "notes_add")
        talk.die(bad.worker)
        talk.ready(talk.one(StartWorker))


def test_deaths_with_nothing_done_in_between_open_the_breaker():
    talk = up(eager("notes", restart=Restart(max=2, backoff_min=0.0)))
    (good,) = talk.submit("good", "notes_add")
    talk.finish(good)
    for number in range(3):
        (bad,) = talk.submit(f"bad {number}", "notes_add")
        talk.die(bad.worker)
        if number < 2:
            talk.ready(talk.one(StartWorker))
    assert talk.of(StartWorker) == []
    assert talk.submit("late", "notes_add") == []
    assert talk.one(FailTurn).failure.code == "source_unavailable"


def test_a_batch_that_never_left_is_sent_to_the_next_worker():
    talk = up(eager("notes", restart=PATIENT))
    (batch,) = talk.submit("t", "notes_add", "notes_list")
    talk.die(batch.worker, ExitReport(signal="SIGKILL", states={batch.batch: ("not_sent", "not_sent")}))
    assert talk.of(FailTurn) == []
    talk.ready(talk.one(StartWorker))
    again = talk.one(SendBatch)
    assert again.batch != batch.batch and again.calls == batch.calls
    talk.finish(again)
    assert talk.one(FinishTurn).turn == "t"


def test_a_failure_no_batch_can_have_is_a_protocol_violation():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.post(BatchFailed(batch.worker, batch.batch, Failure("draining", "no")))
    assert talk.one(KillWorker).reason == "protocol"


def test_a_lazy_source_whose_worker_died_is_idle_and_its_death_still_shown():
    talk = up(lazy("notes"))
    talk.submit("t", "notes_add")
    talk.ready(talk.one(StartWorker))
    talk.die(talk.one(SendBatch).worker)
    shown = talk.source("notes")
    assert (shown.state, shown.failure.code) == ("idle", "worker_crashed")
