"""``rate-control``: tokens per job and worker, for a job whose keys are skewed and one beside it (figure 7 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dirigo.flow.sources.load_shapes import constant
from dirigo.scheduling import strategy_named
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.reporting.drawing import bars
from dirigo_lab.experiments.window_jobs import on_machine
from dirigo_lab.experiments.window_jobs.on_spark import STARTS_S, run_jobs
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = 64
FUNCTIONS = 32
HOT_SHARE = 0.15  # of the skewed job's rows: all for one function, which needs more than one worker for them
MAP_S, WINDOW_S = 0.0005, 0.004
WINDOW_EVERY_S = 0.5
_SHARES = {"skewed": 0.45, "even": 0.2}  # of the pool
_SHARES_ON_SPARK = {"skewed": 0.4, "even": 0.15}
_HOT_SHARE_ON_SPARK = 0.5
_WARM_UP_S = 1.0
_SECONDS = {Size.FULL: 20.0, Size.QUICK: 6.0, Size.TINY: 3.0}
_TINY_WORKERS = 16
_STRATEGIES = ("fifo", "tokens")


class RateControl(Experiment):
    """Two jobs that count per key, one with a hot key, under FIFO and under tokens."""

    name: ClassVar = "rate-control"
    title: ClassVar = "Tokens per job and worker"
    question: ClassVar = "Does a job get its throughput beside one with a hot key, and who does the hot key's work?"
    spark_workers: ClassVar = on_machine.WORKERS

    def settings(self, scale: Scale, size: Size) -> list[Labels]:  # noqa: ARG002
        return [{"strategy": name} for name in _STRATEGIES]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        strategy = strategy_named(str(labels["strategy"]))
        workers = _TINY_WORKERS if size is Size.TINY else WORKERS
        pool = SimulatedPool(workers, [_job(name, costs, workers) for name in _SHARES], strategy, costs, seed)
        seconds = _WARM_UP_S + _SECONDS[size]
        return _with_figures(pool.run(labels, seconds, _WARM_UP_S), seconds)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        seconds = on_machine.WARM_UP_S + on_machine.SECONDS[size]
        jobs = [_job_on_spark(name) for name in _SHARES]
        outcome = run_jobs(cluster, jobs, str(labels["strategy"]), labels, seed, seconds, on_machine.WARM_UP_S)
        return _with_figures(outcome, seconds + STARTS_S)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        fifo, tokens = (summary.one(job="", strategy=name) for name in _STRATEGIES)
        before, after = (summary.one(job="even", strategy=name) for name in _STRATEGIES)
        return [
            Claim(
                "messages are spread evenly over all workers",
                "evenly distributed throughout all workers",
                f"the busiest worker has {fifo['unevenness']:.2f} times as many messages as the mean under FIFO, "
                f"{tokens['unevenness']:.2f} times with tokens",
                tokens["unevenness"] < 0.5 * (1.0 + fifo["unevenness"]),
            ),
            Claim(
                "throughput is isolated at each worker: the other job does not notice",
                "throughput isolation at the worker level",
                f"windows of the other job closed in time: {fifo['throughput:even']:.1%} under FIFO, "
                f"{tokens['throughput:even']:.1%} with tokens; its p99 {before['p99']:,.0f} and {after['p99']:,.0f} ms",
                tokens["throughput:even"] >= fifo["throughput:even"] and after["p99"] < before["p99"],
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        axes = None
        for number, name in enumerate(_STRATEGIES):
            axes = figure.add_subplot(len(_STRATEGIES), 1, number + 1, sharey=axes)
            outcome = next(each for each in summary.outcomes if each.labels["strategy"] == name)
            bars(axes, [str(worker) for worker in range(len(outcome.per_worker["messages"]))], _by_job(outcome))
            axes.set_title(name, loc="left", fontsize=10)
            axes.set_ylabel("messages executed")
        assert axes is not None
        axes.set_xlabel("worker")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        if scale is Scale.MACHINE:
            return [
                *on_machine.assumptions(),
                (
                    f"Two jobs with a source and a counting function per worker each. The skewed one takes "
                    f"{_SHARES_ON_SPARK['skewed']:.0%} of the pool, and {_HOT_SHARE_ON_SPARK:.0%} of its rows are of one "
                    "key; the other "
                    f"takes {_SHARES_ON_SPARK['even']:.0%}."
                ),
            ]
        hot = HOT_SHARE * _SHARES["skewed"] * WORKERS
        return [
            (
                f"{WORKERS} workers; two jobs with {FUNCTIONS} sources, maps and counting functions each, shuffled by key. "
                "The skewed "
                f"job takes {_SHARES['skewed']:.0%} of the pool, and {HOT_SHARE:.0%} of its rows are of one key, which is "
                f"{hot:.1f} times what one worker can do; the other job takes {_SHARES['even']:.0%}."
            ),
            "Both jobs have the same weight, so each worker gives each of them tokens for half of its time.",
        ]


def _by_job(outcome: Outcome) -> dict[str, Sequence[float]]:
    """Messages per worker, of each job where that is known."""
    by_job = {job: outcome.per_worker[f"messages:{job}"] for job in _SHARES if f"messages:{job}" in outcome.per_worker}
    return by_job or {"both jobs": outcome.per_worker["messages"]}


def _with_figures(outcome: Outcome, seconds: float) -> Outcome:
    figures = dict(outcome.figures)
    counts = np.array(outcome.per_worker["messages"])
    figures["unevenness"] = float(counts.max() / counts.mean())
    for name in _SHARES:
        latencies = next(each for each in outcome.latencies if each.job == name)
        # Results of windows that were closed while rows still came; what came after is worked off at leisure.
        figures[f"throughput:{name}"] = float((latencies.at_s <= seconds).mean())
    return Outcome(outcome.labels, outcome.seed, outcome.latencies, figures, outcome.per_worker)


def _job_on_spark(name: str) -> WindowJob:
    workers = on_machine.WORKERS
    load = constant(on_machine.rate(workers, _SHARES_ON_SPARK[name]) / workers)
    job = on_machine.window_job(name, [load] * workers, workers, 1.0, shuffles=True, has_whole=False)
    return replace(job, hot_share=_HOT_SHARE_ON_SPARK if name == "skewed" else 0.0)


def _job(name: str, costs: RuntimeCosts, workers: int) -> WindowJob:
    per_s = _SHARES[name] * workers / (MAP_S + WINDOW_S + 2 * costs.message_s)
    homes = range(workers) if name == "skewed" else [(worker + workers // 4) % workers for worker in range(workers)]
    functions = workers * FUNCTIONS // WORKERS
    return WindowJob(
        name,
        [constant(per_s / functions)] * functions,
        homes,
        functions,
        MAP_S,
        WINDOW_S,
        WINDOW_EVERY_S,
        1.0,
        shuffles=True,
        has_whole=False,
        hot_share=HOT_SHARE if name == "skewed" else 0.0,
    )
