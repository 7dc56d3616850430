"""The shape of the benchmark of strategies; how fast anything is on the machine at hand is no matter for a test."""

import pytest

from dirigo.scheduling import STRATEGIES
from dirigo_lab.bench.strategies import NAMES, QUEUED, StrategyCost, StrategyCosts, measure_strategies


@pytest.fixture(scope="module")
def costs() -> StrategyCosts:
    return measure_strategies((3, 40), messages=30, repeats=2, admissions_queued=(5, 50))


def test_every_strategy_is_measured_at_every_length_of_the_queue(costs: StrategyCosts) -> None:
    assert [cost.strategy for cost in costs.costs] == list(NAMES)
    for cost in costs.costs:
        assert list(cost.us) == [3, 40]
        assert min(cost.us.values()) > 0.0
        assert cost.flatness == pytest.approx(cost.us[40] / cost.us[3])


def test_the_admission_test_is_measured_alone(costs: StrategyCosts) -> None:
    assert list(costs.admission_us) == [5, 50]
    assert min(costs.admission_us.values()) > 0.0


def test_what_is_measured_is_there() -> None:
    assert {name.partition(",")[0] for name in NAMES} <= set(STRATEGIES)
    assert max(QUEUED) / min(QUEUED) == 1_000


def test_only_some_have_a_budget() -> None:
    slow = {10: 90.0, 1_000: 91.0}
    assert not StrategyCost("fifo", slow).within_budget()
    assert not StrategyCosts((StrategyCost("reject_send", slow),), {}).within_budget()
    assert StrategyCost("hybrid", slow).within_budget()
