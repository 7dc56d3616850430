"""REJECTSEND: the lessor forwards what it is bound to be late with, to whoever is done with it first, and nothing else."""

import pytest

from dirigo.kernel import CriticalOutput, Lane
from dirigo.scheduling import Edf, RejectSend
from dirigo.scheduling.lessees import LARGE_STATE_BYTES
from scheduling.pool import Load, Pool

WARM_S = 1.0  # by then a strategy knows what messages cost
BUSY_S = 2.0


def pool_of(workers: int, *, patience: float = 1.0, by_row: bool = False, **options: float) -> Pool:
    """One in which whatever is not bound to be late stays, and nothing goes to worker 0, where the sources are."""
    most = int(options.pop("lessees_max", workers - 2))
    return Pool(lambda: RejectSend(most, patience=patience, **options), workers, by_row=by_row)  # type: ignore[arg-type]


def warmed(pool: Pool, **options: float) -> Load:
    """A job at worker 1 with messages of 10 ms and an objective of 100 ms, of which some have run."""
    job = pool.job("job", 1, service_s=0.01, latency_s=0.1, **options)  # type: ignore[arg-type]
    job.steady(0.0, WARM_S / 2, per_s=20)
    return job


# --- when it forwards --------------------------------------------------------------------------------------------------


def test_what_is_bound_to_be_in_time_is_never_forwarded() -> None:
    pool = pool_of(4)
    job = warmed(pool)
    job.random(WARM_S, 5.0, 60, seed=1)
    for at in (5.2, 5.4, 5.6):
        job.burst(at, 9)  # 90 ms of work
    pool.run()
    assert job.ran_at() == {1: job.emitted}
    assert job.late() == 0


def test_what_is_bound_to_be_late_is_forwarded_and_nobody_is_late() -> None:
    pool = pool_of(8)
    job = warmed(pool)
    job.burst(WARM_S, 40)
    pool.run()
    assert job.late() == 0
    assert 6 <= job.ran_at(WARM_S)[1] <= 10  # as many as can be done here until then, and no fewer
    assert pool.forwards() == 40 - job.ran_at(WARM_S)[1]


def test_without_forwards_most_of_the_same_burst_is_late() -> None:
    pool = Pool(Edf, workers=8)
    job = warmed(pool)
    job.burst(WARM_S, 40)
    pool.run()
    assert job.late() > 25


def test_a_burst_is_spread_evenly() -> None:
    pool = pool_of(6)
    job = warmed(pool)
    job.burst(WARM_S, 45)
    pool.run()
    elsewhere = [count for worker, count in job.ran_at(WARM_S).items() if worker != 1]
    assert len(elsewhere) == 4
    assert max(elsewhere) - min(elsewhere) <= 1


def test_a_load_that_lasts_is_spread_as_well() -> None:
    pool = pool_of(6)
    job = warmed(pool)
    job.random(WARM_S, 4.0, 300, seed=3)  # three workers' work
    pool.run()
    assert job.late() < 0.02 * job.emitted
    assert set(job.ran_at(WARM_S)) == {1, 2, 3, 4, 5}


def test_batches_count_by_their_rows() -> None:
    pool = pool_of(3, by_row=True)
    job = pool.job("job", service_s=0.001, latency_s=0.1)
    job.steady(0.0, WARM_S / 2, per_s=20, rows=5)
    for rows in (60, 60, 20):  # 60 ms fit in, another 60 do not, but 20 do
        job.emit(WARM_S, rows)
    pool.run()
    assert [each.message.payload for each in job.ran if each.message.created == WARM_S and each.worker == 1] == [60, 20]
    assert pool.forwards() == 1
    assert job.late() == 0


def test_a_message_that_would_make_others_late_goes_elsewhere_though_it_would_be_in_time_itself() -> None:
    pool = pool_of(3, by_row=True)
    lax = pool.job("lax", service_s=0.01, latency_s=0.4)
    tight = pool.job("tight", service_s=0.01, latency_s=0.2)
    lax.steady(0.0, WARM_S / 2, per_s=10)
    tight.steady(0.0, WARM_S / 2, per_s=10)
    lax.burst(WARM_S, 30)  # 0.3 s of work, due in 0.4 s
    tight.emit(WARM_S + 0.05, 15)  # 0.15 s of work, due first
    pool.run()
    (heavy,) = (each for each in tight.ran if each.message.payload == 15)
    assert heavy.worker != 1
    assert tight.late() == lax.late() == 0
    assert set(lax.ran_at(WARM_S)) == {1}


def test_if_nobody_is_sooner_a_message_stays_though_it_will_be_late() -> None:
    pool = pool_of(3)
    job = warmed(pool)

    pool.cluster.at(WARM_S, lambda: pool.worker(1).note_load(2, (5.0, 5.0)))
    job.burst(WARM_S, 30)
    pool.run()
    assert pool.forwards() == 0
    assert job.late(WARM_S) > 15


def test_of_the_others_those_with_less_to_do_get_more() -> None:
    pool = pool_of(5)
    job = warmed(pool)
    pool.cluster.at(WARM_S, lambda: pool.worker(1).note_load(2, (0.05, 0.05)))
    job.burst(WARM_S, 30)
    pool.run()
    ran = job.ran_at(WARM_S)
    assert 0 < ran[2] < ran[3] - 3
    assert abs(ran[3] - ran[4]) <= 1


def test_nothing_is_forwarded_before_it_is_known_what_messages_cost() -> None:
    pool = pool_of(4)
    job = pool.job("job", latency_s=0.1)
    job.burst(0.0, 50)
    pool.run()
    assert job.ran_at() == {1: 50}


def test_before_a_message_takes_too_much_of_its_time_another_worker_is_tried() -> None:
    stayed = []
    for patience in (1.0, 0.5, 0.25):
        pool = pool_of(8, patience=patience)
        job = warmed(pool)
        job.burst(WARM_S, 8)
        pool.run()
        stayed.append(job.ran_at(WARM_S)[1])
    assert stayed == [8, 4, 2]  # with 10 ms each and 99 ms for it


def test_it_is_tried_only_if_it_is_twice_as_quick() -> None:
    pool = pool_of(3, patience=0.25)
    job = warmed(pool)
    pool.cluster.at(WARM_S, lambda: pool.worker(1).note_load(2, (0.03, 0.03)))
    job.burst(WARM_S, 9)
    pool.run()
    began = {each.worker: each.began for each in reversed(job.ran) if each.message.created == WARM_S}
    assert 0 < pool.forwards() <= 2
    assert job.ran_at(WARM_S)[1] >= 7
    assert began[2] > WARM_S


def test_what_came_during_a_barrier_is_spread_after_it() -> None:
    """The barrier of one source waits for one message of 0.2 s, and the other source goes on sending."""
    pool = Pool(lambda: RejectSend(quiet_s=10.0), workers=6, by_row=True)
    job = pool.job("job", service_s=0.01, latency_s=0.5, sources=(0, 0))
    job.steady(0.0, WARM_S, per_s=20)
    job.emit(WARM_S, rows=20, source=0)
    job.feeds[0].emit_at(WARM_S + 0.001, CriticalOutput(job.actor, None, created=WARM_S, deadline=WARM_S + 0.5))
    job.burst(WARM_S + 0.01, 40, source=1)
    pool.run()
    assert pool.forwards(WARM_S + 0.01) > 20
    assert job.late(WARM_S + 0.005) == 0


def test_a_burst_is_spread_evenly_though_it_comes_from_one_that_is_spread_to() -> None:
    pool = pool_of(6, lessees_max=5)
    job = warmed(pool)
    job.burst(WARM_S, 45)
    pool.run()
    elsewhere = [count for worker, count in job.ran_at(WARM_S).items() if worker != 1]
    assert len(elsewhere) == 5
    assert max(elsewhere) - min(elsewhere) <= 1


# --- how far it spreads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 5])
def test_it_never_spreads_past_its_limit(most: int) -> None:
    pool = pool_of(8, lessees_max=most)
    job = warmed(pool)
    job.burst(WARM_S, 300)
    pool.run()
    assert set(job.ran_at(WARM_S)) == {1, *range(2, 2 + most)}


def test_nor_past_the_limit_of_the_function() -> None:
    pool = pool_of(8)
    job = warmed(pool, lessees_max=2)
    job.burst(WARM_S, 300)
    pool.run()
    assert set(job.ran_at(WARM_S)) == {1, 2, 3}


def test_an_ordered_function_stays_at_home() -> None:
    pool = pool_of(8)
    job = warmed(pool, ordered=True)
    job.burst(WARM_S, 100)
    pool.run()
    assert set(job.ran_at()) == {1}


def test_an_actor_with_a_large_state_has_fewer_lessees() -> None:
    spread = []
    for size in (0, LARGE_STATE_BYTES * 5 // 2, LARGE_STATE_BYTES * 20):
        pool = pool_of(8)
        job = warmed(pool, ballast=size)
        job.burst(WARM_S, 200)
        pool.run()
        spread.append(len(job.ran_at(WARM_S)) - 1)
    assert spread == [6, 2, 1]


def test_who_has_a_lease_already_is_preferred_among_equals() -> None:
    pool = pool_of(8, quiet_s=100.0)
    job = warmed(pool)
    for index in range(10):
        job.burst(WARM_S + index, 10)  # one more than fits in
    pool.run(until=WARM_S + 12.0)
    assert pool.forwards() == 10
    assert len(pool.lessees(job.actor)) == 1


# --- how it ends -------------------------------------------------------------------------------------------------------


def test_leases_end_when_it_is_quiet_and_the_state_is_whole_again() -> None:
    pool = pool_of(6, quiet_s=2.0)
    job = warmed(pool)
    job.burst(WARM_S, 60)
    pool.run(until=WARM_S + 1.5)
    assert pool.lessees(job.actor)
    assert job.total() < job.emitted
    pool.run(until=WARM_S + 2.5)
    assert not pool.lessees(job.actor)
    assert job.total() == job.emitted
    assert pool.cluster.quiescent()


def test_leases_do_not_end_while_they_are_used() -> None:
    pool = pool_of(6, quiet_s=0.5)
    job = warmed(pool)
    for index in range(20):
        job.burst(WARM_S + 0.3 * index, 20)
    controls: list[int] = []
    for index in range(20):
        pool.cluster.at(WARM_S + 0.3 * index + 0.25, lambda: controls.append(len(pool.lessees(job.actor))))
    pool.run()
    assert min(controls) > 0
    assert not pool.lessees(job.actor)


def test_a_job_that_is_gone_is_not_woken_for() -> None:
    pool = pool_of(4, quiet_s=2.0)
    job = warmed(pool)
    job.burst(WARM_S, 60)
    pool.cluster.at(WARM_S + 1.0, lambda: pool.remove("job"))
    pool.run(until=WARM_S + 10.0)
    assert pool.extras(1).wake_at() is None


# --- lessees -----------------------------------------------------------------------------------------------------------


def overloaded_lessee(*, try_only: bool) -> tuple[Pool, Load]:
    """The only lessee, which knows what messages cost, has a tenth of a second of work that the lessor knows nothing of."""
    pool = pool_of(3, try_only=try_only)
    job = warmed(pool)
    other = pool.job("other", 2, service_s=0.01, latency_s=0.1, lessees_max=0)
    other.steady(0.0, WARM_S / 2, per_s=20)
    job.burst(WARM_S, 12)
    other.burst(BUSY_S, 10)
    job.burst(BUSY_S + 0.001, 14)
    return pool.run(), job


def test_a_lessee_that_only_tries_hands_back_what_it_would_be_late_with() -> None:
    pool, job = overloaded_lessee(try_only=True)
    assert pool.returns() == pool.forwards(BUSY_S) > 0
    assert set(job.ran_at(BUSY_S)) == {1}


def test_otherwise_a_lessee_keeps_what_it_gets() -> None:
    pool, job = overloaded_lessee(try_only=False)
    assert pool.returns() == 0
    assert job.ran_at(BUSY_S)[2] == pool.forwards(BUSY_S) > 0


def test_a_lessee_that_has_time_keeps_what_it_tries() -> None:
    pool = pool_of(8, try_only=True)
    job = warmed(pool)
    job.burst(WARM_S, 40)
    pool.run()
    assert pool.returns() == 0
    assert job.late() == 0


def test_what_came_back_runs_at_home() -> None:
    _, job = overloaded_lessee(try_only=True)
    assert len(job.ran) == job.emitted
    returned = [each.worker for each in job.ran if each.message.lane is Lane.RETURN]
    assert returned == [1] * len(returned)


# --- what others are told ----------------------------------------------------------------------------------------------


def test_others_are_told_what_is_urgent_and_what_there_is_in_all() -> None:
    pool = Pool(RejectSend, workers=2)
    job = pool.job("job", latency_s=0.5, service_s=0.01, lessees_max=0)
    patient = pool.job("patient", service_s=0.01, lessees_max=0)
    for each in (job, patient):
        each.steady(0.0, WARM_S / 2, per_s=20)
    job.burst(WARM_S, 10)
    patient.burst(WARM_S, 30)
    told: list[tuple[float, float]] = []
    pool.cluster.at(WARM_S + 0.005, lambda: told.append(pool.extras(1).backlog_s(pool.worker(1))))
    pool.run()
    ((urgent_s, all_s),) = told
    assert urgent_s == pytest.approx(0.1, abs=0.015)
    assert all_s == pytest.approx(0.4, abs=0.015)
    assert pool.extras(1).backlog_s(pool.worker(1)) == (0.0, 0.0)
