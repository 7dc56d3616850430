"""A summary of outcomes without Spark, for tests that look at claims only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Experiment, ExperimentSummary, Outcome, ResultRow, Scale, Size, Spread

COSTS = RuntimeCosts(hop_s=0.0006, fetch_s=0.00007, message_s=0.0001, critical_s=0.0003, state_bytes_per_s=250e6)


def simulated(experiment: Experiment, size: Size = Size.TINY) -> ExperimentSummary:
    """All settings of an experiment, once each."""
    settings = experiment.settings(Scale.PAPER, size)
    return summary_of(experiment.simulate(labels, 0, size, COSTS) for labels in settings)


def summary_of(outcomes: Iterable[Outcome]) -> ExperimentSummary:
    all_of_them = list(outcomes)
    rows = []
    for outcome in all_of_them:
        for latencies in outcome.latencies:
            values = {f"p{rank}": _once(np.percentile(latencies.latency_ms, rank)) for rank in (5, 25, 50, 75, 95, 99)}
            values["satisfaction"] = _once((latencies.latency_ms <= latencies.objective_ms).mean())
            rows.append(ResultRow(outcome.labels, latencies.job, len(latencies.latency_ms), values))
        rows.append(ResultRow(outcome.labels, "", 0, {name: _once(value) for name, value in outcome.figures.items()}))
    return ExperimentSummary(rows, all_of_them)


def _once(value: float) -> Spread:
    return Spread(float(value), float(value), float(value))
