"""Queues: bounded, fair, with a waiting time of their own."""

from __future__ import annotations

from core.conversation import eager, lazy, up
from toolsd.core.instructions import CancelBatch, FailTurn, FinishTurn, SendBatch, StartWorker


def test_one_batch_at_a_time_and_the_next_when_it_ends():
    talk = up(eager("notes"))
    (first,) = talk.submit("t", "notes_add")
    assert talk.submit("u", "notes_add") == []
    talk.finish(first)
    assert talk.one(SendBatch).turn == "u"
    assert talk.one(FinishTurn).turn == "t"


def test_max_batches_counts_only_if_the_source_may_be_re_entered():
    for reentrant, sent in [(False, 1), (True, 3)]:
        talk = up(eager("notes", max_batches=3), reentrant=reentrant)
        batches = [b for i in range(4) for b in talk.submit(f"t{i}", "notes_add")]
        assert [b.region for b in batches] == list(range(sent))


def test_a_region_is_free_again_when_its_batch_ends():
    talk = up(eager("notes", max_batches=2), reentrant=True)
    (one,) = talk.submit("t", "notes_add")
    talk.submit("u", "notes_add")
    talk.finish(one)
    (three,) = talk.submit("v", "notes_add")
    assert three.region == one.region


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back():
    talk = up(eager("notes", queue_turns=2))
    (first,) = talk.submit("t0", "notes_add")
    talk.now += 4
    talk.finish(first)
    for i in range(1, 4):
        talk.submit(f"t{i}", "notes_add")
    talk.submit("t4", "notes_add")
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.retry) == ("overloaded", "safe")
    assert failure.retry_after > 0
    assert talk.source("notes").queued == 2


def test_whoever_floods_a_queue_leaves_places_to_others():
    talk = up(eager("notes", queue_turns=64))
    talk.submit("runs", "notes_add", client="a")
    refused = 0
    for i in range(200):
        talk.submit(f"a{i}", "notes_add", client="a")
        refused += bool(talk.of(FailTurn))
    assert (talk.source("notes").queued, refused) == (48, 152)
    failure = talk.one(FailTurn).failure
    assert failure.code == "overloaded" and failure.retry_after > 0 and "other 16 places" in failure.message
    for client, taken in {"b": 60, "c": 63, "d": 64}.items():
        for i in range(64):
            talk.submit(f"{client}{i}", "notes_add", client=client)
        assert talk.source("notes").queued == taken


def test_a_queue_is_bounded_in_bytes_too():
    talk = up(eager("notes", queue_bytes=10))
    (first,) = talk.submit("runs", "notes_add")
    for i in range(6):
        talk.submit(f"t{i}", "notes_add")  # two bytes each
    failure = talk.one(FailTurn).failure
    assert failure.code == "overloaded" and "queue.bytes" in failure.message
    assert talk.source("notes").queued == 5
    talk.finish(first)
    talk.submit("u", "notes_add")
    assert talk.of(FailTurn) == []


def test_a_full_queue_of_one_source_sends_nothing_to_the_others():
    talk = up(eager("notes", queue_turns=1), eager("files"))
    talk.submit("t", "notes_add")
    talk.submit("u", "notes_add")
    assert talk.submit("v", "files_read", "notes_add") == []
    assert talk.one(FailTurn).failure.code == "overloaded"


def test_waiting_has_a_limit_of_its_own():
    talk = up(eager("notes", queue_wait=30.0, batch_timeout=100.0), eager("files"))
    (first,) = talk.submit("t", "notes_add")
    (side,) = talk.submit("u", "notes_add", "files_read")
    assert side.calls[0].tool == "files_read"
    talk.wait(29.0)
    (_, late) = talk.submit("v", "notes_list"), talk.source("notes").queued
    assert late == 2
    talk.wait(1.0)
    failure = talk.one(FailTurn).failure
    assert (talk.one(FailTurn).turn, failure.code) == ("u", "queue_timeout")
    assert [e.state for e in failure.ledger] == ["not_sent", "sent"]
    assert talk.one(CancelBatch).batch == side.batch
    talk.wait(20.0)
    talk.finish(first)
    assert talk.one(SendBatch).deadline == 100.0


def test_a_slow_start_does_not_eat_the_waiting_time():
    talk = up(lazy("notes", queue_wait=5.0, start_timeout=60.0))
    talk.submit("t", "notes_add")
    start = talk.one(StartWorker)
    assert talk.wait(50.0) == []
    talk.ready(start)
    assert talk.one(SendBatch).turn == "t"


def test_clients_take_turns():
    talk = up(eager("notes"))
    (running,) = talk.submit("a0", "notes_add", client="a")
    for i in range(1, 4):
        talk.submit(f"a{i}", "notes_add", client="a")
    talk.submit("b0", "notes_add", client="b")
    order = []
    for _ in range(4):
        talk.finish(running)
        running = talk.one(SendBatch)
        order.append(running.turn)
    assert order == ["a1", "b0", "a2", "a3"]


def test_the_least_loaded_replica_gets_the_batch():
    talk = up(eager("notes", replicas=3, max_batches=4), reentrant=True)
    workers = [talk.submit(f"t{i}", "notes_add")[0].worker for i in range(6)]
    assert sorted(workers[:3]) == [1, 2, 3] and sorted(workers[3:]) == [1, 2, 3]
    assert len(talk.core.snapshot().sources[0].replicas) == 3
