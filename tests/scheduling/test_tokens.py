"""Tokens: jobs get the throughput that they were promised or their share of the time, and the pool is never idle for it."""

import pytest

from dirigo.scheduling import Fifo, Tokens
from scheduling.pool import Load, Pool

ALONE = {"lessees_max": 0}  # nothing is scattered


def two_jobs(strategy: type[Fifo] | type[Tokens], red: dict[str, float], blue: dict[str, float]) -> tuple[Load, Load]:
    """Two jobs at worker 1, with messages of a millisecond: blue has three times what the worker can do."""
    pool = Pool(strategy, workers=2)
    first = pool.job("red", service_s=0.001, **ALONE, **red)  # type: ignore[arg-type]
    second = pool.job("blue", service_s=0.001, **ALONE, **blue)  # type: ignore[arg-type]
    second.steady(0.0, 2.0, per_s=3_000)
    first.steady(0.0, 2.0, per_s=150)
    pool.run()
    return first, second


def done_by(job: Load, t: float, since: float = 0.0) -> int:
    return sum(since < each.ended <= t for each in job.ran)


# --- throughput --------------------------------------------------------------------------------------------------------


def test_a_job_gets_the_throughput_that_it_was_promised_however_much_others_want() -> None:
    red, _ = two_jobs(Tokens, {"rows_per_s": 400.0}, {})  # 200 rows/s at each of two workers
    assert done_by(red, 2.0) >= 295
    assert red.p99_s() < 0.15  # and no more than a burst of the other's


def test_without_tokens_it_waits_with_the_others() -> None:
    red, _ = two_jobs(Fifo, {"rows_per_s": 400.0}, {})
    assert done_by(red, 2.0) < 110
    assert red.p99_s() > 1.0


def test_what_goes_beyond_the_promise_waits() -> None:
    red, blue = two_jobs(Tokens, {"rows_per_s": 100.0}, {"rows_per_s": 1_900.0})
    assert 90 <= done_by(red, 2.0) <= 150  # 50 rows/s here, and a share of what is left
    assert done_by(blue, 2.0) > 1_800


def test_a_promise_counts_rows() -> None:
    shares = []
    for rows in (1, 10):
        pool = Pool(Tokens, workers=2)
        red = pool.job("red", service_s=0.001, rows_per_s=200.0, **ALONE)  # type: ignore[arg-type]
        blue = pool.job("blue", service_s=0.001, rows_per_s=1_800.0, **ALONE)  # type: ignore[arg-type]
        blue.steady(0.0, 2.0, per_s=3_000)
        red.steady(0.0, 2.0, per_s=500, rows=rows)
        pool.run()
        shares.append(done_by(red, 2.0))
    assert shares[0] > 1.5 * shares[1]


# --- shares ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_jobs_that_want_more_than_there_is_get_it_by_weight(weight: float) -> None:
    pool = Pool(Tokens, workers=2)
    red = pool.job("red", service_s=0.001, weight=weight, **ALONE)  # type: ignore[arg-type]
    blue = pool.job("blue", service_s=0.001, **ALONE)  # type: ignore[arg-type]
    for job in (red, blue):
        job.steady(0.0, 3.0, per_s=2_000)
    pool.run()
    counts = [done_by(job, 3.0, since=0.5) for job in (red, blue)]
    assert counts[0] / counts[1] == pytest.approx(weight, rel=0.15)


def test_by_weight_it_is_time_that_is_shared() -> None:
    pool = Pool(Tokens, workers=2)
    heavy = pool.job("heavy", service_s=0.004, **ALONE)  # type: ignore[arg-type]
    light = pool.job("light", service_s=0.001, **ALONE)  # type: ignore[arg-type]
    heavy.steady(0.0, 3.0, per_s=500)
    light.steady(0.0, 3.0, per_s=2_000)
    pool.run()
    counts = [done_by(job, 3.0, since=0.5) for job in (heavy, light)]
    assert counts[1] / counts[0] == pytest.approx(4.0, rel=0.2)


def test_nobody_is_idle_for_the_sake_of_others() -> None:
    pool = Pool(Tokens, workers=2)
    pool.job("away", service_s=0.001, weight=99.0, **ALONE).emit(0.0)  # type: ignore[arg-type]
    job = pool.job("job", service_s=0.001, **ALONE)  # type: ignore[arg-type]
    job.burst(0.01, 1_000)
    pool.run()
    assert max(each.ended for each in job.ran) == pytest.approx(1.011, abs=0.002)


def test_what_a_job_leaves_is_shared_among_the_others() -> None:
    pool = Pool(Tokens, workers=2)
    red, blue, gone = (pool.job(name, service_s=0.001, **ALONE) for name in ("red", "blue", "gone"))  # type: ignore[arg-type]
    gone.emit(0.0)
    pool.cluster.at(0.1, lambda: pool.remove("gone"))
    for job in (red, blue):
        job.steady(0.2, 2.0, per_s=2_000)
    pool.run()
    strategy = pool.strategy(1)
    assert isinstance(strategy, Tokens)
    assert {job: bucket.per_s for job, bucket in strategy._buckets.items()} == {"red": 0.5, "blue": 0.5}


# --- scattering --------------------------------------------------------------------------------------------------------


def test_what_finds_no_token_is_scattered_over_the_others_and_stays_there() -> None:
    pool = Pool(Tokens, workers=6)
    red = pool.job("red", service_s=0.001, rows_per_s=600.0)  # 100 rows/s at each worker
    red.steady(0.0, 2.0, per_s=1_000)
    pool.run()
    ran = red.ran_at(0.5)
    assert set(ran) == {0, 1, 2, 3, 4, 5}
    elsewhere = [count for worker, count in ran.items() if worker != 1]
    assert max(elsewhere) < 1.5 * min(elsewhere)
    assert pool.returns() == 0
    assert pool.forwards() == sum(red.ran_at().values()) - red.ran_at()[1]


def test_what_finds_a_token_stays() -> None:
    pool = Pool(Tokens, workers=6)
    red = pool.job("red", service_s=0.001, rows_per_s=6_000.0)
    red.steady(0.0, 2.0, per_s=800)
    pool.run()
    assert set(red.ran_at()) == {1}


def test_scattering_evens_a_skewed_load_out() -> None:
    """One actor gets three times what a worker can do, in a pool of five."""
    ends = []
    for strategy in (Fifo, Tokens):
        pool = Pool(strategy, workers=5)
        skewed = pool.job("skewed", service_s=0.002)
        skewed.steady(0.0, 1.0, per_s=1_500)
        pool.run()
        ends.append(max(each.ended for each in skewed.ran))
    assert ends[0] > 2.9
    assert ends[1] < 1.3


def test_leases_end_when_it_is_quiet() -> None:
    pool = Pool(Tokens, workers=4)
    job = pool.job("job", service_s=0.01)
    job.burst(0.0, 5)
    job.burst(1.0, 100)
    pool.run(until=2.0)
    assert pool.lessees(job.actor)
    pool.run()
    assert not pool.lessees(job.actor)
    assert job.total() == 105
