"""Reload: a whole new generation, or nothing changes."""

from __future__ import annotations

from core.conversation import FILES, NOTES, Conversation, eager, lazy, up
from toolsd.core.events import DrainRequested, NamesSeen, RegistryPublished, StopRequested, WorkerStartFailed
from toolsd.core.instructions import (
    FailTurn,
    FinishTurn,
    KillWorker,
    ReloadEnded,
    SendBatch,
    StartWorker,
    StopWorker,
)
from toolsd.core.model import ExitReport, ToolSpec

LEFT = ExitReport(exit_code=0, reason="stop")


def _names(talk: Conversation) -> list[str]:
    return [t.name for t in talk.core.tools()]


def test_an_unchanged_source_keeps_its_worker():
    talk = up(eager("notes"), eager("files"))
    talk.post(RegistryPublished((eager("files"), eager("notes"))))
    assert talk.said == [ReloadEnded(2)]
    assert talk.core.snapshot().generation == 2
    assert _names(talk) == [t.name for t in (*FILES, *NOTES)]


def test_a_changed_source_is_started_first_and_its_old_worker_leaves_when_its_turns_end():
    talk = up(eager("notes"), eager("files"))
    (old,) = talk.submit("t", "notes_add")
    talk.submit("queued", "notes_add")
    start = talk.publish(eager("notes", batch_timeout=5.0), eager("files"))[0]
    assert start.source == "notes" and talk.core.snapshot().reloading
    (new_tool,) = (ToolSpec("notes_new"),)
    talk.ready(start, (new_tool,))
    assert talk.of(StopWorker) == []
    assert _names(talk) == ["notes_new", "files_read", "files_grep"]
    talk.finish(old)
    second = talk.one(SendBatch)
    assert second.worker == old.worker
    (batch,) = talk.submit("u", "notes_new")
    assert batch.worker == start.worker
    talk.finish(second)
    assert talk.one(StopWorker).worker == old.worker
    assert [s.state for s in talk.core.snapshot().sources] == ["ready", "ready", "leaving"]
    talk.die(old.worker, LEFT)
    assert [s.name for s in talk.core.snapshot().sources] == ["notes", "files"]


def test_a_turn_uses_the_generation_it_began_with():
    talk = up(eager("notes"))
    talk.post(NamesSeen("host", "t", ("notes_add",)))
    start = talk.publish(eager("notes", batch_timeout=5.0))[0]
    talk.ready(start)
    assert talk.of(StopWorker) == []
    (batch,) = talk.submit("t", "notes_add")
    assert batch.worker == 1
    talk.finish(batch)
    assert talk.one(FinishTurn).turn == "t"
    assert talk.one(StopWorker).worker == 1


def test_a_stream_that_goes_lets_the_old_generation_go():
    talk = up(eager("notes"))
    talk.post(NamesSeen("host", "t", ("notes_add",)))
    talk.ready(talk.publish(eager("notes", batch_timeout=5.0))[0])
    talk.post(DrainRequested(10.0))
    assert {s.worker for s in talk.of(StopWorker)} == {1, 2}


def test_a_removed_source_leaves():
    talk = up(eager("notes"), eager("files"))
    talk.post(RegistryPublished((eager("files"),)))
    assert talk.one(StopWorker).worker == 1
    assert _names(talk) == ["files_read", "files_grep"]
    (batch,) = talk.submit("t", "files_read")
    assert batch.worker == 2


def test_a_failing_source_changes_nothing():
    talk = up(eager("notes"))
    starts = talk.publish(eager("notes", batch_timeout=5.0), eager("files"))
    talk.ready(starts[0])
    talk.post(WorkerStartFailed(starts[1].worker, "files.py does not exist"))
    assert talk.one(StopWorker).worker == starts[0].worker
    ended = talk.one(ReloadEnded)
    assert ended.generation == 1 and "files.py" in (ended.refused or "")
    assert "nothing was changed" in talk.notes[-1].message and "files.py" in talk.notes[-1].message
    assert talk.core.snapshot().generation == 1 and not talk.core.snapshot().reloading
    (batch,) = talk.submit("t", "notes_add")
    assert batch.worker == 1
    talk.die(starts[0].worker, LEFT)
    assert [s.name for s in talk.core.snapshot().sources] == ["notes"]


def test_a_new_collision_changes_nothing():
    talk = up(eager("notes"))
    (start,) = talk.publish(eager("notes"), eager("files"))
    talk.ready(start, (ToolSpec("notes_add"),))
    assert talk.core.snapshot().generation == 1
    assert "'notes'" in talk.notes[-1].message and "'files'" in talk.notes[-1].message
    assert talk.one(StopWorker).worker == start.worker


def test_a_second_reload_replaces_the_first_and_shares_its_starts():
    talk = up(eager("notes"))
    (files,) = talk.publish(eager("notes"), eager("files"))
    assert talk.publish(eager("files")) == []
    assert talk.one(ReloadEnded).refused == "another reload came before it was done"
    talk.ready(files)
    assert talk.one(ReloadEnded) == ReloadEnded(3)
    assert _names(talk) == ["files_read", "files_grep"]
    assert talk.one(StopWorker).worker == 1


def test_a_reload_that_gives_up_another_stops_its_starts():
    talk = up(eager("notes"))
    (files,) = talk.publish(eager("notes"), eager("files"))
    talk.post(RegistryPublished((eager("notes"),)))
    assert [ended.refused is None for ended in talk.of(ReloadEnded)] == [False, True]
    assert talk.one(StopWorker).worker == files.worker
    assert talk.core.snapshot().generation == 3


def test_a_drain_and_a_stop_refuse_what_is_being_prepared():
    for end in (DrainRequested(60.0), StopRequested()):
        talk = up(eager("notes"))
        (old,) = talk.submit("t", "notes_add")
        start = talk.publish(eager("notes", batch_timeout=5.0), eager("files"))[0]
        talk.post(end)
        assert talk.one(ReloadEnded).refused == "the coordinator is stopping"
        assert not talk.core.snapshot().reloading
        assert start.worker in {i.worker for i in (*talk.of(StopWorker), *talk.of(KillWorker))}
        if isinstance(end, DrainRequested):
            talk.finish(old)
            assert talk.of(FinishTurn)


def test_removing_the_winner_lets_the_refused_source_in():
    talk = Conversation()
    for start in talk.publish(eager("one"), eager("two")):
        talk.ready(start, (ToolSpec("same"),))
    talk.die(2, LEFT)
    talk.post(RegistryPublished((eager("two"),)))
    assert talk.one(StartWorker).source == "two"
    assert [t.source for t in talk.core.tools()] == ["two"]
    assert talk.source("two").failure is None


def test_a_reload_forgives_a_source_that_failed():
    talk = Conversation()
    (start,) = talk.publish(eager("notes"))
    for _ in range(6):
        talk.post(WorkerStartFailed(start.worker, "no"))
        start = (talk.of(StartWorker) or [i for i in talk.wait(2.0) if isinstance(i, StartWorker)] or [start])[0]
    assert (talk.source("notes").state, talk.source("notes").breaker) == ("failed", "open")
    talk.post(RegistryPublished((eager("notes"),)))
    talk.ready(talk.one(StartWorker))
    assert _names(talk) == [t.name for t in NOTES]


def test_never_more_processes_than_replicas_and_one():
    talk = up(eager("notes", replicas=2))
    a, b = (talk.submit(f"t{i}", "notes_add")[0] for i in range(2))
    (first,) = talk.publish(eager("notes", replicas=2, batch_timeout=5.0))
    talk.ready(first)
    assert talk.of(StartWorker) == []
    talk.finish(a)
    assert talk.one(StopWorker).worker == a.worker
    talk.die(a.worker, LEFT)
    assert talk.one(StartWorker).replica == 1
    talk.finish(b)
    assert talk.one(StopWorker).worker == b.worker


def test_a_lazy_source_that_was_in_use_keeps_its_new_worker():
    talk = up(lazy("notes"))
    talk.die(1, LEFT)
    talk.submit("t", "notes_add")
    talk.ready(talk.one(StartWorker))
    talk.finish(talk.one(SendBatch))
    (start,) = talk.publish(lazy("notes", batch_timeout=5.0))
    talk.ready(start)
    assert [s.worker for s in talk.of(StopWorker)] == [2]


def test_one_name_twice_is_refused():
    talk = up(eager("notes"))
    assert talk.publish(eager("files"), eager("files", batch_timeout=1.0)) == []
    assert talk.core.snapshot().generation == 1
    assert talk.of(FailTurn) == []
