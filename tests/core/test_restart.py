"""Restart intensity: backoff, breaker, trial, forgiveness."""

from __future__ import annotations

from core.conversation import KILLED, eager, lazy, up
from toolsd.core.events import WorkerStartFailed
from toolsd.core.instructions import FailTurn, SendBatch, StartWorker
from toolsd.core.model import ExitReport, Restart
from toolsd.core.restart import Restarts

POLICY = Restart(backoff_min=1.0, backoff_max=4.0, max=10, within=60.0, stable_after=10.0, cool_down=30.0)


def _delays(restarts: Restarts, failures: int) -> list[float]:
    found = []
    for _ in range(failures):
        restarts.failed(100.0, 0.0)
        found.append(max(0.0, restarts.may_start_at(100.0) - 100.0))
    return found


def test_the_first_restart_is_at_once_and_the_delay_doubles_up_to_its_maximum():
    assert _delays(Restarts(POLICY), 6) == [0.0, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_jitter_shortens_a_delay_by_up_to_half():
    assert _delays(Restarts(POLICY, jitter=lambda: 0.5), 3) == [0.0, 0.75, 1.5]


def test_sustained_uptime_forgets_the_backoff():
    restarts = Restarts(POLICY)
    _delays(restarts, 4)
    restarts.failed(100.0, uptime=10.0)
    assert restarts.may_start_at(100.0) <= 100.0


def test_too_many_failures_within_the_window_open_the_breaker():
    restarts = Restarts(Restart(max=2, within=60.0, cool_down=30.0))
    assert [restarts.failed(at, 0.0) for at in (0.0, 30.0, 61.0, 62.0)] == [False, False, False, True]
    assert restarts.is_resting(91.9) and not restarts.is_resting(92.0)
    restarts.starting()
    assert restarts.breaker == "half_open"
    assert restarts.failed(93.0, 0.0)
    assert restarts.may_start_at(94.0) == 123.0


def test_a_trial_that_lasts_closes_the_breaker():
    restarts = Restarts(Restart(max=0, stable_after=10.0, cool_down=30.0))
    restarts.failed(0.0, 0.0)
    restarts.starting()
    restarts.ready(30.0)
    assert restarts.may_start_at(35.0) == 40.0
    assert restarts.may_start_at(40.0) <= 40.0
    assert restarts.breaker == "closed"


def test_an_eager_source_comes_back_with_growing_delays():
    talk = up(eager("notes", restart=POLICY))
    talk.die(1)
    assert talk.one(StartWorker).worker == 2
    talk.ready(talk.one(StartWorker))
    talk.die(2)
    assert talk.of(StartWorker) == []
    talk.wait(0.9)
    assert talk.said == []
    talk.wait(0.1)
    assert talk.one(StartWorker).worker == 3


def test_a_lazy_source_comes_back_on_demand():
    talk = up(lazy("notes", restart=POLICY))
    talk.die(1, ExitReport(exit_code=0, reason="stop"))
    talk.submit("t", "notes_add")
    talk.ready(talk.one(StartWorker))
    talk.die(2)
    assert talk.one(FailTurn).failure.code == "worker_crashed"
    assert talk.of(StartWorker) == []
    talk.submit("u", "notes_add")
    talk.ready(talk.one(StartWorker))
    assert talk.one(SendBatch).turn == "u"


def test_an_open_breaker_refuses_at_once_then_tries_once_then_closes():
    talk = up(eager("notes", restart=Restart(max=1, within=60.0, cool_down=30.0, stable_after=10.0)))
    talk.die(1)
    start = talk.one(StartWorker)
    talk.submit("waiting", "notes_add")
    talk.post(WorkerStartFailed(start.worker, "no"))
    assert talk.one(FailTurn).failure.code == "source_start_failed"
    talk.submit("t", "notes_add")
    failure = talk.one(FailTurn).failure
    assert (failure.code, failure.retry_after, failure.retry) == ("source_unavailable", 30.0, "safe")
    assert talk.source("notes").state == "unavailable"
    talk.wait(30.0)
    trial = talk.one(StartWorker)
    talk.submit("u", "notes_add")
    assert talk.of(FailTurn) == [] and talk.of(StartWorker) == []
    assert talk.source("notes").breaker == "half_open"
    talk.ready(trial)
    talk.finish(talk.one(SendBatch))
    talk.now += 10.0
    talk.die(trial.worker)
    assert talk.source("notes").breaker == "closed"
    assert len(talk.of(StartWorker)) == 1


def test_a_trial_that_dies_opens_the_breaker_again():
    talk = up(eager("notes", restart=Restart(max=0, cool_down=30.0)))
    talk.die(1)
    assert talk.of(StartWorker) == []
    talk.wait(30.0)
    talk.ready(talk.one(StartWorker))
    talk.die(2)
    talk.submit("t", "notes_add")
    assert talk.one(FailTurn).failure.code == "source_unavailable"


def test_an_open_breaker_leaves_ready_replicas_at_work():
    talk = up(eager("notes", replicas=2, restart=Restart(max=0)))
    talk.die(1)
    assert talk.source("notes").breaker == "open"
    assert [b.worker for b in talk.submit("t", "notes_add")] == [2]


def test_a_trial_brings_one_worker_and_the_others_follow_when_it_lasts():
    talk = up(eager("notes", replicas=3, restart=Restart(max=2, cool_down=30.0, stable_after=10.0)))
    for worker in (1, 2, 3):
        talk.die(worker)
    talk.wait(30.0)
    trial = talk.of(StartWorker)[-1]
    assert talk.source("notes").breaker == "half_open"
    talk.ready(trial)
    assert talk.of(StartWorker) == []
    talk.wait(10.0)
    assert len(talk.of(StartWorker)) == 2


def test_a_waiting_turn_survives_the_crash_of_another():
    talk = up(eager("notes", restart=POLICY))
    (first,) = talk.submit("t", "notes_add")
    talk.submit("u", "notes_add")
    talk.die(first.worker, KILLED)
    assert talk.one(FailTurn).turn == "t"
    talk.ready(talk.one(StartWorker))
    assert talk.one(SendBatch).turn == "u"


def test_deaths_we_caused_are_not_held_against_the_source():
    talk = up(eager("notes", restart=Restart(max=0), batch_timeout=1.0))
    for i in range(3):
        talk.submit(f"t{i}", "notes_add")
        talk.wait(1.0)
        start = talk.one(StartWorker)
        talk.die(i + 1, ExitReport(signal="SIGKILL", reason="deadline"))
        talk.ready(start)
    assert (talk.source("notes").restarts, talk.source("notes").breaker) == (0, "closed")


def test_a_trial_that_we_end_ourselves_is_followed_by_another_at_once():
    policy = Restart(max=0, cool_down=30.0, stable_after=10.0)
    talk = up(eager("notes", restart=policy, batch_timeout=1.0))
    talk.die(1)
    talk.wait(30.0)
    talk.ready(talk.one(StartWorker))
    talk.submit("t", "notes_add")
    talk.wait(1.0)
    talk.ready(talk.one(StartWorker))
    assert talk.source("notes").breaker == "half_open"
    assert len(talk.submit("u", "notes_add")) == 1
