"""Random flows against plain Python: whatever the operators, the batches and the disorder, the rows are the same.

A few seeds run with the tests; hundreds more with ``make acceptance`` (the marker ``acceptance``). To look at one alone, run
``pytest tests/flow/test_random_flows.py -k "python[17]"``.
"""

from dataclasses import replace

import pytest

from flow.random_flows.comparison import difference
from flow.random_flows.generator import OPERATORS, random_flow
from flow.random_flows.late_flows import late_difference

SEEDS = range(40)
MORE_SEEDS, SEEDS_PER_ITEM = range(1_000, 1_400), 50
LATE_SEEDS, MORE_LATE_SEEDS = range(12), range(1_000, 1_100)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_flow_equals_plain_python(seed: int) -> None:
    found = difference(random_flow(seed))
    assert found is None, found


@pytest.mark.acceptance
@pytest.mark.parametrize("first", MORE_SEEDS[::SEEDS_PER_ITEM])
def test_many_random_flows_equal_plain_python(first: int) -> None:
    found = [difference(random_flow(seed)) for seed in range(first, first + SEEDS_PER_ITEM)]
    differences = [each for each in found if each is not None]
    assert not differences, "\n\n".join(differences)


@pytest.mark.parametrize("seed", LATE_SEEDS)
def test_what_comes_late_does_not_depend_on_where_things_run(seed: int) -> None:
    found = late_difference(seed)
    assert found is None, found


@pytest.mark.acceptance
def test_in_many_flows_what_comes_late_does_not_depend_on_where_things_run() -> None:
    differences = [found for seed in MORE_LATE_SEEDS if (found := late_difference(seed)) is not None]
    assert not differences, "\n\n".join(differences)


def test_every_operator_is_in_several_of_the_flows() -> None:
    drawn = [name for seed in SEEDS for name in random_flow(seed).operators]
    assert {operator.__name__ for operator in OPERATORS if drawn.count(operator.__name__) < 2} == set()


def test_a_wrong_row_is_told_with_the_seed_and_the_operators() -> None:
    flow = random_flow(SEEDS[0])
    sink, made = list(flow.expected.items())[-1]
    flow.expected[sink] = replace(made, rows=[*made.rows, {"made": "up"}])
    found = difference(flow)
    assert found is not None
    for part in (f"'{sink}' of the flow of seed {SEEDS[0]}", "1 rows missing\n    {'made': 'up'}", "0 rows too many"):
        assert part in found
    assert all(operator in found for operator in flow.operators)
