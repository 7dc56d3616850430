"""The queue that is fair between jobs: shares by weight, handicaps, and nobody behind a backlog that is not his."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from dirigo.scheduling.fair_queue import FairQueue


def message(name: str) -> Any:
    return SimpleNamespace(to=name)


def served(queue: FairQueue, count: int) -> list[str]:
    return [queue.pop().message.to for _ in range(count)]


def test_a_newcomer_stands_beside_the_first_of_a_backlog_not_behind_the_last() -> None:
    queue = FairQueue()
    for _ in range(100):
        queue.push(message("noisy"), "noisy", 1.0, 0.01)
    assert served(queue, 10) == ["noisy"] * 10
    queue.push(message("modest"), "modest", 1.0, 0.01)
    assert "modest" in served(queue, 2)


def test_backlogs_are_worked_off_by_weight() -> None:
    queue = FairQueue()
    for _ in range(300):
        queue.push(message("light"), "light", 1.0, 0.01)
        queue.push(message("heavy"), "heavy", 3.0, 0.01)
    first = served(queue, 200)
    assert 148 <= first.count("heavy") <= 152


def test_it_is_cost_that_counts_not_messages() -> None:
    queue = FairQueue()
    for _ in range(300):
        queue.push(message("short"), "short", 1.0, 0.01)
        queue.push(message("long"), "long", 1.0, 0.03)
    first = served(queue, 200)
    assert 148 <= first.count("short") <= 152


def test_a_smaller_handicap_is_first_for_as_long_as_it_is_worth() -> None:
    queue = FairQueue()
    for _ in range(10):
        queue.push(message("lax"), "lax", 1.0, 0.1, handicap_s=0.55)
        queue.push(message("tight"), "tight", 1.0, 0.1, handicap_s=0.0)
    assert served(queue, 6) == ["tight"] * 6
    assert set(served(queue, 4)) == {"tight", "lax"}


def test_an_actor_that_is_awaited_loses_most_of_its_handicap() -> None:
    queue = FairQueue()
    queue.push(message("other"), "other", 1.0, 0.1, handicap_s=1.0)
    queue.push(message("awaited"), "awaited", 1.0, 0.1, handicap_s=2.0)
    queue.hurry("awaited", 0.2, lambda _: False)
    assert queue.first.rank == 1.0
    for _ in range(2):  # told twice, it is hurried once
        queue.hurry("awaited", 0.2, lambda _: True)
    queue.hurry("nobody", 0.2, lambda _: True)
    assert queue.first.rank == 0.4
    assert served(queue, 2) == ["awaited", "other"]


def test_once_it_is_empty_nobody_is_ahead_of_anybody() -> None:
    queue = FairQueue()
    for _ in range(50):
        queue.push(message("busy"), "busy", 1.0, 1.0)
    served(queue, 50)
    assert not queue
    assert queue.seconds == 0.0
    queue.push(message("busy"), "busy", 1.0, 1.0)
    queue.push(message("other"), "other", 1.0, 1.0)
    assert served(queue, 2) == ["busy", "other"]


def test_all_that_waits_is_counted_and_each_job_is_served_in_order() -> None:
    rng, queue, number = Random(5), FairQueue(), 0
    waiting: dict[str, list[int]] = {job: [] for job in "abc"}
    costs: dict[int, float] = {}
    for _ in range(3_000):
        if rng.random() < 0.55 or not queue:
            job, number = rng.choice("abc"), number + 1
            costs[number] = rng.choice([0.001, 0.01, 0.1])
            queue.push(SimpleNamespace(to=job, number=number), job, 1.0, costs[number])  # type: ignore[arg-type]
            waiting[job].append(number)
        else:
            entry: Any = queue.pop().message
            assert waiting[entry.to].pop(0) == entry.number
        left = sum(costs[each] for its in waiting.values() for each in its)
        assert abs(queue.seconds - left) < 1e-6


def test_what_is_taken_out_leaves_the_others_where_they_are() -> None:
    queue = FairQueue()
    for job in ("one", "other", "one", "other"):
        queue.push(message(job), job, 1.0, 0.1, since=1.0 if job == "one" else float("inf"))
    assert [entry.message.to for entry in queue.take(lambda entry: entry.is_only_late)] == ["one", "one"]
    assert queue.take(lambda entry: entry.is_only_late) == []
    assert queue.seconds == pytest.approx(0.2)
    assert served(queue, 2) == ["other", "other"]
