"""Where else a message may run: who is in question for an actor, and who is picked."""

from collections import Counter
from random import Random

import pytest

from dirigo.kernel import Worker
from dirigo.scheduling.lessees import (
    LARGE_STATE_BYTES,
    LesseesAllowed,
    Selector,
    at_random,
    least_loaded,
    less_loaded_of_three,
    less_loaded_of_two,
    selector_named,
)
from kernel.scenario import HOME, A, Stage, row

POOL = tuple(range(8))


def at(worker: int = HOME, *, ordered: bool = False, lessees_max: int = 64, pool: tuple[int, ...] = POOL) -> Worker:
    """A worker in a pool; the actor's home is worker 1."""
    made = Stage(worker, ordered=ordered, lessees_max=lessees_max).worker
    made.workers = pool
    made.rng = Random(0)
    return made


def with_state(worker: Worker, size: int) -> Worker:
    stage_of(worker, "x" * size)
    return worker


def stage_of(worker: Worker, word: str) -> None:
    worker.receive(row(word, 1))
    worker.next()
    worker.apply()
    worker.finish()


# --- who is in question ------------------------------------------------------------------------------------------------


def test_the_next_workers_after_the_home_are_in_question() -> None:
    assert LesseesAllowed(3).of(at(), A) == (2, 3, 4)


def test_after_the_last_worker_comes_the_first() -> None:
    assert LesseesAllowed(7).of(at(), A) == (2, 3, 4, 5, 6, 7, 0)


def test_no_worker_is_in_question_twice_and_never_the_home() -> None:
    assert sorted(LesseesAllowed(100).of(at(), A)) == [worker for worker in POOL if worker != HOME]


def test_everybody_sees_the_same_workers_whether_at_home_or_not() -> None:
    spans = {LesseesAllowed(4).of(at(worker), A) for worker in POOL}
    assert spans == {(2, 3, 4, 5)}


def test_ids_need_not_be_contiguous_nor_contain_the_home() -> None:
    assert LesseesAllowed(3).of(at(pool=(0, 3, 9, 40)), A) == (3, 9, 40)


def test_an_actor_alone_in_its_pool_has_nobody() -> None:
    assert LesseesAllowed(3).of(at(pool=(HOME,)), A) == ()


def test_an_ordered_function_runs_nowhere_else() -> None:
    assert LesseesAllowed(3).of(at(ordered=True), A) == ()


def test_a_function_can_have_a_limit_of_its_own() -> None:
    assert LesseesAllowed(5).of(at(lessees_max=2), A) == (2, 3)


@pytest.mark.parametrize("size", [0, 10 * LARGE_STATE_BYTES])
def test_a_function_can_be_kept_at_home_whatever_the_size_of_its_state(size: int) -> None:
    assert LesseesAllowed(5).of(with_state(at(lessees_max=0), size), A) == ()


def test_the_pool_may_change() -> None:
    span, worker = LesseesAllowed(2), at()
    assert span.of(worker, A) == (2, 3)
    worker.workers = (0, 1, 5, 6, 7)
    assert span.of(worker, A) == (5, 6)


@pytest.mark.parametrize(("factor", "lessees"), [(0.5, 6), (2.1, 2), (3.1, 1), (100, 1)])
def test_the_larger_the_state_the_fewer_the_lessees(factor: float, lessees: int) -> None:
    worker = with_state(at(), int(LARGE_STATE_BYTES * factor))
    assert len(LesseesAllowed(6).of(worker, A)) == lessees


def test_a_state_is_looked_at_only_now_and_then() -> None:
    span, worker = LesseesAllowed(6), at()
    assert len(span.of(worker, A)) == 6
    with_state(worker, LARGE_STATE_BYTES * 10)
    assert len(span.of(worker, A)) == 6
    worker.now += 1.0
    assert len(span.of(worker, A)) == 1
    span.forget_job("job")
    assert len(span.of(worker, A)) == 1


def test_a_span_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="an actor with 0 lessees cannot scale; give 1 or more"):
        LesseesAllowed(0)


# --- who is picked -----------------------------------------------------------------------------------------------------


def picked(select: Selector, worker: Worker, among: tuple[int, ...] = (2, 3, 4), times: int = 300) -> Counter[int]:
    return Counter(select(worker, among) for _ in range(times))


def test_by_chance_all_are_picked_about_equally() -> None:
    counts = picked(at_random, at())
    assert set(counts) == {2, 3, 4}
    assert min(counts.values()) > 70


def test_in_turn_all_are_picked_equally() -> None:
    select = selector_named("round_robin")
    assert [select(at(), (2, 3, 4)) for _ in range(6)] == [2, 3, 4, 2, 3, 4]


def test_turns_are_taken_per_strategy() -> None:
    one, other = selector_named("round_robin"), selector_named("round_robin")
    assert [one(at(), (2, 3)), one(at(), (2, 3)), other(at(), (2, 3))] == [2, 3, 2]


@pytest.mark.parametrize("select", [least_loaded, less_loaded_of_two, less_loaded_of_three])
def test_among_equals_chance_decides(select: Selector) -> None:
    assert set(picked(select, at())) == {2, 3, 4}


def test_the_least_loaded_is_picked() -> None:
    worker = at()
    for other, load in ((2, 0.3), (3, 0.1), (4, 0.2)):
        worker.note_load(other, (load, load))
    assert picked(least_loaded, worker) == {3: 300}


def test_urgent_work_counts_first() -> None:
    worker = at()
    for other, load in ((2, (0.0, 9.0)), (3, (0.1, 0.1)), (4, (0.0, 8.0))):
        worker.note_load(other, load)
    assert picked(least_loaded, worker) == {4: 300}


def test_of_two_the_less_loaded_is_picked_and_never_the_most_loaded_of_all() -> None:
    worker = at()
    for other, load in ((2, 0.3), (3, 0.1), (4, 0.2)):
        worker.note_load(other, (load, load))
    counts = picked(less_loaded_of_two, worker)
    assert set(counts) == {3, 4}
    assert counts[3] > counts[4]


def test_of_three_it_is_the_least_loaded_more_often() -> None:
    worker = at()
    workers = tuple(range(2, 10))
    for other in workers:
        worker.note_load(other, (other * 0.1, other * 0.1))
    two = sum(less_loaded_of_two(worker, workers) for _ in range(300))
    three = sum(less_loaded_of_three(worker, workers) for _ in range(300))
    assert three < 0.85 * two


def test_what_is_not_urgent_waits_for_everything() -> None:
    worker = at()
    for other, load in ((2, (0.0, 9.0)), (3, (0.1, 0.1))):
        worker.note_load(other, load)
    assert {less_loaded_of_two(worker, (2, 3)) for _ in range(20)} == {2}
    assert {less_loaded_of_two(worker, (2, 3), is_urgent=False) for _ in range(20)} == {3}


@pytest.mark.parametrize("name", ["random", "round_robin", "least_loaded", "p2c"])
def test_of_one_that_one_is_picked(name: str) -> None:
    assert selector_named(name)(at(), (5,)) == 5


def test_a_load_is_worked_off_as_time_passes_and_grows_by_what_is_sent() -> None:
    worker = at()
    worker.note_load(2, (0.3, 1.0))
    worker.now += 0.2
    assert worker.load(2) == pytest.approx((0.1, 0.8))
    worker.add_load(2, 0.5)
    assert worker.load(2) == pytest.approx((0.6, 1.3))
    worker.now += 5.0
    assert worker.load(2) == (0.0, 0.0)


def test_an_unknown_selector_is_refused() -> None:
    with pytest.raises(ValueError, match="selected by random, round_robin, least_loaded or p2c, not 'wise'"):
        selector_named("wise")
