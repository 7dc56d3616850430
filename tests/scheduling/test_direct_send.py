"""DIRECTSEND, driven by objectives: the sender spreads messages, and leaves out those that were late, for a while."""

from random import Random

import pytest

from dirigo.kernel import Lane
from dirigo.scheduling import DirectSend
from kernel.scenario import AT, A, B, S, Stage, T, out, row
from scheduling.pool import Load, Pool

SLOW_FROM_S = 1.0


def arrivals(pool: Pool, worker: int, since: float = 0.0, until: float = float("inf")) -> int:
    return sum(at == worker and since <= now < until for now, at, _ in pool.arrived)


# --- spreading ---------------------------------------------------------------------------------------------------------


def test_messages_go_to_the_home_and_its_lessees_alike_without_a_hop_between() -> None:
    pool = Pool(lambda: DirectSend(lessees_max=3), workers=6)
    job = pool.job("job", service_s=0.001, latency_s=0.1)
    job.steady(0.0, 1.0, per_s=400)
    pool.run()
    assert set(job.ran_at()) == {1, 2, 3, 4}
    assert min(job.ran_at().values()) > 60
    assert pool.forwards() == 0
    assert {message.lane for _, _, message in pool.arrived} == {Lane.INPUT}


def test_the_choice_may_be_made_in_turn() -> None:
    pool = Pool(lambda: DirectSend(lessees_max=3, selector="round_robin"), workers=6)
    job = pool.job("job", service_s=0.001, latency_s=0.1)
    job.steady(0.0, 1.0, per_s=400)
    pool.run()
    assert job.ran_at() == {1: 100, 2: 100, 3: 100, 4: 100}


def test_barriers_go_home_and_find_everything_there() -> None:
    pool = Pool(DirectSend, workers=6)
    job = pool.job("job", service_s=0.001, latency_s=0.1)
    job.steady(0.0, 1.0, per_s=400)
    job.barrier(1.0)
    pool.run()
    assert job.total() == 400


def test_an_ordered_function_gets_its_messages_at_home() -> None:
    pool = Pool(DirectSend, workers=4)
    job = pool.job("job", service_s=0.001, ordered=True)
    job.steady(0.0, 1.0, per_s=100)
    pool.run()
    assert set(job.ran_at()) == {1}


def test_messages_run_by_deadline() -> None:
    stage = Stage(strategy=DirectSend())
    stage.receives(row("a", 1))
    assert stage.worker.extras.backlog_s(stage.worker) == (0.0, 0.0)  # nothing is known of its cost
    stage.runs("a").is_idle()


# --- those that were late ----------------------------------------------------------------------------------------------


def with_a_slow_worker(pause_s: float, *, lessees_max: int = 2) -> tuple[Pool, Load]:
    """From some time on messages that worker 2 begins take half a second instead of a millisecond."""
    pool = Pool(lambda: DirectSend(lessees_max, pause_s=pause_s), workers=5)
    job = pool.job("job", service_s=0.001, latency_s=0.05)
    job.steady(0.0, 4.0, per_s=50)
    pool.cluster.slow(2, 500.0, SLOW_FROM_S, SLOW_FROM_S + 0.1)
    return pool.run(), job


def test_an_instance_that_was_late_gets_nothing_for_a_while() -> None:
    pool, job = with_a_slow_worker(pause_s=0.8)
    assert job.late() > 0
    ((told, where),) = pool.notes[:1]
    assert where == 0  # the worker of the sender
    assert arrivals(pool, 2, told + 0.002, told + 0.8) == 0
    assert arrivals(pool, 3, told, told + 0.8) > 5
    assert arrivals(pool, 1, told, told + 0.8) > 5


def test_and_then_it_gets_its_share_again() -> None:
    pool, _ = with_a_slow_worker(pause_s=0.3)
    last_told = pool.notes[-1][0]
    assert arrivals(pool, 2, last_told + 0.3) > 10


def test_a_sender_is_told_once_per_pause() -> None:
    pool, job = with_a_slow_worker(pause_s=10.0)
    assert job.late() > 1
    assert len(pool.notes) == 1


def test_nobody_is_told_of_what_is_in_time() -> None:
    pool = Pool(DirectSend, workers=5)
    pool.job("job", service_s=0.001, latency_s=0.05).steady(0.0, 1.0, per_s=100)
    assert pool.run().notes == []


def test_if_all_were_late_the_home_gets_all() -> None:
    pool = Pool(lambda: DirectSend(pause_s=10.0), workers=4)
    job = pool.job("job", service_s=0.02, latency_s=0.01)  # nobody can be in time
    job.steady(0.0, 2.0, per_s=20)
    pool.run()
    assert set(job.ran_at(1.0)) == {1}


def test_the_home_may_get_everything_until_it_is_late() -> None:
    pool = Pool(lambda: DirectSend(lessees_max=2, pause_s=0.5, home_first=True), workers=5)
    job = pool.job("job", service_s=0.001, latency_s=0.05)
    job.steady(0.0, 4.0, per_s=50)
    pool.cluster.slow(1, 500.0, SLOW_FROM_S, SLOW_FROM_S + 0.1)
    pool.run()
    told = pool.notes[0][0]
    assert {at for now, at, _ in pool.arrived if now < told} == {1}
    assert arrivals(pool, 1, told + 0.002, told + 0.5) == 0
    assert arrivals(pool, 2, told, told + 0.5) > 5
    assert arrivals(pool, 3, told, told + 0.5) > 5
    last_told = pool.notes[-1][0]
    assert {at for now, at, _ in pool.arrived if now > last_told + 0.502} == {1}


def test_one_target_that_was_late_says_nothing_of_another() -> None:
    stage = Stage(AT[S], strategy=DirectSend(lessees_max=1))
    worker = stage.worker
    worker.workers, worker.rng = (1, 2, 7, 8), Random(0)
    worker.extras.note_received(worker, A, 2, "late")
    assert {worker.strategy.prepare_send(worker, S, out(A, "x")) for _ in range(20)} == {1}
    assert {worker.strategy.prepare_send(worker, S, out(B, "x")) for _ in range(20)} == {7, 8}


@pytest.mark.parametrize("note", ["early", None, 3, ["late"]])
def test_notes_of_others_are_none_of_its_business(note: object) -> None:
    stage = Stage(AT[S], strategy=DirectSend(lessees_max=1))
    stage.worker.workers = (1, 2)
    stage.worker.extras.note_received(stage.worker, A, 1, note)
    assert stage.worker.strategy.prepare_send(stage.worker, T, out(A, "x")) == 1


def test_a_job_that_is_gone_is_forgotten() -> None:
    stage = Stage(AT[S], strategy=DirectSend(lessees_max=1, pause_s=100.0))
    stage.worker.workers = (1, 2)
    strategy = stage.worker.strategy
    stage.worker.extras.note_received(stage.worker, A, 1, "late")
    assert strategy.prepare_send(stage.worker, S, out(A, "x")) == 2
    stage.worker.extras.forget_job("job")
    assert strategy.prepare_send(stage.worker, S, out(A, "x")) == 1
