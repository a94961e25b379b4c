"""Turns that end well, and calls that get an error in their slot."""

from __future__ import annotations

from core.conversation import call, eager, lazy, up
from toolsd.core.events import BatchFinished, NamesSeen, SlotsFilled, TurnSubmitted
from toolsd.core.instructions import FailTurn, FinishTurn, ReportResults, SendBatch
from toolsd.core.model import Call
from toolsd.errors import SlotError


def test_one_batch_a_source_and_results_in_call_order():
    talk = up(eager("notes"), eager("files"))
    notes, files = talk.submit("t", "notes_add", "files_read", "notes_list", "files_grep")
    assert [c.tool for c in notes.calls] == ["notes_add", "notes_list"]
    assert [c.tool for c in files.calls] == ["files_read", "files_grep"]
    assert notes.worker != files.worker
    assert talk.finish(files) == []
    talk.finish(notes)
    end = talk.one(FinishTurn)
    assert end.results == ((0, "ok-t-0"), (1, "ok-t-1"), (2, "ok-t-2"), (3, "ok-t-3"))
    assert [(b.source, b.indexes, b.pid) for b in end.batches] == [("files", (1, 3), 102), ("notes", (0, 2), 101)]
    assert talk.core.snapshot().turns == ()


def test_an_empty_turn_ends_at_once():
    talk = up(eager("notes"))
    assert talk.post(TurnSubmitted("host", "t", ())) == [FinishTurn("host", "t", ())]


def test_an_unknown_tool_is_an_error_in_its_slot_with_near_names():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_ad", "notes_list")
    talk.finish(batch)
    (_, error), (_, good) = talk.one(FinishTurn).results
    assert isinstance(error, SlotError) and error.code == "unknown_tool"
    assert "'notes_add'" in error.message and error.details["near"][0] == "notes_add"
    talk.submit("shouted", "NOTES_ADD")
    assert talk.one(FinishTurn).results[0][1].details["near"][0] == "notes_add"
    assert good == "ok-t-1"


def test_defects_of_calls_stay_in_their_slots():
    talk = up(eager("notes"))
    calls = (call("notes_add", defect="unparseable_arguments"), call("", defect="empty_name"), call("notes_list"))
    talk.post(TurnSubmitted("host", "t", calls))
    batch = talk.one(SendBatch)
    assert batch.calls == (calls[2],)
    talk.finish(batch)
    outcomes = [o for _, o in talk.one(FinishTurn).results]
    assert [getattr(o, "code", o) for o in outcomes] == ["arguments_malformed", "call_defective", "ok-c-notes_list"]


def test_a_damaged_completion_runs_nothing_unless_told_to():
    talk = up(eager("notes"))
    talk.submit("t", "notes_add", defects=("finish_length",))
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.cause, failure.retry) == ("completion_defective", "finish_length", "never")
    assert [e.state for e in failure.ledger] == ["not_sent"]
    assert len(talk.submit("u", "notes_add", defects=("finish_length",), on_defect="run")) == 1


def test_a_turn_id_is_used_once():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add")
    talk.submit("t", "notes_add")
    assert talk.one(FailTurn).failure.code == "duplicate_turn"
    talk.finish(batch)
    assert talk.one(FinishTurn).turn == "t"
    talk.submit("t", "notes_add", client="other")
    assert talk.one(FailTurn).client == "other"


def test_a_streaming_turn_reports_what_lands_and_ends_with_the_rest():
    talk = up(eager("notes"), eager("files"))
    notes, files = talk.submit("t", "notes_add", "nope", "notes_list", "files_read", stream=True)
    assert notes.flush and files.flush
    assert [i for i, _ in talk.one(ReportResults).results] == [1]
    talk.post(SlotsFilled(notes.worker, notes.batch, ((1, "early"),)))
    assert talk.said == [ReportResults("host", "t", ((2, "early"),))]
    talk.finish(files)
    assert talk.said == [ReportResults("host", "t", ((3, "ok-t-3"),))]
    talk.post(BatchFinished(notes.worker, notes.batch, ((0, "late"),)))
    assert talk.one(FinishTurn).results == ((0, "late"),)


def test_what_lands_together_is_reported_in_call_order():
    talk = up(eager("notes"), eager("files"))
    notes, _ = talk.submit("t", "notes_add", "notes_list", "files_read", stream=True)
    talk.post(BatchFinished(notes.worker, notes.batch, ((1, "b"), (0, "a"))))
    assert talk.said == [ReportResults("host", "t", ((0, "a"), (1, "b")))]


def test_early_slots_of_a_plain_turn_are_kept_for_its_end():
    talk = up(eager("notes"))
    (batch,) = talk.submit("t", "notes_add", "notes_list")
    assert not batch.flush
    assert talk.post(SlotsFilled(batch.worker, batch.batch, ((1, "b"),))) == []
    talk.post(BatchFinished(batch.worker, batch.batch, ((0, "a"),)))
    assert talk.one(FinishTurn).results == ((0, "a"), (1, "b"))


def test_names_open_the_turn_that_is_submitted_later():
    talk = up(lazy("notes"))
    talk.post(NamesSeen("host", "t", ("notes_add",)))
    assert [t.state for t in talk.core.snapshot().turns] == ["streaming"]
    talk.submit("t", "notes_add", client="thief")
    assert talk.one(FailTurn).client == "thief"
    assert talk.post(TurnSubmitted("host", "t", ())) == [FinishTurn("host", "t", ())]


def test_ten_thousand_calls_are_one_batch():
    talk = up(eager("notes"))
    calls = tuple(Call(str(i), "notes_add", "{}") for i in range(10_000))
    talk.post(TurnSubmitted("host", "t", calls))
    batch = talk.one(SendBatch)
    assert batch.calls == calls
    talk.finish(batch)
    assert [i for i, _ in talk.one(FinishTurn).results] == list(range(10_000))


def test_ten_thousand_unknown_names_are_answered_and_only_a_few_are_looked_for():
    talk = up(eager("notes"))
    talk.post(TurnSubmitted("host", "t", tuple(Call(str(i), f"notes_ad{i}", "{}") for i in range(10_000))))
    errors = [o for _, o in talk.one(FinishTurn).results]
    assert {e.code for e in errors} == {"unknown_tool"}
    assert [bool(e.details["near"]) for e in errors[:6]] == [True] * 4 + [False] * 2
