"""Messages by deadline: the order is exact, and the outlook is what adding up by hand gives, to a slice."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dirigo.kernel import Data, Lane
from dirigo.scheduling.deadline_queue import DeadlineQueue

LATENCY_S = 0.32
STEP_S = LATENCY_S / 32
FOREVER = float("inf")
LAST_S = 500 * LATENCY_S  # beyond this, from the present, nobody is told apart


def message(number: int) -> Data:
    return Data("job/a/0", 0, "job/s/0", 0, Lane.INPUT, number, 0, number)


@dataclass
class Naive:
    """The same queue, by adding up; and the same answers, with the bounds that slices allow."""

    now: float
    queue: DeadlineQueue = field(default_factory=DeadlineQueue)
    items: list[tuple[float, int, float]] = field(default_factory=list)  # (due, number, cost)
    number: int = 0

    def __post_init__(self) -> None:
        self.queue.tighten(LATENCY_S)

    def push(self, due: float, cost_s: float) -> None:
        self.number += 1
        self.items.append((due, self.number, cost_s))
        self.queue.push(message(self.number), due, cost_s)

    def pop(self) -> None:
        popped = self.queue.pop()
        if not self.items:
            assert popped is None
            return
        self.items.sort()
        _, number, cost_s = self.items.pop(0)
        assert popped is not None
        assert (popped[0].payload, popped[1]) == (number, cost_s)
        self.now += cost_s

    def precision_s(self, due: float) -> float:
        """The longest slice that this may be in: those in the present are short."""
        away_s = due - self.now
        return STEP_S if away_s < 60 * STEP_S else 16 * STEP_S if away_s < 1_000 * STEP_S else 256 * STEP_S

    def ahead_s(self, due: float) -> float:
        return sum(cost_s for each, _, cost_s in self.items if each <= due)

    def slack(self, after: float, within: Callable[[float], float]) -> float:
        """By when the work of those due after a time has to begin; ``within`` makes their deadlines earlier."""
        return min(
            (due - within(due) - self.ahead_s(due + within(due)) for due, _, cost_s in self.items if due > after and cost_s),
            default=FOREVER,
        )

    def check(self, due: float) -> None:
        assert len(self.queue) == len(self.items)
        assert self.queue.backlog_s == pytest.approx(self.ahead_s(FOREVER), abs=1e-9)
        assert self.queue.first_due() == min((due for due, _, _ in self.items), default=FOREVER)
        ahead_s, behind = self.queue.precise_outlook(due, self.now)
        rounding = 1e-9 + 2 * math.ulp(due)  # a time of day is kept to a quarter of a microsecond
        assert self.ahead_s(due) - 1e-9 <= ahead_s <= self.ahead_s(max(due, self.now) + self.precision_s(due)) + 1e-9
        assert behind >= self.slack(due, self.precision_s) - rounding
        if not any(each > self.now + LAST_S for each, _, _ in self.items):
            later = max(due, self.now) + self.precision_s(due)
            assert behind <= self.slack(later, lambda _: 0.0) + rounding


deadlines = st.one_of(st.floats(-1.0, 1.0), st.floats(0.0, 20.0), st.floats(0.0, 400.0)).map(lambda s: s * LATENCY_S)
costs = st.one_of(st.just(0.0), st.floats(1e-6, 0.2))  # of whose cost nothing is known, nobody can say when it must begin
steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), deadlines, costs),
        st.tuples(st.just("pop"), st.just(0.0), st.just(0.0)),
        st.tuples(st.just("wait"), st.floats(0.0, 3.0), st.just(0.0)),
        st.tuples(st.just("look"), deadlines, st.just(0.0)),
    ),
    max_size=60,
)


# --- the order ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0.0, 100.0), costs)))
def test_messages_come_out_by_deadline_and_among_equals_as_they_came(items: list[tuple[float, float]]) -> None:
    queue = DeadlineQueue()
    for number, (due, cost_s) in enumerate(items):
        queue.push(message(number), due, cost_s)
    out = [popped[0].payload for _ in items if (popped := queue.pop()) is not None]
    assert out == sorted(range(len(items)), key=lambda number: (items[number][0], number))
    assert queue.pop() is None
    assert queue.backlog_s == 0.0


def test_what_is_never_due_comes_last() -> None:
    queue = DeadlineQueue()
    queue.push(message(1), FOREVER, 1.0)
    queue.push(message(2), 1e12, 1.0)
    assert queue.precise_outlook(FOREVER, 0.0)[0] == 2.0
    assert [queue.pop(), queue.pop()] == [(message(2), 1.0), (message(1), 1.0)]


# --- the outlook -------------------------------------------------------------------------------------------------------


# Both have a plan that is stale when there was one look at it, and more than eight messages.
_STALE = [*[("push", 0.0, 0.0)] * 7, ("push", 5.44, 0.125), ("wait", 1.0, 0.0)]


@settings(max_examples=300)
@given(st.sampled_from([0.0, 0.005, 7.3, 1_700_000_000.0]), steps)
@example(1_700_000_000.0, [*[("push", 0.0, 0.1333138051929311)] * 2, ("push", 0.32, 0.08372244918471321)])
@example(0.0, [*_STALE, ("wait", 2.75, 0.0), ("push", 0.0, 0.0), ("wait", 1.5, 0.0)])
@example(0.0, [*_STALE, ("wait", 2.5, 0.0), ("push", 0.0, 0.0), ("wait", 1.5, 0.0)])
def test_the_outlook_is_what_adding_up_gives_to_a_slice(now: float, steps: list[tuple[str, float, float]]) -> None:
    naive = Naive(now)
    for what, seconds, cost_s in steps:
        if what == "push":
            naive.push(naive.now + seconds, cost_s)
        elif what == "pop":
            naive.pop()
        elif what == "wait":
            naive.now += seconds
        naive.check(naive.now + (seconds if what == "look" else 0.5 * LATENCY_S))


def test_the_outlook_stays_right_as_time_moves_on_for_long() -> None:
    rng = Random(0)
    naive = Naive(1_700_000_000.0)
    for _ in range(400):
        for _ in range(rng.choice((1, 1, 1, 2))):
            naive.push(naive.now + rng.choice((1, 1, 4, 100)) * LATENCY_S, rng.uniform(0.0, 0.03))
        naive.pop()
        naive.now += 0.04
        naive.check(naive.now + rng.choice((0.5, 1, 4, 100)) * LATENCY_S)
    assert len(naive.items) > 50


@settings(max_examples=300)
@given(
    st.lists(st.tuples(deadlines, costs), max_size=20),
    deadlines,
    costs,
)
def test_nobody_who_would_be_late_is_overlooked(items: list[tuple[float, float]], due: float, cost_s: float) -> None:
    naive = Naive(1_000.0)
    for away_s, each_s in items:
        naive.push(naive.now + away_s, each_s)
    due += naive.now
    ahead_s, behind = naive.queue.outlook(due, naive.now, cost_s)
    if naive.now + naive.ahead_s(due) + cost_s > due:
        assert naive.now + ahead_s + cost_s > due
    precise_s = 2 * naive.precision_s(max((each for each, _, _ in naive.items), default=0.0))
    if behind == FOREVER:
        assert naive.slack(max(due, naive.now) + precise_s, lambda _: 0.0) >= naive.now + cost_s - 1e-9


def test_without_need_nothing_is_looked_at_closely() -> None:
    naive = Naive(1_000.0)
    for away_s in (1.0, 5.0, 9.0):
        naive.push(naive.now + away_s, 0.1)
    assert naive.queue.outlook(naive.now + 2.0, naive.now, 0.1) == pytest.approx((0.3, FOREVER))  # all of it fits in
    ahead_s, behind = naive.queue.outlook(naive.now + 2.0, naive.now, 0.75)
    assert ahead_s == pytest.approx(0.1)  # what is due before
    assert behind == pytest.approx(naive.now + 5.0 - 0.2, abs=16 * STEP_S)  # and before those after it


def test_a_queue_that_was_pressed_is_right_again_when_it_is_pressed_next() -> None:
    naive = Naive(1_000.0)
    for round_ in range(4):
        for index in range(30):
            naive.push(naive.now + LATENCY_S * (1 + index % 3), 0.02)
        naive.check(naive.now + LATENCY_S)
        for _ in range(28):
            naive.pop()
        for _ in range(300 * (round_ % 2)):  # long enough for the tree to be given up, or not
            assert naive.queue.outlook(naive.now + 100.0, naive.now - 50.0)[1] == FOREVER
            naive.push(naive.now + 5.0, 0.0)
            naive.pop()
        naive.check(naive.now + LATENCY_S)


# --- objectives --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency_s", [0.000_1, 0.01, 0.1, 1.0, 60.0])
def test_slices_are_as_short_as_the_tightest_objective_needs(latency_s: float) -> None:
    queue = DeadlineQueue()
    for each in (100.0, latency_s, 10.0):
        queue.tighten(each)
    step_s = max(latency_s / 32, 0.001)
    now = 1_000.0
    for index in range(20):
        queue.push(message(index), now + index * 3 * step_s, 1.0)
    for index in range(20):
        ahead_s, _ = queue.precise_outlook(now + index * 3 * step_s, now)
        assert ahead_s == index + 1


def test_a_job_with_a_tight_objective_leaves_others_their_precision() -> None:
    queue, now = DeadlineQueue(), 1_000.0
    queue.tighten(0.05)
    for away_s, cost_s in ((10.0, 100.0), (1.0, 0.1), (0.05, 0.01)):  # a batch that can wait, and two that cannot
        queue.push(message(1), now + away_s, cost_s)
    assert queue.precise_outlook(now + 0.04, now)[0] == 0.0
    assert queue.precise_outlook(now + 0.06, now)[0] == pytest.approx(0.01)
    assert queue.precise_outlook(now + 1.5, now)[0] == pytest.approx(0.11)
    assert queue.precise_outlook(now + 8.0, now)[0] == pytest.approx(0.11)
    assert queue.precise_outlook(now + 11.0, now)[0] == pytest.approx(100.11)


# --- what a barrier changes -----------------------------------------------------------------------------------------------


def test_only_those_that_are_meant_are_hurried() -> None:
    queue = DeadlineQueue()
    for number, due in [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]:
        queue.push(message(number), due, 0.1)
    queue.hurry("job/a/0", 0.5, lambda each: each.payload >= 3)
    queue.hurry("job/b/0", 0.1, lambda _: True)
    assert queue.first_due() == 0.5
    assert [queue.pop()[0].payload for _ in range(4)] == [3, 4, 1, 2]  # type: ignore[index]


def test_what_is_taken_out_comes_by_deadline_and_is_gone() -> None:
    queue = DeadlineQueue()
    for number, due in [(1, 3.0), (2, 2.0), (3, 1.0)]:
        queue.push(message(number), due, 0.1 * number)
    assert [(each.payload, cost_s) for each, cost_s in queue.take(lambda each: each.payload != 2)] == [
        (3, pytest.approx(0.3)),
        (1, 0.1),
    ]
    assert queue.backlog_s == pytest.approx(0.2)
    assert queue.take(lambda each: each.payload != 2) == []
    assert len(queue) == 1
