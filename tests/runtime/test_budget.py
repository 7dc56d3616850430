"""Budgets: when sources have to wait, and what the workers tell each other about it."""

from __future__ import annotations

from random import Random

import pytest

from dirigo.runtime.transport.wire import Pressure
from dirigo.runtime.worker.budget import TOLD_PARTS, Budget

MiB = 1 << 20


def pressure(queued: int, state: int = 0, behind: int | None = None, worker: int = 1) -> Pressure:
    return Pressure("job", worker, queued, state, behind)


def test_sources_wait_while_more_waits_than_the_budget_and_go_on_at_half_of_it() -> None:
    budget = Budget(100)
    budget.queued = 100
    assert not budget.is_over(0)
    budget.queued = 101
    assert budget.is_over(0)
    budget.queued = 60
    assert budget.is_over(0)
    budget.queued = 50
    assert not budget.is_over(0)
    budget.queued = 60
    assert not budget.is_over(0)


def test_all_that_waits_anywhere_counts() -> None:
    budget = Budget(100)
    budget.queued = 30
    budget.note(pressure(30, worker=1))
    budget.note(pressure(30, worker=2))
    assert not budget.is_over(under_way=10)
    assert budget.is_over(under_way=11)
    budget.note(pressure(0, worker=2))  # the newest word of a worker replaces its last
    assert not budget.is_over(under_way=-20)


@pytest.mark.parametrize("limit", [1, 2, 15, 16, 100])
def test_a_small_budget_stops_no_source_for_ever(limit: int) -> None:
    budget = Budget(limit)
    budget.queued = 10 * limit
    assert budget.is_over(0)
    budget.queued = 0
    assert not budget.is_over(0)


@pytest.mark.parametrize("limit", [1, 100, MiB])
def test_what_others_know_is_never_far_from_the_truth(limit: int) -> None:
    rng = Random(limit)
    budget, known = Budget(limit), pressure(0)
    for _ in range(2_000):
        budget.queued = rng.choice([0, rng.randrange(2 * limit), budget.queued + 1])
        budget.state_bytes = rng.choice([0, rng.randrange(2 * limit), budget.state_bytes])
        known = budget.news("job", 1, 0, False) or known
        assert abs(known.queued_bytes - budget.queued) <= limit // TOLD_PARTS
        assert abs(known.state_bytes - budget.state_bytes) <= limit // TOLD_PARTS
        if not budget.queued:
            assert not known.queued_bytes  # or the last crumb would stop sources for ever


def test_news_are_rare() -> None:
    budget, told = Budget(64 * MiB), 0
    for waiting in range(0, 64 * MiB, 1000):
        budget.queued = waiting
        told += budget.news("job", 1, 0, False) is not None
    assert told <= TOLD_PARTS


def test_what_is_under_way_is_told_too() -> None:
    budget = Budget(1600)
    assert budget.news("job", 1, 100, False) is None
    news = budget.news("job", 1, 101, False)
    assert news is not None
    assert news.queued_bytes == 101


@pytest.mark.parametrize("is_here", [True, False])
def test_how_far_sources_are_is_told_now_and_then_also_when_they_have_ended(is_here: bool) -> None:
    budget = Budget(MiB)
    budget.behind_ms = 3
    news = budget.news("job", 1, 0, True)
    assert news is not None
    assert news.behind_ms == 3  # so that others know that there are sources here
    budget.behind_ms = 4
    assert budget.news("job", 1, 0, True) is None  # nobody needs to know how far while there is room
    if is_here:
        budget.state_bytes = MiB // 2 + 1
        assert budget.news("job", 1, 0, False) is not None
    else:
        budget.note(pressure(0, state=MiB // 2 + 1, worker=2))
    budget.behind_ms = 5
    assert budget.news("job", 1, 0, False) is None
    news = budget.news("job", 1, 0, True)
    assert news is not None
    assert news.behind_ms == 5
    assert budget.news("job", 1, 0, True) is None
    budget.behind_ms = None
    news = budget.news("job", 1, 0, True)
    assert news is not None
    assert news.behind_ms is None


def test_while_states_pile_up_those_ahead_wait_for_those_behind() -> None:
    budget = Budget(100)
    budget.state_bytes = 60
    budget.note(pressure(0, state=50, behind=1_000))
    assert budget.is_ahead(2_000, [2_000], 0)
    assert not budget.is_ahead(1_000, [1_000], 0)
    assert not budget.is_ahead(500, [500, 2_000], 0)
    assert budget.is_ahead(2_000, [500, 2_000], 0)  # of one here
    budget.state_bytes = 50  # there is room
    assert not budget.is_ahead(2_000, [2_000], 0)


def test_nobody_waits_for_a_worker_whose_sources_have_ended() -> None:
    budget = Budget(100)
    budget.note(pressure(0, state=500, behind=None))
    assert not budget.is_ahead(2_000, [2_000], 0)
    assert not budget.is_ahead(2_000, [], 0)


def test_a_source_that_is_ahead_leaves_most_of_the_budget_to_those_behind() -> None:
    budget = Budget(100)
    budget.note(pressure(10, behind=1_000))
    budget.queued = 5
    assert not budget.is_ahead(2_000, [2_000], under_way=10)
    assert budget.is_ahead(2_000, [2_000], under_way=11)
    assert not budget.is_ahead(1_000, [1_000], under_way=11)
    assert budget.is_ahead(2_000, [500, 2_000], under_way=11)  # of one here
    budget.note(pressure(10))  # its sources have ended
    assert not budget.is_ahead(2_000, [2_000], under_way=11)


@pytest.mark.parametrize("waiting", [0, MiB // 8])
def test_how_far_sources_are_is_told_before_others_have_to_wait_for_them(waiting: int) -> None:
    budget = Budget(MiB)
    budget.behind_ms = 4
    assert budget.news("job", 1, 0, True) is not None
    budget.behind_ms = 5
    budget.note(pressure(waiting, worker=2))
    assert budget.news("job", 1, 0, True) is None
    budget.note(pressure(waiting + 1, worker=2))
    assert (budget.news("job", 1, 0, True) is None) == (not waiting)


def test_a_worker_that_has_not_told_of_its_sources_is_taken_to_be_behind() -> None:
    budget = Budget(100, others=(2,))
    budget.queued = 26
    assert budget.is_ahead(2_000, [2_000], 0)
    other = Budget(100, others=(1,))
    assert other.behind_ms is None
    news = other.news("job", 2, 0, True)  # it has none, or none that others wait for
    assert news is not None
    budget.note(news)
    assert not budget.is_ahead(2_000, [2_000], 0)
    assert other.news("job", 2, 0, True) is None


@pytest.mark.parametrize("batch", [MiB, 32 * MiB, 128 * MiB])
def test_a_source_that_is_behind_is_read_although_the_worker_of_one_ahead_is_first_to_know_of_room(batch: int) -> None:
    limit = 64 * MiB
    ahead, behind = Budget(limit), Budget(limit)
    ahead.behind_ms, behind.behind_ms = 2_000, 1_000

    def tell() -> None:
        news = ahead.news("job", 1, 0, True)
        if news is not None:
            behind.note(news)

    def read_while_possible() -> None:
        while not ahead.is_over(0) and not ahead.is_ahead(2_000, [2_000], 0):
            ahead.queued += batch
            tell()

    read_while_possible()  # it does not know of the other one
    assert ahead.is_over(0)
    behind.queued = limit // TOLD_PARTS
    assert behind.is_over(0)
    behind.queued = 0
    news = behind.news("job", 2, 0, True)
    assert news is not None
    ahead.note(news)
    for _ in range(1_000):
        ahead.queued = max(0, ahead.queued - limit // 100)
        tell()
        read_while_possible()
        if not behind.is_over(0):
            return
    pytest.fail("it is never read")
