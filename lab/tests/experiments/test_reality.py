"""The simulated half of ``reality`` goes by what the runtime cost just before, on the very same cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from dirigo_lab.experiments import reality
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Labels, Latencies, Outcome, Scale, Size
from dirigo_lab.experiments.reality import Reality
from dirigo_lab.experiments.window_jobs import on_machine
from experiments.plain_summary import COSTS, summary_of

SLOW = msgspec.structs.replace(COSTS, message_s=0.02)


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No Spark: the sizes of the pools on which something was measured."""
    seen: list[int] = []

    @contextmanager
    def workers_of(_cluster: Any, workers: int) -> Iterator[None]:
        seen.append(workers)
        yield

    def calibrate_costs(_cluster: Any, _told: Any, **_amounts: float) -> RuntimeCosts:
        return SLOW

    def run_jobs(_cluster: Any, _jobs: Any, _strategy: Any, labels: Labels, seed: int, *_times: float) -> Outcome:
        return Outcome(labels, seed, [Latencies.of("maxima", 250.0, [(1.0, 20.0)])])

    monkeypatch.setattr(on_machine, "workers_of", workers_of)
    monkeypatch.setattr(reality, "calibrate_costs", calibrate_costs)
    monkeypatch.setattr(reality, "run_jobs", run_jobs)
    return seen


def test_costs_are_measured_before_each_run_and_simulations_go_by_them(pools: list[int]) -> None:
    experiment = Reality()
    settings = [each for each in experiment.settings(Scale.MACHINE, Size.TINY) if each["load"] == "constant"]
    outcomes = [
        experiment.simulate(labels, 0, Size.TINY, COSTS)
        if experiment.is_simulated(Scale.MACHINE, labels)
        else experiment.run_on_spark(None, labels, 0, Size.TINY)
        for labels in settings
    ]
    assert pools == [2, 4, 2, 4]  # two workers for the costs, then the pool of a strategy
    simulated = next(each for each in outcomes if experiment.is_simulated(Scale.MACHINE, each.labels))
    expected, otherwise = (Reality().simulate(simulated.labels, 0, Size.TINY, costs) for costs in (SLOW, COSTS))
    assert np.array_equal(simulated.latencies[0].latency_ms, expected.latencies[0].latency_ms)
    assert np.median(simulated.latencies[0].latency_ms) > 1.2 * np.median(otherwise.latencies[0].latency_ms)
    assumed = experiment.assumptions(Scale.MACHINE, Size.TINY, COSTS)
    assert any("a hop took 600, 600 microseconds" in text for text in assumed)


def test_a_simulated_window_takes_as_long_to_close_as_was_measured() -> None:
    labels: Labels = {"workers": 4, "load": "constant", "strategy": "fifo", "host": "simulator"}
    soon, later = (
        Reality().simulate(labels, 0, Size.TINY, msgspec.structs.replace(COSTS, closing_s=closing_s, cores=64))
        for closing_s in (0.0001, 0.0101)
    )
    more_ms = np.sort(later.latencies[0].latency_ms) - np.sort(soon.latencies[0].latency_ms)
    assert len(more_ms) == 20
    assert float(more_ms.min()) == pytest.approx(10.0, abs=0.1)  # a worker may have two windows to close
    assert float(np.median(more_ms)) < 15.0


def test_what_was_measured_is_kept_with_the_run(pools: list[int]) -> None:
    labels = Reality().settings(Scale.MACHINE, Size.TINY)[0]
    figures = Reality().run_on_spark(None, labels, 0, Size.TINY).figures
    assert pools == [2, 4]
    assert figures["cost:message_s"] == 0.02
    assert figures["cost:cores"] == 2


def test_a_prediction_that_is_far_off_is_told_as_such(pools: list[int]) -> None:
    experiment = Reality()
    settings = [each for each in experiment.settings(Scale.MACHINE, Size.TINY) if each["load"] == "constant"]

    def predicted(median_ms: float) -> bool:
        outcomes = [
            Outcome(
                labels,
                0,
                [Latencies.of("maxima", 250.0, [(1.0, median_ms if labels["host"] == "simulator" else 20.0)])],
            )
            for labels in settings
        ]
        (claim,) = experiment.claims(Scale.MACHINE, summary_of(outcomes))
        return claim.holds

    assert not pools
    assert predicted(23.9)
    assert predicted(16.1)
    assert not predicted(24.1)
    assert not predicted(15.9)
