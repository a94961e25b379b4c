"""Sessions: pinned to the replica that holds their state; lost with it, never silently fresh."""

from __future__ import annotations

from collections import Counter

from core.conversation import eager, lazy, up
from toolsd.core.events import RegistryPublished
from toolsd.core.instructions import FailTurn, SendBatch, StartWorker, StopWorker
from toolsd.core.model import ExitReport, Restart
from toolsd.core.pick import rendezvous

STICKY = {"affinity": "session", "replicas": 4, "restart": Restart(max=1000)}


def test_sessions_spread_over_replicas():
    counts = Counter(rendezvous(f"session-{i}", range(4)) for i in range(100))
    assert all(counts[seat] >= 10 for seat in range(4))


def test_when_a_seat_goes_only_its_own_sessions_move():
    sessions = [f"s{i}" for i in range(200)]
    before = {s: rendezvous(s, range(4)) for s in sessions}
    after = {s: rendezvous(s, [0, 1, 3]) for s in sessions}
    assert all(before[s] == after[s] for s in sessions if before[s] != 2)


def test_a_session_goes_where_its_state_is():
    talk = up(eager("notes", **STICKY))
    workers = set()
    for i in range(5):
        (batch,) = talk.submit(f"t{i}", "notes_add", session="alice")
        workers.add(batch.worker)
        talk.finish(batch)
    assert len(workers) == 1
    assert talk.source("notes").sessions == 1


def test_a_busy_replica_is_waited_for_though_others_are_free():
    talk = up(eager("notes", **STICKY))
    (first,) = talk.submit("t", "notes_add", session="alice")
    assert talk.submit("u", "notes_add", session="alice") == []
    (other,) = talk.submit("v", "notes_add")
    assert other.worker != first.worker
    talk.finish(other)
    assert talk.of(SendBatch) == []
    talk.finish(first)
    assert talk.one(SendBatch).worker == first.worker


def test_the_state_dies_with_its_worker_and_the_next_turn_begins_anew():
    talk = up(eager("notes", **STICKY))
    (batch,) = talk.submit("t", "notes_find", session="alice")
    talk.submit("queued", "notes_add", session="alice")
    talk.die(batch.worker)
    codes = {f.turn: f.failure.code for f in talk.of(FailTurn)}
    assert codes == {"t": "worker_crashed", "queued": "state_lost"}
    talk.ready(talk.one(StartWorker))
    (again,) = talk.submit("u", "notes_add", session="alice")
    assert again.worker != batch.worker


def test_a_death_between_turns_is_told_once():
    talk = up(eager("notes", **STICKY))
    (batch,) = talk.submit("t", "notes_add", session="alice")
    talk.finish(batch)
    talk.die(batch.worker)
    start = talk.one(StartWorker)
    talk.submit("u", "notes_add", session="alice")
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.retry) == ("state_lost", "safe")
    assert talk.submit("v", "notes_add", session="alice") == []
    talk.ready(start)
    assert talk.one(SendBatch).turn == "v"


def test_a_killed_worker_loses_its_sessions_too():
    talk = up(eager("notes", **STICKY, batch_timeout=1.0))
    (batch,) = talk.submit("t", "notes_add", session="alice")
    talk.submit("u", "notes_add", session="alice")
    talk.wait(1.0)
    assert [f.turn for f in talk.of(FailTurn)] == ["u"]
    talk.die(batch.worker, ExitReport(signal="SIGKILL", reason="deadline"))
    assert talk.one(FailTurn).failure.code == "batch_timeout"


def test_a_new_session_starts_the_replica_it_belongs_to():
    talk = up(lazy("notes", **STICKY))
    talk.die(1, ExitReport(exit_code=0, reason="stop"))
    talk.submit("t", "notes_add", session="alice")
    start = talk.one(StartWorker)
    assert start.replica == rendezvous("alice", range(4))
    talk.ready(start)
    assert talk.one(SendBatch).worker == start.worker


def test_without_affinity_a_session_pins_nothing():
    talk = up(eager("notes", replicas=2))
    (one,) = talk.submit("t", "notes_add", session="alice")
    (two,) = talk.submit("u", "notes_add", session="alice")
    assert one.worker != two.worker and one.session == "alice"


def test_a_reload_that_changes_the_source_does_not_hide_the_loss():
    talk = up(eager("notes", affinity="session"))
    (batch,) = talk.submit("t", "notes_add", session="alice")
    talk.finish(batch)
    talk.post(RegistryPublished((eager("notes", affinity="session", batch_timeout=1.0),)))
    talk.ready(talk.one(StartWorker))
    assert talk.one(StopWorker).worker == batch.worker
    talk.submit("u", "notes_add", session="alice")
    assert talk.one(FailTurn).failure.code == "state_lost"
    assert len(talk.submit("v", "notes_add", session="alice")) == 1


def test_who_waited_for_a_replica_that_does_not_come_goes_to_another_at_once():
    talk = up(eager("notes", affinity="session", replicas=2, restart=Restart(max=0)))
    mine = [s for s in map(str, range(100)) if rendezvous(s, range(2)) == 1][:2]
    (busy,) = talk.submit("busy", "notes_add", session=mine[0])
    assert talk.submit("waiting", "notes_add", session=mine[1]) == []
    talk.die(busy.worker)
    batch = talk.one(SendBatch)
    assert batch.turn == "waiting" and batch.worker != busy.worker


def test_a_session_whose_coordinator_is_gone_has_lost_its_state_and_says_so_before_anything_runs():
    talk = up(eager("notes", affinity="session"), eager("files"))
    assert talk.submit("t", "files_read", "notes_add", session="s", orphaned=True) == []
    failure = talk.one(FailTurn).failure
    assert failure.code == "state_lost" and failure.retry == "safe"
    for batch in talk.submit("u", "files_read", "notes_add", session="s"):
        talk.finish(batch)
    assert len(talk.submit("v", "files_read", session="other", orphaned=True)) == 1
