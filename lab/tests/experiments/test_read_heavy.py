"""Reads with and without a replica, in the simulator: the direction of each claim must show."""

import numpy as np

from dirigo_lab.experiments.experiment import Scale, Size
from dirigo_lab.experiments.read_heavy.load import READ, READS, TIME, UPDATE, UPDATES, UPDATES_PER_S, arrivals
from dirigo_lab.experiments.read_heavy.read_heavy import WITH, WITHOUT, ReadHeavy
from experiments.plain_summary import COSTS, simulated

EXPERIMENT = ReadHeavy()


def test_with_a_replica_reads_stay_quick_and_without_they_hold_everybody_up() -> None:
    summary = simulated(EXPERIMENT)
    claims = EXPERIMENT.claims(Scale.PAPER, summary)
    assert [claim.holds for claim in claims] == [True, True, True]
    most = summary.values_of("reads_per_s")[-1]
    with_replica = summary.one(job=UPDATES, reads=WITH, reads_per_s=most)
    without = summary.one(job=UPDATES, reads=WITHOUT, reads_per_s=most)
    assert with_replica["p50"] < without["p50"] / 10


def test_every_update_and_every_read_is_counted() -> None:
    for labels in EXPERIMENT.settings(Scale.PAPER, Size.TINY):
        outcome = EXPERIMENT.simulate(labels, 3, Size.TINY, COSTS)
        came = [kind for _, kind in arrivals(float(labels["reads_per_s"]), 5.0, 3)]
        results = {latencies.job: len(latencies.latency_ms) for latencies in outcome.latencies}
        assert results == {READS: came.count(READ), UPDATES: came.count(UPDATE)}


def test_the_load_is_what_it_says_and_in_order() -> None:
    came = list(arrivals(100, 50.0, 0))
    kinds = [kind for _, kind in came]
    assert [at_s for at_s, _ in came] == sorted(at_s for at_s, _ in came)
    assert kinds.count(TIME) == 50
    assert np.isclose(kinds.count(READ) / 50, 100, rtol=0.1)
    assert np.isclose(kinds.count(UPDATE) / 50, UPDATES_PER_S, rtol=0.1)
