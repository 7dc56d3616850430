"""Strategies that spread messages whatever their deadlines: by chance, in turn, or to the less loaded of two."""

from collections import Counter

import pytest

from dirigo.kernel.interface.message import Registration
from dirigo.scheduling import DirectSend, DirectSendP2C, DirectSendRandom, RejectSendRandom
from scheduling.pool import Load, Pool


def run(pool: Pool, **options: float) -> tuple[Pool, Load]:
    job = pool.job("job", service_s=0.001, **options)  # type: ignore[arg-type]
    job.steady(0.0, 2.0, per_s=200)
    job.barrier(2.0)
    return pool.run(), job


@pytest.mark.parametrize("kind", [RejectSendRandom, DirectSendRandom])
def test_all_instances_get_about_the_same(kind: type[RejectSendRandom] | type[DirectSendRandom]) -> None:
    _, job = run(Pool(lambda: kind(3), workers=6))
    assert set(job.ran_at()) == {1, 2, 3, 4}
    assert min(job.ran_at().values()) > 60
    assert job.total() == 400


@pytest.mark.parametrize("kind", [RejectSendRandom, DirectSendRandom])
def test_in_turn_they_get_exactly_the_same(kind: type[RejectSendRandom] | type[DirectSendRandom]) -> None:
    _, job = run(Pool(lambda: kind(3, selector="round_robin"), workers=6))
    assert job.ran_at() == {1: 100, 2: 100, 3: 100, 4: 100}


def test_forwarded_messages_come_by_their_home_and_direct_ones_do_not() -> None:
    pool, job = run(Pool(lambda: RejectSendRandom(3), workers=6))
    assert pool.forwards() == 400 - job.ran_at()[1]
    pool, _ = run(Pool(lambda: DirectSendRandom(3), workers=6))
    assert pool.forwards() == 0


@pytest.mark.parametrize("kind", [DirectSendRandom, DirectSendP2C, DirectSend])
def test_senders_ask_for_all_instances_at_once(kind: type[DirectSendRandom | DirectSendP2C | DirectSend]) -> None:
    """One by one, each instance would cost a round trip after every barrier, and the more instances the worse."""
    pool = Pool(lambda: kind(3), workers=6)
    asked: list[tuple[int, ...]] = []
    pool.cluster.carried = lambda messages: asked.extend(each.wanted for each in messages if isinstance(each, Registration))
    run(pool)
    assert asked == [(2, 3, 4)]


@pytest.mark.parametrize("kind", [RejectSendRandom, DirectSendRandom, DirectSendP2C])
def test_an_ordered_function_stays_at_home(kind: type[RejectSendRandom]) -> None:
    _, job = run(Pool(kind, workers=6), ordered=True)
    assert set(job.ran_at()) == {1}


@pytest.mark.parametrize("kind", [RejectSendRandom, DirectSendRandom, DirectSendP2C])
def test_alone_in_a_pool_everything_stays(kind: type[RejectSendRandom]) -> None:
    pool = Pool(kind, workers=1)
    job = pool.job("job", 0, service_s=0.001)
    job.steady(0.0, 1.0, per_s=100)
    pool.run()
    assert job.ran_at() == {0: 100}


# --- two choices -------------------------------------------------------------------------------------------------------


def beside_a_busy_worker(kind: type[DirectSendRandom] | type[DirectSendP2C]) -> Counter[int]:
    """Worker 2 is busy with another job, as it tells with its answers to that job's barriers."""
    pool = Pool(lambda: kind(3), workers=6)
    other = pool.job("other", 2, service_s=0.05, lessees_max=0)
    other.steady(0.0, 2.0, per_s=30)
    for index in range(100):
        other.barrier(0.02 * index)
    job = pool.job("job", service_s=0.001)
    job.steady(0.5, 2.0, per_s=200)
    pool.run()
    return job.ran_at()


def test_of_two_instances_the_less_loaded_is_preferred() -> None:
    by_load, by_chance = beside_a_busy_worker(DirectSendP2C), beside_a_busy_worker(DirectSendRandom)
    assert by_chance[2] > 50
    assert by_load[2] < by_chance[2] / 4
    assert min(by_load[worker] for worker in (1, 3, 4)) > 70


def test_what_was_sent_counts_before_anybody_tells() -> None:
    """A burst that is all sent at once is spread more evenly than by chance."""
    spreads = []
    for kind in (DirectSendP2C, DirectSendRandom):
        pool = Pool(lambda kind=kind: kind(7), workers=9)  # type: ignore[misc]
        job = pool.job("job", service_s=0.01)
        job.burst(0.0, 160)
        pool.run()
        spreads.append(max(job.ran_at().values()) - min(job.ran_at().values()))
    assert spreads[0] <= 6 < spreads[1]


def test_batches_count_by_their_rows_once_their_cost_is_known() -> None:
    pool = Pool(lambda: DirectSendP2C(1), workers=3, by_row=True)
    job = pool.job("job", 0, service_s=0.001, sources=(0,))  # the sender executes it too, and so learns what it costs
    job.steady(0.0, 1.0, per_s=50)
    for index in range(60):
        job.emit(2.0 + 0.000_001 * index, 1 if index % 2 else 50)
    pool.run()
    rows = Counter[int]()
    for each in job.ran:
        if each.message.created >= 2.0:
            rows[each.worker] += each.message.payload
    assert rows[0] == pytest.approx(rows[1], rel=0.1)
