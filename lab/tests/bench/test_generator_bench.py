"""The shape of the generator's benchmark; how fast it is on the machine at hand is no matter for a test."""

import pytest

from dirigo_lab.bench.generator import EVENTS_PER_S_LEAST, GeneratorCost, measure_generator


def test_the_generator_is_measured_in_events_of_all_kinds() -> None:
    cost = measure_generator(events=60_000, repeats=2)
    assert cost.events == 60_000
    assert cost.events_per_s == pytest.approx(60_000 / cost.seconds)


def test_the_budget_is_a_least_number_of_events_per_second() -> None:
    events = int(EVENTS_PER_S_LEAST)
    assert GeneratorCost(events, 1.0).within_budget()
    assert not GeneratorCost(events, 1.01).within_budget()
