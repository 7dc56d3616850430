"""Service-level objectives as users write them."""

from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from typing import Any

import pytest

import dirigo as dg
from dirigo.flow.api.slo import SLO
from dirigo.flow.errors import FlowError
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.kernel import JobProperties, Objective


def test_a_latency_alone_is_an_objective() -> None:
    slo = SLO(latency="200ms")
    assert slo.latency_ms == 200
    assert slo.throughput_per_s is None
    assert slo.target == 0.99
    assert slo.weight == 1.0


@pytest.mark.parametrize(
    ("throughput", "expected"),
    [("200/s", 200.0), ("50k/s", 50_000.0), ("50K / s", 50_000.0), ("1.5M/s", 1_500_000.0), (1_000, 1_000.0), (0.5, 0.5)],
)
def test_rates_are_read(throughput: Any, expected: float) -> None:
    assert SLO(throughput=throughput).throughput_per_s == expected


def test_both_may_be_given() -> None:
    slo = SLO(latency=timedelta(seconds=1), throughput="1k/s", target=1, weight=3)
    assert (slo.latency_ms, slo.throughput_per_s) == (1_000, 1_000.0)


def test_strategies_see_all_of_it() -> None:
    slo = SLO(latency="250ms", throughput="1k/s", target=0.9, weight=3)
    assert slo.objective == Objective(0.25, 1_000.0, 0.9)
    flow = dg.Dataflow("promised", slo=slo, labels={"team": "ads"})
    flow.source(dg.from_iterable([{"n": 1}])).sink(dg.to_memory())
    jobs = {spec.job for spec in BoundJob(flow, name="again").specs()}
    assert jobs == {JobProperties("again", "again", slo.objective, 3.0, {"team": "ads"})}


def test_an_objective_without_any_promise_is_refused() -> None:
    with pytest.raises(FlowError, match="give a latency, a throughput or both"):
        SLO()


@pytest.mark.parametrize("throughput", ["fast", "50k", "50k/min", "50 G/s", "-5/s", "", True, [1]])
def test_what_is_no_rate_is_refused(throughput: Any) -> None:
    with pytest.raises(FlowError, match=r"SLO throughput: .* is not a rate; write it like '200/s'"):
        SLO(throughput=throughput)


@pytest.mark.parametrize("throughput", ["0/s", 0, -1.0, math.inf, math.nan])
def test_rates_that_cannot_be_met_are_refused(throughput: Any) -> None:
    with pytest.raises(FlowError, match="SLO throughput"):
        SLO(throughput=throughput)


@pytest.mark.parametrize("latency", ["0s", "soon", 5])
def test_what_is_no_latency_is_refused(latency: Any) -> None:
    with pytest.raises(FlowError, match="SLO latency"):
        SLO(latency=latency)


@pytest.mark.parametrize("target", [0, 1.01, -0.5, math.nan, "99%", True])
def test_a_target_is_a_share(target: Any) -> None:
    with pytest.raises(FlowError, match="SLO target"):
        SLO(latency="1s", target=target)


@pytest.mark.parametrize("weight", [0, -1, math.inf, math.nan, "heavy"])
def test_a_weight_is_a_number_above_zero(weight: Any) -> None:
    with pytest.raises(FlowError, match="SLO weight"):
        SLO(latency="1s", weight=weight)


def test_an_objective_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SLO(latency="1s").weight = 2.0  # type: ignore[misc]
