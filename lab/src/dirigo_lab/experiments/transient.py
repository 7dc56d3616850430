"""``transient``: two jobs with bursts share fewer and fewer workers (figure 5 of the paper)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dirigo.flow.sources.load_shapes import constant
from dirigo.scheduling import Strategy, strategy_named
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Outcome, ResultRow, Scale, Size
from dirigo_lab.experiments.reporting.drawing import distributions
from dirigo_lab.experiments.window_jobs import on_machine
from dirigo_lab.experiments.window_jobs.bursts import bursts
from dirigo_lab.experiments.window_jobs.calibrated import calibrated_s
from dirigo_lab.experiments.window_jobs.on_spark import run_jobs
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

PARALLELISM = 128
ALPHAS = (5.0, 3.3, 2.5)
ISOLATED = 2 * PARALLELISM
SAVED = 179  # 30 % fewer
_TINY_PARALLELISM = 16
UTILISATION = 0.35  # of the workers when jobs are isolated
BURST_MS = 100
_SECONDS = {Size.FULL: 20.0, Size.QUICK: 3.0, Size.TINY: 4.0}
_WARM_UP_S = 2.0
_LESSEES_MAX = 16
_STRATEGIES = ("fifo", "reject_send")
_SHARE = {"maxima": (0.001, 0.004), "counts": (0.0025, 0.0025)}  # seconds of a map and of a window function per message


# On Spark: two jobs of half as many sources as there are workers. With all workers, FIFO has one job on each half of them.
_STEPS_ON_SPARK = (8, 6, 4)
_SAVED_ON_SPARK = 6
_HALF_ON_SPARK = on_machine.WORKERS // 2


class Transient(Experiment):
    """The number of workers, and how heavy the tail of the load is, under FIFO and under REJECTSEND."""

    name: ClassVar = "transient"
    title: ClassVar = "Bursts on fewer workers"
    question: ClassVar = (
        "How many workers do two jobs with bursts need if messages are scheduled one by one, and how many if not?"
    )
    spark_workers: ClassVar = on_machine.WORKERS

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        steps = {
            Size.FULL: (ISOLATED, 218, SAVED, PARALLELISM),
            Size.QUICK: (ISOLATED, SAVED),
            Size.TINY: (2 * _TINY_PARALLELISM, round(1.4 * _TINY_PARALLELISM)),
        }
        if scale is Scale.MACHINE:
            steps = dict.fromkeys(Size, _STEPS_ON_SPARK)
        alphas = ALPHAS if size is not Size.TINY else ALPHAS[::2]  # two at least, or their order would say nothing
        return [
            {"alpha": alpha, "workers": workers, "strategy": name}
            for alpha in alphas
            for workers in steps[size]
            for name in _STRATEGIES
        ]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        return share_workers(
            labels,
            int(labels["workers"]),
            float(labels["alpha"]),
            strategy_named(str(labels["strategy"])),
            seed,
            size,
            costs,
        )

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        workers, strategy = int(labels["workers"]), str(labels["strategy"])
        seconds = on_machine.WARM_UP_S + on_machine.SECONDS[size]
        jobs = [_job_on_spark(cluster, query, float(labels["alpha"]), seconds, seed) for query in _SHARE]
        is_isolated = workers == on_machine.WORKERS and strategy == "fifo"
        with on_machine.workers_of(cluster, _HALF_ON_SPARK if is_isolated else workers):
            if not is_isolated:
                return run_jobs(cluster, jobs, strategy, labels, seed, seconds, on_machine.WARM_UP_S)
            alone = [run_jobs(cluster, [each], strategy, labels, seed, seconds, on_machine.WARM_UP_S) for each in jobs]
        latencies = [each for outcome in alone for each in outcome.latencies]
        return Outcome(labels, seed, latencies, alone[0].figures)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        steps = [int(workers) for workers in summary.values_of("workers")]
        isolated = max(steps)
        saved = min(steps, key=lambda workers: abs(workers - 0.7 * isolated))
        alphas = [float(alpha) for alpha in summary.values_of("alpha")]
        found = {alpha: _Found(summary, alpha) for alpha in alphas}
        fewer = [
            found[alpha].satisfaction("reject_send", saved) - found[alpha].satisfaction("fifo", isolated) for alpha in alphas
        ]
        lost_fifo = [
            found[alpha].satisfaction("fifo", isolated) - found[alpha].satisfaction("fifo", saved) for alpha in alphas
        ]
        lost = [
            found[alpha].satisfaction("reject_send", isolated) - found[alpha].satisfaction("reject_send", saved)
            for alpha in alphas
        ]
        slower_fifo = [found[alpha].latency("fifo", saved) / found[alpha].latency("fifo", isolated) for alpha in alphas]
        slower = [
            found[alpha].latency("reject_send", saved) / found[alpha].latency("reject_send", isolated) for alpha in alphas
        ]
        best = [found[alpha].best_gain() for alpha in alphas]
        faster = [found[alpha].best_ratio("p50") for alpha in alphas]
        tails = [found[alpha].best_ratio("p99") for alpha in alphas]
        by_alpha = ", ".join(f"{alpha:g}" for alpha in alphas)
        return [
            Claim(
                (
                    f"with {1 - saved / isolated:.0%} fewer workers REJECTSEND satisfies as much as isolated FIFO, or more "
                    f"(alpha {by_alpha})"
                ),
                "equal, +5, +12 points",
                f"{_points(fewer)} points",
                all(gain >= -0.01 for gain in fewer) and fewer == sorted(fewer),
            ),
            Claim(
                f"naive sharing with {1 - saved / isolated:.0%} fewer workers costs FIFO satisfaction, and time",
                "15 to 34 points; median up to 4.5 times",
                f"{_points(lost_fifo)} points; median {_times(slower_fifo)} times",
                all(each > 0.0 for each in lost_fifo),
            ),
            Claim(
                "REJECTSEND loses less",
                "1 to 14 points; median up to 1.8 times",
                f"{_points(lost)} points; median {_times(slower)} times",
                all(ours < naive for ours, naive in zip(lost, lost_fifo, strict=True)),
            ),
            Claim(
                f"the burstier, the more REJECTSEND gains (down to {min(steps)} workers)",
                "up to 15, 23, 46 points",
                f"up to {_points(best)} points",
                best == sorted(best) and best[0] > 0.0,
            ),
            Claim(
                "latencies are lower as well, the tail too",
                "median up to 2, 2.7, 1.8 times",
                f"median up to {_times(faster)} times, p99 up to {_times(tails)} times",
                all(ratio > 1.0 for ratio in (*faster, *tails)),
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        alphas = summary.values_of("alpha")
        axes = None
        for number, alpha in enumerate(alphas):
            axes = figure.add_subplot(len(alphas), 1, number + 1, sharey=axes)
            distributions(
                axes,
                summary.all(job="maxima", alpha=alpha),
                x=lambda row: f"{row.labels['workers']}",
                series=lambda row: str(row.labels["strategy"]),
                satisfaction=True,
            )
            axes.set_title(f"maxima, alpha {alpha:g}", loc="left", fontsize=10)
            axes.set_ylabel("latency of results, ms")
        assert axes is not None
        axes.set_xlabel("workers")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        if scale is Scale.MACHINE:
            return [
                *on_machine.assumptions(),
                (
                    f"Two jobs with {_HALF_ON_SPARK} sources and window functions each, as in the simulator; all "
                    f"{on_machine.WORKERS} "
                    f"workers are busy for {UTILISATION:.0%} of the time, with {_SAVED_ON_SPARK} for "
                    f"{UTILISATION * on_machine.WORKERS / _SAVED_ON_SPARK:.0%}. With {on_machine.WORKERS} workers under "
                    "FIFO, each job "
                    f"has {_HALF_ON_SPARK} of them for itself."
                ),
                "Objectives are twice the p99 of each job alone at half utilisation.",
            ]
        return [
            (
                f"maxima: {PARALLELISM} sources, maps and local maxima, and one global maximum; counts: {PARALLELISM} "
                "sources and maps, "
                f"shuffled to {PARALLELISM} counting functions, each with a result per window. Windows of maxima are 0.5 s, "
                "of counts 1 s long. Both are over plain numbers: the shapes of Nexmark's q7 and q12, not these queries."
            ),
            (
                f"A message takes 5 ms in all; with {ISOLATED} workers they are busy for {UTILISATION:.0%} of the time, "
                f"with {SAVED} "
                f"for {UTILISATION * ISOLATED / SAVED:.0%}, with {PARALLELISM} for "
                f"{UTILISATION * ISOLATED / PARALLELISM:.0%}."
            ),
            f"Each source has a new rate every {BURST_MS} ms, drawn from a Pareto distribution for each source alone.",
            (
                f"Objectives are twice the p99 of each job alone on {PARALLELISM} workers with a constant load that keeps "
                "them busy for half of the time."
            ),
            "Satisfaction is the mean of the two jobs' shares of results in time; latencies compared are those of maxima.",
        ]


def share_workers(
    labels: Labels, workers: int, alpha: float, strategy: Strategy, seed: int, size: Size, costs: RuntimeCosts
) -> Outcome:
    """Both jobs on so many workers, with their homes apart as far as there is room."""
    seconds = _SECONDS[size] + _WARM_UP_S
    sources = _TINY_PARALLELISM if size is Size.TINY else PARALLELISM
    jobs = [
        job(
            query,
            bursts(sources, rate(query, costs), alpha, BURST_MS, seconds, 1_000 * seed + number),
            [(number * sources + index) % workers for index in range(sources)],
            objective_s(query, costs, sources),
        )
        for number, query in enumerate(_SHARE)
    ]
    return SimulatedPool(workers, jobs, strategy, costs, seed).run(labels, seconds, _WARM_UP_S)


class _Found:
    """What was found for one alpha."""

    def __init__(self, summary: ExperimentSummary, alpha: float) -> None:
        self._summary = summary
        self._alpha = alpha

    def _row(self, strategy: str, workers: int, query: str) -> ResultRow:
        return self._summary.one(job=query, alpha=self._alpha, workers=workers, strategy=strategy)

    def satisfaction(self, strategy: str, workers: int) -> float:
        return float(np.mean([self._row(strategy, workers, query)["satisfaction"] for query in _SHARE]))

    def latency(self, strategy: str, workers: int, value: str = "p50") -> float:
        return self._row(strategy, workers, "maxima")[value]

    def _workers(self) -> list[int]:
        return [int(workers) for workers in self._summary.values_of("workers")]

    def best_gain(self) -> float:
        return max(self.satisfaction("reject_send", each) - self.satisfaction("fifo", each) for each in self._workers())

    def best_ratio(self, value: str) -> float:
        return max(self.latency("fifo", each, value) / self.latency("reject_send", each, value) for each in self._workers())


def rate(query: str, costs: RuntimeCosts) -> float:
    """Messages per second of one source, when each has a worker for itself."""
    return UTILISATION / (sum(_SHARE[query]) + 2 * costs.message_s)


def job(query: str, loads: Any, homes: Any, objective: float) -> WindowJob:
    map_s, window_s = _SHARE[query]
    is_counts = query == "counts"
    return WindowJob(
        query,
        loads,
        homes,
        len(loads),
        map_s,
        window_s,
        1.0 if is_counts else 0.5,
        objective,
        shuffles=is_counts,
        has_whole=not is_counts,
        map_lessees_max=_LESSEES_MAX,
        window_lessees_max=_LESSEES_MAX,
    )


@lru_cache(maxsize=8)
def objective_s(query: str, costs: RuntimeCosts, sources: int = PARALLELISM) -> float:
    return calibrated_s(job(query, [constant(1.0)] * sources, range(sources), 0.0), sources, costs)


def _job_on_spark(cluster: Any, query: str, alpha: float, seconds: float, seed: int) -> WindowJob:
    per_s = on_machine.rate(_HALF_ON_SPARK, UTILISATION) / _HALF_ON_SPARK
    number = list(_SHARE).index(query)
    loads = bursts(_HALF_ON_SPARK, per_s, alpha, BURST_MS, seconds, 1_000 * seed + number)
    is_counts = query == "counts"
    made = on_machine.window_job(query, loads, _HALF_ON_SPARK, 60.0, shuffles=is_counts, has_whole=not is_counts)
    with on_machine.workers_of(cluster, _HALF_ON_SPARK):
        return replace(made, objective_s=on_machine.calibrated_s(cluster, made, _HALF_ON_SPARK))


def _points(shares: list[float]) -> str:
    return ", ".join(f"{100 * share:+.1f}" for share in shares)


def _times(ratios: list[float]) -> str:
    return ", ".join(f"{ratio:.1f}" for ratio in ratios)
