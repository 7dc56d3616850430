"""The hybrid: forwards what is hot for a moment, has senders spread what is hot for long, and is better than either."""

from collections.abc import Callable
from functools import cache

import pytest

from dirigo.kernel import Lane
from dirigo.scheduling import STRATEGIES, Hybrid, Strategy
from scheduling.pool import Load, Pool

HOT_S = 0.5  # when the actor becomes hot
SEEDS = (0, 1)
FETCH_S = 0.0001  # what it takes a worker to take a message in, and so to forward it


def hot(until: float, *, per_s: float = 1_500, workers: int = 8) -> tuple[Pool, Load]:
    """An actor at worker 2 with messages of 2 ms that gets three workers' work for a while, from two sources."""
    pool = Pool(lambda: Hybrid(lessees_max=workers - 3, quiet_s=1.0), workers)
    job = pool.job("job", 2, service_s=0.002, latency_s=0.05, sources=(0, 1))
    job.steady(0.0, HOT_S, per_s=50)
    job.random(HOT_S, until, per_s, seed=1)
    return pool, job


def direct(pool: Pool, job: Load, since: float, until: float = float("inf")) -> int:
    """How many messages came from their source to a lessee without a stop."""
    return sum(
        message.to == job.actor and worker != 2 and message.lane is Lane.INPUT and since <= now < until
        for now, worker, message in pool.arrived
    )


# --- switching ---------------------------------------------------------------------------------------------------------


def test_a_cold_actor_stays_at_home_and_nobody_is_told_anything() -> None:
    pool, job = hot(3.0, per_s=200)
    pool.run()
    assert pool.notes == []
    assert direct(pool, job, 0.0) == 0
    assert job.ran_at()[2] > 0.95 * job.emitted


def test_a_short_burst_is_forwarded() -> None:
    pool, job = hot(HOT_S + 0.08)
    pool.run()
    assert pool.forwards() > 30
    assert direct(pool, job, 0.0) == 0


def test_senders_take_over_from_an_actor_that_stays_hot() -> None:
    pool, job = hot(3.0)
    pool.run()
    assert pool.forwards(HOT_S, HOT_S + 0.1) > 30
    assert {worker for _, worker in pool.notes} == {0, 1}
    assert direct(pool, job, 1.0, 3.0) > 0.7 * 1_500 * 2.0
    assert pool.forwards(1.0) < 0.05 * 1_500 * 2.0


def test_they_go_on_for_as_long_as_it_is_hot() -> None:
    pool, job = hot(6.0)
    pool.run()
    for second in (1.0, 2.0, 3.0, 4.0, 5.0):
        assert direct(pool, job, second, second + 1.0) > 0.7 * 1_500
    assert job.late() == 0


def test_when_it_is_cold_again_messages_go_home_and_leases_end() -> None:
    pool, job = hot(2.0)
    job.steady(2.0, 6.0, per_s=50)
    pool.run(until=5.9)
    assert direct(pool, job, 3.5) == 0
    assert not pool.lessees(job.actor)
    pool.run()
    assert job.total() == sum(each.message.payload for each in job.ran)


def test_leases_do_not_end_while_senders_use_them() -> None:
    pool, job = hot(5.0)
    ended: list[float] = []
    for index in range(30):
        pool.cluster.at(1.0 + index * 0.1, lambda: ended.extend([pool.cluster.now] * (not pool.lessees(job.actor))))
    pool.run()
    assert ended == []


def test_messages_are_spread_evenly_once_senders_do_it() -> None:
    pool, job = hot(4.0)
    pool.run()
    ran = job.ran_at(1.5)
    assert set(ran) == {2, 3, 4, 5, 6, 7}
    assert max(ran.values()) < 1.3 * min(ran.values())


def test_barriers_find_everything() -> None:
    pool, job = hot(3.0)
    for index in range(25):
        job.barrier(HOT_S + 0.1 * index + 0.05)
    pool.run()
    assert job.total() == job.emitted == len(job.ran)


def test_a_job_that_is_gone_is_forgotten() -> None:
    pool, _ = hot(2.0)
    pool.run(until=1.5)
    for worker in (0, 1, 2):
        strategy = pool.strategy(worker)
        assert isinstance(strategy, Hybrid)
        assert [*strategy._direct, *strategy._watched]
        strategy.forget_job("job")
        assert [*strategy._direct, *strategy._watched, *strategy._told] == []


# --- against the two that it is made of ----------------------------------------------------------------------------------


def transient_skew(strategy: Callable[[], Strategy], seed: int) -> Load:
    """Ten actors with a load of 30 %; every half second another one gets four times its capacity, for 0.3 s."""
    pool = Pool(strategy, workers=12, seed=seed, fetch_s=FETCH_S)
    job = pool.job("job", range(2, 12), service_s=0.0005, latency_s=0.05, sources=(0, 1))
    for actor in range(10):
        job.random(0.0, 1.4, 600, seed=100 * seed + actor, actor=actor)
    for index in range(2):
        begin = 0.3 + 0.5 * index
        job.random(begin, begin + 0.3, 8_000, seed=1_000 * seed + index, actor=index * 3)
    for index in range(1, 14):
        job.barrier(0.1 * index)
    pool.run()
    return job


def persistent_heat(strategy: Callable[[], Strategy], seed: int) -> Load:
    """One actor gets twelve times its capacity for as long as it runs, with 16 lessees at hand."""
    pool = Pool(strategy, workers=18, seed=seed, fetch_s=FETCH_S)
    job = pool.job("job", 2, service_s=0.002, latency_s=0.05, sources=(0, 1))
    job.random(0.0, 1.5, 6_000, seed=seed)
    for index in range(1, 3):
        job.barrier(0.5 * index)
    pool.run()
    return job


SCENARIOS = {"transient skew": transient_skew, "persistent heat": persistent_heat}


@cache
def mean_s(scenario: str, strategy: str, seed: int) -> float:
    job = SCENARIOS[scenario](STRATEGIES[strategy], seed)
    assert len(job.ran) == job.emitted
    return job.mean_s()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("other", ["reject_send", "direct_send"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_results_come_sooner_than_with_either(scenario: str, other: str, seed: int) -> None:
    assert mean_s(scenario, "hybrid", seed) < 0.95 * mean_s(scenario, other, seed)


@cache
def forwarding(strategy: str, per_s: int, service_s: float) -> tuple[Pool, Load]:
    """An actor with ten workers' work from eight sources, and a barrier each 0.1 s, with intake as on real workers."""
    pool = Pool(lambda: STRATEGIES[strategy](16), workers=26, fetch_s=0.0002)  # type: ignore[call-arg]
    job = pool.job("job", 8, service_s=service_s, latency_s=0.05, sources=range(8))
    job.random(0.0, 0.8, per_s, seed=1)
    for index in range(1, 8):
        job.barrier(0.1 * index)
    pool.run()
    return pool, job


def test_few_long_messages_from_many_senders_are_left_to_the_lessor() -> None:
    pool, job = forwarding("hybrid", 800, 0.0125)
    assert pool.notes == []
    assert pool.forwards() > 0.8 * job.emitted
    assert job.mean_s() <= forwarding("direct_send", 800, 0.0125)[1].mean_s()


def test_a_lessor_with_more_messages_than_it_could_forward_is_relieved_whatever_asking_for_it_costs() -> None:
    assert forwarding("reject_send", 5_000, 0.002)[1].late() > 1_000
    pool, job = forwarding("hybrid", 5_000, 0.002)
    assert job.late() == 0
    assert pool.forwards() < 0.2 * job.emitted
