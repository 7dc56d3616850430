"""``skew``: the same job with sources of very different rates, scheduled by objective (figure 4b of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, ClassVar

from dirigo.flow.sources.load_shapes import constant
from dirigo.scheduling import DirectSend, DirectSendRandom, RejectSend, Strategy
from dirigo.scheduling.strategies.direct_send import PAUSE_S
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.reporting.drawing import distributions
from dirigo_lab.experiments.window_jobs import on_machine
from dirigo_lab.experiments.window_jobs.bursts import zipf_shares
from dirigo_lab.experiments.window_jobs.calibrated import calibrated_s, message_s
from dirigo_lab.experiments.window_jobs.on_spark import run_jobs
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.spreading_windows import spreading_windows
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = 128
FUNCTIONS, INSTANCES = 64, 8
_TINY_UTILISATION = 0.5  # fewer functions are hot at the same time
_TINY_WORKERS, _TINY_EXPONENT = 32, 1.0
UTILISATION = 0.3
EXPONENTS = (0.0, 0.5, 0.7)  # beyond that no strategy meets the objective
MAP_S, WINDOW_S = 0.0002, 0.008
WINDOW_EVERY_S = 0.4
_WARM_UP_S = 1.0
_RESULTS = {Size.FULL: 1_000, Size.QUICK: 40, Size.TINY: 20}
_STRATEGIES: dict[str, Callable[[int], RejectSend | DirectSend | DirectSendRandom]] = {
    "reject_send": RejectSend,
    # As in the paper, both use lessees only where the lessor is too late: one knows, the other hears of it.
    "direct_send": partial(DirectSend, home_first=True),
    "direct_send_random": DirectSendRandom,
}


FUNCTIONS_ON_SPARK, INSTANCES_ON_SPARK = 2, 4
EXPONENTS_ON_SPARK = (0.0, 0.5, 1.0)


class Skew(Experiment):
    """Zipf's exponent of the sources' rates, under three strategies."""

    name: ClassVar = "skew"
    title: ClassVar = "Sources of very different rates"
    question: ClassVar = "Who notices first that a function is overloaded: its home (REJECTSEND), or those who send to it?"
    spark_workers: ClassVar = on_machine.WORKERS

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        exponents: tuple[float, ...] = EXPONENTS if scale is Scale.PAPER else EXPONENTS_ON_SPARK
        if size is Size.TINY:
            exponents = (_TINY_EXPONENT,) if scale is Scale.PAPER else exponents[-1:]
        return [{"exponent": exponent, "strategy": name} for exponent in exponents for name in _STRATEGIES]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        strategy: Strategy = _STRATEGIES[str(labels["strategy"])](INSTANCES - 1)
        workers = _TINY_WORKERS if size is Size.TINY else WORKERS
        job = skewed(float(labels["exponent"]), costs, workers)
        pool = SimulatedPool(workers, [job], strategy, costs, seed)
        return pool.run(labels, _WARM_UP_S + (_RESULTS[size] + 1) * WINDOW_EVERY_S, _WARM_UP_S)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        strategy = spreading_windows(_STRATEGIES[str(labels["strategy"])](INSTANCES_ON_SPARK - 1))
        job = skewed_on_spark(cluster, float(labels["exponent"]))
        seconds = on_machine.WARM_UP_S + on_machine.SECONDS[size]
        return run_jobs(cluster, [job], strategy, labels, seed, seconds, on_machine.WARM_UP_S)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        medians = {
            exponent: {name: summary.one(job="maxima", exponent=exponent, strategy=name)["p50"] for name in _STRATEGIES}
            for exponent in summary.values_of("exponent")
        }
        over = {exponent: each["direct_send"] / each["reject_send"] for exponent, each in medians.items()}
        unaware = [each["direct_send"] / each["direct_send_random"] for each in medians.values()]
        exponents = ", ".join(f"{exponent:g}" for exponent in medians)
        return [
            Claim(
                "with skew, SLO-driven REJECTSEND's median is below SLO-driven DIRECTSEND's",
                "3.2 times below",
                f"DIRECTSEND's over REJECTSEND's, exponents {exponents}: {_listed(over.values())}",
                all(times > 1.0 for exponent, times in over.items() if float(exponent) > 0.0),
            ),
            Claim(
                "what senders hear comes late: SLO-driven DIRECTSEND is worse than unaware DIRECTSEND",
                "median up to 2 times above",
                f"SLO-driven over unaware: {_listed(unaware)}",
                min(unaware) > 1.0,
                "where hot functions share workers, spreading evenly overloads those, and being unaware is worse",
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        axes = figure.add_subplot(1, 1, 1)
        distributions(
            axes,
            summary.all(job="maxima"),
            x=lambda row: f"{row.labels['exponent']:g}",
            series=lambda row: str(row.labels["strategy"]),
        )
        axes.set_ylabel("latency of results, ms")
        axes.set_xlabel("exponent of Zipf's law over the sources")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        if scale is Scale.MACHINE:
            return [
                *on_machine.assumptions(),
                (
                    f"{FUNCTIONS_ON_SPARK} window functions on at most {INSTANCES_ON_SPARK} workers each; workers are "
                    "busy for "
                    f"{UTILISATION:.0%} of the time. Maps stay where they are, as in the paper. The objective is twice the "
                    "p99 with equal sources, at half utilisation."
                ),
            ]
        hottest = max(sum(zipf_shares(WORKERS, EXPONENTS[-1])[index::FUNCTIONS]) for index in range(FUNCTIONS))
        return [
            (
                f"{WORKERS} workers, {FUNCTIONS} window functions on at most {INSTANCES} workers each; a message takes "
                f"{WINDOW_S * 1000:g} ms, and all workers together are busy for {UTILISATION:.0%} of the time."
            ),
            (
                f"With an exponent of {EXPONENTS[-1]:g} the hottest function has {hottest:.0%} "
                "of all "
                f"messages, and {hottest * UTILISATION * WORKERS:.1f} of its {INSTANCES} workers' time."
            ),
            "The objective is twice the p99 of the job with equal sources, at half utilisation.",
            (
                "Hot functions are neighbours, and so share workers: with high exponents those are overloaded if "
                "messages are "
                "spread evenly, though the pool as a whole is not. Latencies then grow with the length of a run."
            ),
            (
                f"SLO-driven DIRECTSEND sends to the home of a function; if that was late, to the others for "
                f"{PAUSE_S * 1000:g} ms, except those that were late themselves."
            ),
        ]


def _listed(ratios: Iterable[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def skewed(exponent: float, costs: RuntimeCosts, workers: int = WORKERS) -> WindowJob:
    utilisation = UTILISATION if workers == WORKERS else _TINY_UTILISATION
    per_s = workers * utilisation / message_s(_job([], 0.0), costs)
    return _job([constant(float(share) * per_s) for share in zipf_shares(workers, exponent)], objective_s(costs, workers))


def skewed_on_spark(cluster: Any, exponent: float) -> WindowJob:
    workers = on_machine.WORKERS
    per_s = on_machine.rate(workers, UTILISATION)
    loads = [constant(float(share) * per_s) for share in zipf_shares(workers, exponent)]
    # As many functions as workers: it has to do without scaling.
    even = on_machine.window_job("maxima", loads, workers, 60.0)
    return on_machine.window_job("maxima", loads, FUNCTIONS_ON_SPARK, on_machine.calibrated_s(cluster, even, workers))


def _job(loads: Any, objective: float) -> WindowJob:
    workers = max(1, len(loads))
    functions = max(1, workers * FUNCTIONS // WORKERS)
    return WindowJob("maxima", loads, range(workers), functions, MAP_S, WINDOW_S, WINDOW_EVERY_S, objective)


@lru_cache(maxsize=8)
def objective_s(costs: RuntimeCosts, workers: int = WORKERS) -> float:
    even = _job([constant(1.0)] * workers, 0.0)
    return calibrated_s(even, workers, costs, DirectSendRandom(INSTANCES - 1))
