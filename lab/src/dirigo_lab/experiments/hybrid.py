"""``hybrid``: our own strategy, which switches between the two modes, against both of them where each is at its best."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

from dirigo.scheduling import DirectSend, DirectSendP2C, DirectSendRandom, Hybrid, RejectSend, Strategy
from dirigo_lab.experiments import skew, span, transient
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import (
    Claim,
    Experiment,
    ExperimentSummary,
    Label,
    Labels,
    Outcome,
    ResultRow,
    Scale,
    Size,
)
from dirigo_lab.experiments.reporting.drawing import distributions
from dirigo_lab.experiments.window_jobs import on_machine
from dirigo_lab.experiments.window_jobs.calibrated import calibrated_s
from dirigo_lab.experiments.window_jobs.on_spark import run_jobs
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.spreading_windows import spreading_windows

_SCENARIOS = {Size.FULL: ("span", "skew", "transient"), Size.QUICK: ("span", "skew"), Size.TINY: ("skew",)}
_STRATEGIES: dict[str, type[RejectSend | DirectSend | DirectSendP2C | Hybrid]] = {
    "reject_send": RejectSend,
    "direct_send": DirectSend,
    "direct_send_p2c": DirectSendP2C,
    "hybrid": Hybrid,
}
_OTHERS: dict[str, Experiment] = {each.name: each for each in (skew.Skew(), transient.Transient())}
_FUNCTIONS, _INSTANCES = span.SPANS[-1]
_ALPHA = transient.ALPHAS[-1]
_RESULTS = {Size.FULL: 1_000, Size.QUICK: 20, Size.TINY: 20}
_WARM_UP_S = 1.0
_TINY_WORKERS = 32


class HybridContest(Experiment):
    """Three experiments in the setting that is hardest for one of the modes."""

    name: ClassVar = "hybrid"
    title: ClassVar = "Both modes in one strategy"
    question: ClassVar = "Is there a strategy that is as good as the better of the two modes, whichever that is?"
    spark_workers: ClassVar = on_machine.WORKERS

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        scenarios = _SCENARIOS[size] if scale is Scale.PAPER else _SCENARIOS[Size.TINY]
        return [{"scenario": scenario, "strategy": name} for scenario in scenarios for name in _STRATEGIES]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        if (other := self.same_as(labels, size)) is not None:  # by the other's own code, so that it stays the same
            name, theirs = other
            return replace(_OTHERS[name].simulate(theirs, seed, size, costs), labels=labels)
        kind = _STRATEGIES[str(labels["strategy"])]
        if labels["scenario"] == "transient":
            return transient.share_workers(labels, transient.SAVED, _ALPHA, kind(), seed, size, costs)
        if labels["scenario"] == "skew":
            strategy: Strategy = kind(skew.INSTANCES - 1)
            workers = _TINY_WORKERS if size is Size.TINY else skew.WORKERS
            job = skew.skewed(1.0 if size is Size.TINY else skew.EXPONENTS[-1], costs, workers)
        else:
            strategy = kind(_INSTANCES - 1)
            job, workers = (
                span.local_maxima(span.WORKERS, _FUNCTIONS, span.UTILISATION, costs, _span_objective_s(costs)),
                span.WORKERS,
            )
        pool = SimulatedPool(workers, [job], strategy, costs, seed)
        return pool.run(labels, _WARM_UP_S + (_RESULTS[size] + 1) * job.window_every_s, _WARM_UP_S)

    def same_as(self, labels: Labels, size: Size) -> tuple[str, Labels] | None:
        if size is not Size.FULL or labels["strategy"] != "reject_send":  # smaller ones are shorter here than there
            return None
        others: dict[Label, tuple[str, Labels]] = {
            "skew": ("skew", {"exponent": skew.EXPONENTS[-1], "strategy": "reject_send"}),
            "transient": ("transient", {"alpha": _ALPHA, "workers": transient.SAVED, "strategy": "reject_send"}),
        }
        return others.get(labels["scenario"])

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        strategy = spreading_windows(_STRATEGIES[str(labels["strategy"])](skew.INSTANCES_ON_SPARK - 1))
        job = skew.skewed_on_spark(cluster, skew.EXPONENTS_ON_SPARK[-1])
        seconds = on_machine.WARM_UP_S + on_machine.SECONDS[size]
        return run_jobs(cluster, [job], strategy, labels, seed, seconds, on_machine.WARM_UP_S)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        claims = []
        for scenario in summary.values_of("scenario"):
            rows = {name: _row(summary, str(scenario), name) for name in _STRATEGIES}
            told = "; ".join(
                f"{name} {row['satisfaction']:.1%} in time, p50 {row['p50']:,.0f}, p99 {row['p99']:,.0f} ms"
                for name, row in rows.items()
            )
            ours = rows.pop("hybrid")
            claims.append(
                Claim(
                    f"{scenario}: hybrid is as good as the better of the two modes",
                    "(ours)",
                    told,
                    ours["satisfaction"] >= max(row["satisfaction"] for row in rows.values()) - 0.01
                    and ours["p50"] <= 1.1 * min(row["p50"] for row in rows.values()),
                )
            )
        return claims

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        axes = figure.add_subplot(1, 1, 1)
        rows = [_row(summary, str(scenario), name) for scenario in summary.values_of("scenario") for name in _STRATEGIES]
        distributions(
            axes,
            rows,
            x=lambda row: str(row.labels["scenario"]),
            series=lambda row: str(row.labels["strategy"]),
            satisfaction=True,
        )
        axes.set_ylabel("latency of results, ms")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        if scale is Scale.MACHINE:
            return [*on_machine.assumptions(), f"As in skew, with an exponent of {skew.EXPONENTS_ON_SPARK[-1]:g}."]
        return [
            (
                f"span with {_FUNCTIONS} functions on {_INSTANCES} workers each, skew with an exponent of "
                f"{skew.EXPONENTS[-1]:g}, and "
                f"transient with {transient.SAVED} workers and alpha {_ALPHA:g} (its maxima), each as in the experiment of "
                "that name."
            ),
            "span has an objective here: twice the p99 at constant load and half utilisation.",
        ]


def _row(summary: ExperimentSummary, scenario: str, strategy: str) -> ResultRow:
    return summary.one(job="maxima", scenario=scenario, strategy=strategy)


@lru_cache(maxsize=8)
def _span_objective_s(costs: RuntimeCosts) -> float:
    even = span.local_maxima(span.WORKERS, _FUNCTIONS, 0.5, costs, 0.0)
    return calibrated_s(even, span.WORKERS, costs, DirectSendRandom(_INSTANCES - 1))
