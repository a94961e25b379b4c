"""Sources: discovered in parallel, lazy and eager, warmed, failing to start, colliding."""

from __future__ import annotations

import pytest

from core.conversation import FILES, NOTES, Conversation, call, eager, lazy, up
from toolsd.core.events import (
    NamesSeen,
    TurnSubmitted,
    WorkerReady,
    WorkerStarted,
    WorkerStartFailed,
)
from toolsd.core.instructions import FailTurn, FinishTurn, KillWorker, SendBatch, StartWorker, StopWorker
from toolsd.core.model import ExitReport, ToolSpec


def test_every_source_is_discovered_at_once_and_an_eager_one_with_all_replicas():
    talk = Conversation()
    starts = talk.publish(eager("notes", replicas=3), lazy("files", replicas=3))
    assert [(s.source, s.replica) for s in starts] == [("notes", 0), ("notes", 1), ("notes", 2), ("files", 0)]
    assert len({s.worker for s in starts}) == 4
    assert [s.state for s in talk.core.snapshot().sources] == ["discovering", "discovering"]


def test_a_lazy_source_sleeps_after_discovery_and_wakes_once_for_many():
    talk = Conversation()
    (start,) = talk.publish(lazy("notes", stop_timeout=4.0))
    talk.ready(start)
    assert talk.said == [StopWorker(start.worker, 4.0)]
    talk.die(start.worker, ExitReport(exit_code=0, reason="stop"))
    assert (talk.source("notes").state, talk.source("notes").processes) == ("idle", 0)
    for i in range(3):
        talk.submit(f"t{i}", "notes_add")
        assert len(talk.of(StartWorker)) == (1 if i == 0 else 0)


def test_a_woken_lazy_source_stays_and_grows_with_demand():
    talk = up(lazy("notes", replicas=2))
    talk.die(1, ExitReport(exit_code=0, reason="stop"))
    talk.submit("t", "notes_add")
    first = talk.one(StartWorker)
    talk.submit("u", "notes_add")
    second = talk.one(StartWorker)
    talk.submit("v", "notes_add")
    assert talk.of(StartWorker) == []
    talk.ready(second)
    talk.finish(talk.one(SendBatch))
    talk.finish(talk.one(SendBatch))
    assert talk.of(StopWorker) == []
    talk.ready(first)
    assert {r.state for r in talk.source("notes").replicas} == {"ready"}


def test_a_name_in_a_stream_warms_its_source_once():
    talk = up(lazy("notes"))
    talk.die(1, ExitReport(exit_code=0, reason="stop"))
    talk.post(NamesSeen("host", "t", ("notes_add", "notes_list", "nope")))
    start = talk.one(StartWorker)
    assert talk.post(NamesSeen("other", "u", ("notes_add",))) == []
    talk.ready(start)
    assert talk.said == []
    assert [b.worker for b in talk.submit("t", "notes_add")] == [start.worker]


def test_a_source_that_is_stopping_does_not_delay_its_successor():
    talk = up(lazy("notes"))
    talk.submit("t", "notes_add")
    assert talk.one(StartWorker).worker == 2
    assert talk.source("notes").processes == 2


def test_a_known_name_waits_for_no_other_source():
    talk = Conversation()
    notes, files = talk.publish(eager("notes"), eager("files"))
    talk.ready(notes)
    (batch,) = talk.submit("t", "notes_add")
    talk.finish(batch)
    assert talk.one(FinishTurn).turn == "t"
    assert files.source == "files"


def test_an_unknown_name_waits_for_discovery_and_the_known_part_runs():
    talk = Conversation()
    notes, files = talk.publish(eager("notes"), eager("files"))
    talk.ready(notes)
    (batch,) = talk.submit("t", "files_read", "notes_add", "nope")
    talk.finish(batch)
    assert talk.of(FinishTurn) == []
    talk.ready(files)
    talk.finish(talk.one(SendBatch))
    outcomes = [o for _, o in talk.one(FinishTurn).results]
    assert [getattr(o, "code", o) for o in outcomes] == ["ok-t-0", "ok-t-1", "unknown_tool"]


def test_the_wait_for_discovery_ends_when_the_start_fails():
    talk = Conversation()
    (start,) = talk.publish(lazy("notes", start_timeout=20.0))
    talk.submit("t", "notes_add")
    talk.wait(20.0)
    assert talk.one(KillWorker) == KillWorker(start.worker, "start_timeout", autopsy=True)
    talk.die(start.worker, ExitReport(signal="SIGKILL", reason="start_timeout", stacks="in import"))
    ((_, error),) = talk.one(FinishTurn).results
    assert error.code == "unknown_tool" and "notes" in error.message
    failure = talk.source("notes").failure
    assert failure.code == "source_start_failed" and failure.evidence.stacks == "in import"


def test_a_lazy_source_somebody_waits_for_stays_up():
    talk = Conversation()
    (start,) = talk.publish(lazy("notes"))
    talk.post(NamesSeen("host", "t", ("notes_add",)))
    talk.ready(start)
    assert talk.of(StopWorker) == []


def _woken() -> tuple[Conversation, StartWorker]:
    talk = up(lazy("notes"))
    talk.die(1, ExitReport(exit_code=0, reason="stop"))
    talk.submit("t", "notes_add")
    return talk, talk.one(StartWorker)


def test_an_exit_before_ready_fails_who_waits_with_the_last_words():
    talk, start = _woken()
    talk.post(WorkerStarted(start.worker, 7))
    talk.die(start.worker, ExitReport(exit_code=3, stderr_tail="Traceback\nImportError: no numpy\n"))
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.retry) == ("source_start_failed", "safe")
    assert "ImportError: no numpy" in failure.message and "status 3" in failure.message
    assert failure.evidence.exit_code == 3


@pytest.mark.parametrize("pid", [None, 7])
def test_a_reported_start_failure_is_told_at_once(pid):
    talk, start = _woken()
    if pid:
        talk.post(WorkerStarted(start.worker, pid))
    talk.post(WorkerStartFailed(start.worker, "notes.py line 3: invalid syntax", "Traceback ..."))
    failure = talk.one(FailTurn).failure
    assert failure.code == "source_start_failed" and "line 3" in failure.message
    assert failure.evidence.traceback == "Traceback ..."
    assert talk.source("notes").processes == (1 if pid else 0)
    if pid:
        talk.die(start.worker, ExitReport(exit_code=1))
        assert talk.source("notes").restarts == 1


def test_a_worker_that_reports_failure_and_stays_is_killed():
    talk, start = _woken()
    talk.post(WorkerStarted(start.worker, 7))
    talk.post(WorkerStartFailed(start.worker, "does not load"))
    talk.wait(10.0)
    assert [k.worker for k in talk.of(KillWorker)] == [start.worker]


def test_with_another_replica_up_a_failed_start_fails_nobody():
    talk = Conversation()
    one, two = talk.publish(eager("notes", replicas=2))
    talk.ready(one)
    talk.submit("t", "notes_add")
    talk.submit("u", "notes_add")
    talk.post(WorkerStartFailed(two.worker, "no"))
    assert talk.of(FailTurn) == []
    assert talk.source("notes").queued == 1


def test_a_collision_refuses_the_later_source_in_file_order_whatever_comes_first():
    for order in [(0, 1), (1, 0)]:
        talk = Conversation()
        starts = talk.publish(eager("one"), eager("two"))
        for i in order:
            talk.ready(starts[i], (ToolSpec("same"), ToolSpec(f"own_{i}")))
        assert [(t.source, t.name) for t in talk.core.tools()] == [("one", "same"), ("one", "own_0")]
        failure = talk.source("two").failure
        assert failure.code == "name_collision" and "'one'" in failure.message and "'two'" in failure.message
        assert talk.source("two").state == "refused"
        assert talk.one(StopWorker).worker == starts[1].worker
        talk.die(starts[1].worker, ExitReport(exit_code=0, reason="stop"))
        assert talk.of(StartWorker) == []
        (batch,) = talk.submit("t", "same")
        assert batch.worker == starts[0].worker


@pytest.mark.parametrize("tools", [(), (ToolSpec("a"), ToolSpec("a"))])
def test_a_source_must_declare_tools_each_once(tools):
    talk = Conversation()
    (start,) = talk.publish(eager("notes"))
    talk.post(WorkerReady(start.worker, tools))
    assert talk.source("notes").failure.code == "source_start_failed"
    assert talk.of(KillWorker)[0].worker == start.worker


def test_other_tools_after_a_restart_are_refused():
    talk = up(eager("notes"))
    talk.die(1)
    talk.ready(talk.one(StartWorker), FILES)
    assert "reload" in talk.source("notes").failure.message
    assert [t.name for t in talk.core.tools()] == [t.name for t in NOTES]


def test_a_refused_source_says_why_also_when_another_replica_comes_up():
    talk = Conversation()
    one, two, three = talk.publish(eager("one"), eager("two", replicas=2))
    talk.ready(one, (ToolSpec("same"),))
    talk.ready(two, (ToolSpec("same"),))
    assert {s.worker for s in talk.of(StopWorker)} == {two.worker, three.worker}
    talk.ready(three, (ToolSpec("same"),))
    assert talk.source("two").failure.code == "name_collision"


def test_tools_are_in_file_order():
    talk = Conversation()
    notes, files = talk.publish(lazy("notes"), lazy("files"))
    talk.ready(files)
    talk.ready(notes)
    assert [t.name for t in talk.core.tools()] == [t.name for t in (*NOTES, *FILES)]
    assert talk.core.tools()[2].idempotent


def test_stale_events_change_nothing_and_are_counted():
    talk = up(eager("notes"))
    before = talk.core.snapshot()
    for event in (WorkerReady(99, NOTES), WorkerStarted(99, 1), WorkerStartFailed(99, "?"), WorkerReady(1, NOTES)):
        assert talk.post(event) == []
    after = talk.core.snapshot()
    assert after.counters.stale == before.counters.stale + 4
    assert after.sources == before.sources


def test_unknown_names_wait_only_so_many():
    talk = Conversation()
    talk.publish(eager("notes"))
    for i in range(1025):
        talk.post(TurnSubmitted("host", f"t{i}", (call("notes_add"),)))
    assert talk.one(FailTurn).failure.code == "overloaded"
