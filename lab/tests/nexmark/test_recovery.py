"""Queries go on from snapshots as if nothing had happened, whenever they crash.

A few run with the tests; all of them, with many seeds, with ``make acceptance`` (the marker ``acceptance``).
"""

import pytest

from dirigo import Dataflow, to_memory
from dirigo.testing import Recoveries, check_recovery
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables

EVENTS, RATE = 2_000, 40
STRATEGIES = ["chaos", "reject_send"]
NAMES = ["q4", "q5", "q6", "q7", "q8", "q9", "q11", "q12_event", "q18"]
SOME, MORE_SEEDS = ["q5", "q8", "q12_event"], 40


def check(name: str, seeds: int) -> Recoveries:
    flow = Dataflow(name, splits=2)
    QUERIES[name].function(flow, GeneratedTables(EVENTS, RATE, block_events=100)).sink(to_memory(name="results"))
    return check_recovery(flow, seeds=seeds, strategies=STRATEGIES)


@pytest.mark.parametrize("name", SOME)
def test_a_query_recovers(name: str) -> None:
    assert check(name, seeds=2)["from a snapshot"]


@pytest.mark.acceptance
@pytest.mark.parametrize("name", NAMES)
def test_a_query_recovers_at_many_moments(name: str) -> None:
    assert check(name, MORE_SEEDS)["from a snapshot"] > MORE_SEEDS // 2
