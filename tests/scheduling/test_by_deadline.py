"""What strategies with objectives have in common: deadlines, what is late already, and what a barrier waits for."""

import pytest

from dirigo.kernel import CriticalOutput
from dirigo.scheduling import STRATEGIES, Edf
from dirigo.scheduling.strategies.by_deadline import STARVED_S, ByDeadline
from scheduling.pool import Load, Pool

WARM_S = 0.5  # by then it is known what messages cost


def beside_a_flood(strategy: type[ByDeadline] | type[Edf]) -> tuple[Load, Load]:
    """A job with a quarter of a worker's work, and one with a tighter objective and twice what there is room for."""
    pool = Pool(strategy, workers=2)
    modest = pool.job("modest", service_s=0.005, latency_s=0.5, lessees_max=0)
    flood = pool.job("flood", service_s=0.005, latency_s=0.1, lessees_max=0)
    modest.steady(0.0, 6.0, per_s=50)
    flood.steady(1.0, 6.0, per_s=400)
    pool.run()
    return modest, flood


def test_a_job_that_floods_the_worker_does_not_make_others_late() -> None:
    modest, _ = beside_a_flood(ByDeadline)
    assert modest.late() < 0.05 * modest.emitted


def test_by_deadlines_alone_it_would() -> None:
    modest, _ = beside_a_flood(Edf)
    assert modest.late() > 0.5 * modest.emitted


def test_what_is_late_or_beyond_its_share_runs_when_there_is_time() -> None:
    modest, flood = beside_a_flood(ByDeadline)
    assert len(modest.ran) == modest.emitted
    assert len(flood.ran) == flood.emitted
    assert max(each.ended for each in flood.ran) < 1.0 + 2_000 * 0.005 + 250 * 0.005 + 0.01  # the worker was never idle


def test_what_has_been_waiting_for_too_long_takes_turns() -> None:
    pool = Pool(ByDeadline, workers=2)
    job = pool.job("job", service_s=0.01, latency_s=0.1, lessees_max=0)
    job.steady(0.0, WARM_S, per_s=20)
    job.burst(WARM_S, 30)  # of which 20 are late
    job.steady(WARM_S, 2 * STARVED_S, per_s=99)
    pool.run()
    waited = [each for each in job.ran if each.message.created == WARM_S and each.is_late]
    assert len(waited) > 10
    assert all(each.latency_s < STARVED_S + 5.0 for each in waited)


def test_the_rest_is_served_by_deadline() -> None:
    pool = Pool(ByDeadline, workers=2)
    lax = pool.job("lax", service_s=0.01, latency_s=1.0, lessees_max=0)
    tight = pool.job("tight", service_s=0.01, latency_s=0.1, lessees_max=0)
    lax.burst(0.0, 5)
    tight.burst(0.005, 3)
    pool.run()
    assert [each.message.to.split("/")[0] for each in pool.ran] == ["lax", *["tight"] * 3, *["lax"] * 4]


@pytest.mark.parametrize(("strategy", "least_s", "most_s"), [(Edf, 1.5, 4.0), (ByDeadline, 0.0, 0.3)])
def test_what_a_barrier_waits_for_is_hurried(strategy: type[ByDeadline] | type[Edf], least_s: float, most_s: float) -> None:
    pool = Pool(strategy, workers=2)
    lax = pool.job("lax", service_s=0.01, latency_s=5.0, lessees_max=0)
    other = pool.job("other", service_s=0.01, latency_s=2.0, lessees_max=0)
    for job in (lax, other):
        job.steady(0.0, WARM_S, per_s=20)
    other.steady(WARM_S, 4.0, per_s=95)  # almost all that the worker can do
    lax.burst(1.0, 15)
    lax.barrier(1.01)
    lax.emit(1.02)  # waits for the barrier
    pool.run()
    (after,) = (each for each in lax.ran if each.message.created == 1.02)
    assert least_s < after.message.ready - 1.0 < most_s  # when the barrier let it go


def test_what_a_barrier_waits_for_does_not_starve_though_it_is_late() -> None:
    pool = Pool(ByDeadline, workers=2)
    job = pool.job("job", (1, 1), service_s=0.01, latency_s=0.1, lessees_max=0)
    job.steady(0.0, WARM_S, per_s=20)
    job.burst(WARM_S, 30)  # of which 20 are late
    job.steady(WARM_S, 5.0, per_s=99, actor=1)  # and these never are, if they always go first
    job.feeds[0].emit_at(1.0, CriticalOutput(job.actor, None, created=1.0, deadline=1.1))
    job.emit(1.01)  # waits for the barrier
    pool.run()
    (after,) = (each for each in job.ran if each.message.created == 1.01)
    assert after.message.ready - 1.0 < 0.5  # when the barrier let it go


def test_all_that_waits_is_told() -> None:
    pool = Pool(ByDeadline, workers=2)
    job = pool.job("job", service_s=0.01, latency_s=0.1, lessees_max=0)
    job.steady(0.0, WARM_S, per_s=20)
    job.burst(WARM_S, 50)
    told: list[tuple[float, float]] = []
    for at in (0.055, 0.255, 1.0):
        pool.cluster.at(WARM_S + at, lambda: told.append(pool.extras(1).backlog_s(pool.worker(1))))
    pool.run()
    assert [all_s for _, all_s in told] == [pytest.approx(left_s, abs=0.02) for left_s in (0.45, 0.25, 0.0)]
    assert all(0.0 <= urgent_s <= all_s + 1e-9 for urgent_s, all_s in told)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_job_that_is_gone_has_left_harms_no_other_job(strategy: str) -> None:
    pool = Pool(STRATEGIES[strategy], workers=2)
    stays = pool.job("stays", service_s=0.5, latency_s=5.0, lessees_max=0)
    gone = pool.job("gone", service_s=0.1, latency_s=0.1, lessees_max=0)
    stays.emit(0.0)
    stays.burst(0.1, 3)
    gone.burst(0.1, 10)
    pool.cluster.at(0.3, lambda: pool.remove("gone"))  # its messages are late, and wait behind the one that runs
    pool.run(until=3.0)
    assert (len(gone.ran), len(stays.ran)) == (0, 4)
    assert pool.extras(1).backlog_s(pool.worker(1)) == (0.0, 0.0)
