"""The shape of the benchmark of states per key: all forms, and all others, count the same."""

from __future__ import annotations

import pytest

from dirigo_lab.bench.flows.keyed_state import FORMS, KeyedStateCost, KeyedStateCosts, measure_keyed_state
from dirigo_lab.bench.flows.keyed_state_process import spark_costs

EVENTS = 5_000


def test_both_forms_count_the_same_for_every_number_of_keys() -> None:
    costs = measure_keyed_state((5, 200), EVENTS, repeats=1).costs
    assert [(cost.form, cost.keys) for cost in costs] == [(form, keys) for form in FORMS for keys in (5, 200)]
    assert costs[0].total == costs[2].total > costs[1].total == costs[3].total > EVENTS
    assert all(cost.rows_per_s == pytest.approx(EVENTS / cost.seconds) for cost in costs)


def test_many_keys_may_cost_two_and_a_half_times_what_few_do() -> None:
    def costs(seconds: float) -> KeyedStateCosts:
        fast = KeyedStateCost("batch form", 10, 1_000, 1.0, 1)
        return KeyedStateCosts((fast, KeyedStateCost("batch form", 100_000, 1_000, seconds, 1)))

    assert costs(2.5).within_budget()
    assert not costs(2.6).within_budget()


def test_bytewax_counts_the_same() -> None:
    found = measure_keyed_state((5,), EVENTS, repeats=1, peers=["bytewax"])
    if found.missing:
        pytest.skip("bytewax is not installed")
    assert [(peer.form, peer.total) for peer in found.peers] == [("bytewax stateful_map", found.costs[0].total)]


def test_a_peer_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dirigo_lab.bench.flows.keyed_state.find_spec", lambda _: None)
    found = measure_keyed_state((5,), EVENTS, repeats=1, peers=["bytewax"])
    assert (found.peers, found.missing) == ((), ("bytewax",))


@pytest.mark.acceptance
def test_spark_counts_the_same() -> None:
    (expected, _) = measure_keyed_state((5,), EVENTS, repeats=1).costs
    assert [cost.total for cost in spark_costs(5, EVENTS, repeats=1)] == [expected.total] * 2
