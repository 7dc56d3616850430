"""Barriers on workers on Spark, timed as the experiments do it."""

from __future__ import annotations

import numpy as np
import pytest

import dirigo as dg
from dirigo_lab.experiments.overhead.barrier import KB, Setting
from dirigo_lab.experiments.overhead.on_spark import run_on_spark

ROUNDS = 30


@pytest.mark.acceptance
def test_barriers_are_timed_and_large_states_take_longer() -> None:
    medians = {}
    with dg.Cluster(workers=5) as cluster:
        cluster.wait_ready()
        for state_kb in (1, 4096):
            setting = Setting(4, state_kb * KB)
            outcome = run_on_spark(cluster, setting, ROUNDS, {"state_kb": state_kb}, 0)
            assert outcome.figures["rounds"] >= ROUNDS / 2
            medians[state_kb] = float(np.median(outcome.latencies[0].latency_ms))
    assert medians[1] < 30  # a tenth of a lax objective
    assert medians[4096] > 2 * medians[1]
