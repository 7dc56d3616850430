"""Simulations with a strategy: by name, as a class, as an object, or made for each worker."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import dirigo as dg
from dirigo.kernel import PolicyError, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling import STRATEGIES, Edf, Fifo, StrategyError
from dirigo.testing import Simulation, run

ROWS = [{"n": n, "k": n % 7, "at": n * 10} for n in range(3_000)]


def counting(**options: Any) -> dg.Dataflow:
    flow = dg.Dataflow("counting", **options)
    source = dg.from_iterable(ROWS, {"n": int, "k": int, "at": int}, time="at", name="rows")
    flow.source(source).key_by("k").window(dg.Tumbling("1s")).aggregate(n=dg.count(), sum=dg.sum("n")).sink(dg.to_memory())
    return flow


def sorted_rows(simulation: Simulation) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in simulation.rows())


class LastFirst(dg.Strategy):
    """What came last runs first, as far as the protocol lets it."""

    def __init__(self) -> None:
        self.kept: list[RunnableMessage] = []

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self.kept.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self.kept.pop() if self.kept else None


class Lost(LastFirst):
    """Sends messages to nowhere."""

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        return 77


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_results_do_not_depend_on_the_strategy(strategy: str) -> None:
    expected = sorted_rows(run(counting()))
    busy = counting(slo=dg.SLO(latency="20ms"))
    busy.emulate("rows", per_row="10ms")  # the source gives more than its worker can do
    outcome = run(busy, workers=3, strategy=strategy, rows_max=50)
    assert sorted_rows(outcome) == expected
    if strategy in ("fifo", "edf"):
        assert not outcome.elsewhere
    if strategy in ("reject_send", "reject_send_random", "chaos"):
        assert outcome.elsewhere["rows"]


@pytest.mark.parametrize("strategy", [LastFirst, LastFirst(), Edf(), lambda *_: LastFirst()])
def test_a_strategy_may_be_a_class_an_object_or_made_for_each_worker(strategy: Any) -> None:
    assert sorted_rows(run(counting(), workers=2, strategy=strategy)) == sorted_rows(run(counting()))


def test_an_object_is_a_pattern_that_no_worker_works_with() -> None:
    pattern = LastFirst()
    simulation = Simulation(counting(), workers=2, strategy=pattern)
    simulation.advance("1s")
    strategies = [worker.strategy for worker in simulation.cluster.workers.values()]
    assert len({id(strategy) for strategy in strategies}) == 2
    assert pattern.kept == []


def test_whoever_makes_them_is_told_the_worker_and_has_a_generator_of_its_own() -> None:
    drawn: dict[WorkerId, float] = {}

    def made(worker: WorkerId, rng: Random) -> Fifo:
        drawn[worker] = rng.random()
        return Fifo()

    Simulation(counting(), workers=3, strategy=made)
    assert sorted(drawn) == [0, 1, 2]
    assert len(set(drawn.values())) == 3


def test_a_strategy_of_a_users_own_is_watched() -> None:
    with pytest.raises(PolicyError, match=r"Lost\.enqueue returned 77, which is no worker"):
        run(counting(), workers=2, strategy=Lost)


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ("fastest", "there is no strategy 'fastest'; choose fifo, edf"),
        ("no_such_module:Any", "the strategy 'no_such_module:Any' cannot be imported: ModuleNotFoundError"),
        ("dirigo.scheduling:Nothing", "the module 'dirigo.scheduling' has no 'Nothing'"),
        (dict, "is not a strategy; derive a class from dg.Strategy"),
        (5, "5 is not a strategy"),
    ],
)
def test_what_is_no_strategy_is_refused_in_one_sentence(strategy: Any, sentence: str) -> None:
    with pytest.raises(StrategyError, match=sentence):
        Simulation(counting(), strategy=strategy)
