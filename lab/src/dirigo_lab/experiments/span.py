"""``span``: two ways to spread a window function over more and more workers, by chance (figure 4a of the paper)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from dirigo.flow.sources.load_shapes import constant
from dirigo.scheduling import DirectSendRandom, RejectSendRandom, Strategy
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.reporting.drawing import distributions
from dirigo_lab.experiments.window_jobs import on_machine
from dirigo_lab.experiments.window_jobs.on_spark import run_jobs
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.spreading_windows import spreading_windows
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = 128
SPANS = ((64, 2), (32, 4), (16, 8), (8, 16))
_TINY_WORKERS, _TINY_SPANS = 32, ((1, 32),)  # a home that has to take in as much as one of 16 does among 128
UTILISATION = 0.55
MAP_S, WINDOW_S = 0.0005, 0.0015
WINDOW_EVERY_S = 0.1
_WARM_UP_S = 1.0
_RESULTS = {Size.FULL: 1_000, Size.QUICK: 50, Size.TINY: 40}
_STRATEGIES: dict[str, type[RejectSendRandom | DirectSendRandom]] = {
    "reject_send_random": RejectSendRandom,
    "direct_send_random": DirectSendRandom,
}


# The cluster places functions at workers next to each other, so that their spans overlap: with 4 functions on 2 workers
# each, and with 2 on 4, five of the eight workers do it all.
_UTILISATION_ON_SPARK = 0.25
_WINDOW_EVERY_ON_SPARK_S = 0.25  # shorter than in other experiments there, as there is one result per window
_SPANS_ON_SPARK = ((4, 2), (2, 4), (1, 8))


class SpanExperiment(Experiment):
    """n window functions on at most m workers each, n times m being all workers."""

    name: ClassVar = "span"
    title: ClassVar = "Spreading functions over more workers"
    question: ClassVar = (
        "Does it scale better if senders spread messages (DIRECTSEND), or if the function's home does (REJECTSEND)?"
    )
    spark_workers: ClassVar = on_machine.WORKERS

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        spans: tuple[tuple[int, int], ...] = SPANS if scale is Scale.PAPER else _SPANS_ON_SPARK
        if size is Size.TINY:
            spans = _TINY_SPANS if scale is Scale.PAPER else spans[-1:]
        return [{"functions": n, "instances": m, "strategy": name} for n, m in spans for name in _STRATEGIES]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        instances = int(labels["instances"])
        strategy: Strategy = _STRATEGIES[str(labels["strategy"])](instances - 1)
        workers = _TINY_WORKERS if size is Size.TINY else WORKERS
        job = local_maxima(workers, int(labels["functions"]), UTILISATION, costs)
        pool = SimulatedPool(workers, [job], strategy, costs, seed)
        return pool.run(labels, _WARM_UP_S + (_RESULTS[size] + 1) * WINDOW_EVERY_S, _WARM_UP_S)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        strategy = spreading_windows(_STRATEGIES[str(labels["strategy"])](int(labels["instances"]) - 1))
        workers = on_machine.WORKERS
        load = constant(on_machine.rate(workers, _UTILISATION_ON_SPARK) / workers)
        job = on_machine.window_job("maxima", [load] * workers, int(labels["functions"]), 60.0)
        job = replace(job, window_every_s=_WINDOW_EVERY_ON_SPARK_S)
        seconds = on_machine.WARM_UP_S + on_machine.SECONDS[size]
        return run_jobs(cluster, [job], strategy, labels, seed, seconds, on_machine.WARM_UP_S)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        gains = {}
        for span in summary.values_of("instances"):
            reject, direct = (summary.one(job="maxima", instances=span, strategy=name) for name in _STRATEGIES)
            gains[int(span)] = {name: reject[name] / direct[name] for name in ("p50", "p95", "p99")}
        widest = max(gains)
        told = "; ".join(f"m = {m}: {each['p50']:.2f}, {each['p95']:.2f}, {each['p99']:.2f}" for m, each in gains.items())
        most = gains[widest]
        return [
            Claim(
                "DIRECTSEND scales better than REJECTSEND with many instances per function",
                "lower latencies, above all with many instances",
                f"REJECTSEND's p50, p95, p99 over DIRECTSEND's: {told}",
                all(gain > 1.0 for gain in most.values()),
            ),
            Claim(
                "the more instances, the greater the advantage",
                "grows with m",
                f"p50: {_listed([each['p50'] for each in gains.values()])}; "
                f"p95: {_listed([each['p95'] for each in gains.values()])}",
                all(most[name] == max(each[name] for each in gains.values()) for name in ("p50", "p95")),
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        axes = figure.add_subplot(1, 1, 1)
        distributions(
            axes,
            summary.all(job="maxima"),
            x=lambda row: f"{row.labels['functions']} functions\non {row.labels['instances']} workers each",
            series=lambda row: str(row.labels["strategy"]),
        )
        axes.set_ylabel("latency of results, ms")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        if scale is Scale.MACHINE:
            return [
                *on_machine.assumptions(_WINDOW_EVERY_ON_SPARK_S),
                (
                    f"Workers are busy for {_UTILISATION_ON_SPARK:.0%} of the time. The cluster places functions at "
                    "workers next to each other, so that their spans overlap. Maps stay where they are, as in the paper."
                ),
            ]
        per_s = rate(WORKERS, UTILISATION, costs)
        return [
            (
                f"{WORKERS} workers, a source and a map at each; a map takes {MAP_S * 1000:g} ms, a window function "
                f"{WINDOW_S * 1000:g} ms a message, beside what the runtime takes: {per_s:,.0f} messages/s keep the "
                "workers busy for "
                f"{UTILISATION:.0%} of the time. Short messages, because the two ways differ in what the runtime does per "
                "message."
            ),
            (
                "A map sends to one window function, as maxima need no shuffle. m counts the home too, so that n times "
                "m is the "
                "number of workers, as in all four settings of the paper."
            ),
            (
                f"Windows are {WINDOW_EVERY_S * 1000:g} ms long, so that a run has {_RESULTS[Size.FULL]:,} results; "
                "the load is "
                "constant, with a random phase for each source."
            ),
        ]


def _listed(ratios: list[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def rate(workers: int, utilisation: float, costs: RuntimeCosts) -> float:
    """Messages per second over all sources that keep the workers busy for so much of the time."""
    return workers * utilisation / (MAP_S + WINDOW_S + 2 * costs.message_s)


def local_maxima(
    workers: int, functions: int, utilisation: float, costs: RuntimeCosts, objective_s: float = float("inf")
) -> WindowJob:
    """The job of the paper's section 5.2, with the same load at all sources."""
    load = constant(rate(workers, utilisation, costs) / workers)
    return WindowJob("maxima", [load] * workers, range(workers), functions, MAP_S, WINDOW_S, WINDOW_EVERY_S, objective_s)
