"""The direction of each claim, in small versions of the experiments: what holds there holds at the paper's scale as well."""

from __future__ import annotations

import numpy as np
import pytest

from dirigo.flow.sources.load_shapes import constant
from dirigo.scheduling import Fifo
from dirigo_lab.experiments.experiment import Claim, Experiment, Scale, Size
from dirigo_lab.experiments.registry import EXPERIMENTS
from dirigo_lab.experiments.simulated_tenants import FlowPool
from dirigo_lab.experiments.window_jobs.bursts import bursts, zipf_shares
from dirigo_lab.experiments.window_jobs.job_flow import flow_of
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.window_job import WindowJob
from experiments.plain_summary import COSTS, simulated


def claims_of(name: str) -> list[Claim]:
    experiment = EXPERIMENTS[name]
    return experiment.claims(Scale.PAPER, simulated(experiment))


def test_sending_directly_scales_better_than_forwarding() -> None:
    better, _ = claims_of("span")
    assert better.holds, better.ours


@pytest.mark.acceptance
def test_under_skew_forwarding_by_objective_beats_sending_directly() -> None:
    below, _ = claims_of("skew")
    assert below.holds, below.ours


def test_on_fewer_workers_reject_send_keeps_what_fifo_loses() -> None:
    fewer, naive, less, gains, faster = claims_of("transient")
    for claim in (fewer, naive, less, gains, faster):
        assert claim.holds, claim.ours


def test_tokens_spread_a_hot_key_and_shield_the_other_job() -> None:
    for claim in claims_of("rate-control"):
        assert claim.holds, claim.ours


def test_nothing_gets_worse_as_the_pool_grows() -> None:
    satisfied, barriers, _ = claims_of("scale")  # the third is about this machine's speed
    assert satisfied.holds, satisfied.ours
    assert barriers.holds, barriers.ours


@pytest.mark.acceptance
def test_the_hybrid_beats_both_modes_under_skew() -> None:
    summary = simulated(EXPERIMENTS["hybrid"])
    medians = {str(row.labels["strategy"]): row["p50"] for row in summary.all(job="maxima")}
    hybrid = medians.pop("hybrid")
    assert hybrid < min(medians.values()), f"{hybrid}, others {medians}"


def test_a_seed_repeats_exactly_and_another_one_differs() -> None:
    experiment = EXPERIMENTS["rate-control"]
    labels = experiment.settings(Scale.PAPER, Size.TINY)[0]
    one, again, other = (experiment.simulate(labels, seed, Size.TINY, COSTS) for seed in (1, 1, 2))
    for before, after in zip(one.latencies, again.latencies, strict=True):
        assert np.array_equal(before.latency_ms, after.latency_ms)
    assert one.figures == again.figures
    assert not np.array_equal(one.latencies[0].latency_ms, other.latencies[0].latency_ms)


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_says_what_it_assumes_and_has_settings_where_it_runs(experiment: Experiment) -> None:
    assert experiment.title
    assert experiment.question.endswith("?")
    for scale in Scale:
        if experiment.runs_at(scale):
            settings = experiment.settings(scale, Size.TINY)
            assert settings
            assert len({tuple(labels.items()) for labels in settings}) == len(settings)


# --- what they are made of -------------------------------------------------------------------------------------------------


def test_bursts_have_the_mean_that_was_asked_for() -> None:
    loads = bursts(8, 100.0, 2.5, 100, 10.0, seed=3)
    assert sum(load.rows_by(10.0) for load in loads) == pytest.approx(8 * 100 * 10)
    peaks = [max(load.rows_by((n + 1) / 10) - load.rows_by(n / 10) for n in range(100)) for load in loads]
    assert max(peaks) > 2.5 * 10


def test_shares_follow_zipfs_law() -> None:
    shares = zipf_shares(4, 1.0)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares / shares[0]).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert zipf_shares(4, 0.0).tolist() == [0.25] * 4


@pytest.mark.parametrize("shuffles", [False, True])
@pytest.mark.parametrize("has_whole", [False, True])
def test_a_job_has_the_same_results_as_a_flow_of_real_operators(shuffles: bool, has_whole: bool) -> None:
    job = WindowJob(
        "maxima",
        [constant(40.0)] * 4,
        range(4),
        2,
        0.001,
        0.004,
        0.5,
        1.0,
        shuffles=shuffles,
        has_whole=has_whole,
    )
    outcome = SimulatedPool(4, [job], Fifo(), COSTS, 0).run({}, 3.0, 0.0)
    flows = FlowPool([flow_of(job, 3.0)], "fifo", 4, 0, costs=COSTS)
    flows.run()
    expected = 6 * (1 if has_whole else 2)
    assert len(outcome.latencies[0].latency_ms) == expected
    assert len(flows.results["maxima"]) == expected
    assert outcome.figures["messages"] >= 2 * 4 * 40 * 3 - 8
