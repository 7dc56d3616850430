"""``scale``: our own. The same job on 128 to 4,096 workers, with a bounded fan-out per function."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from time import process_time
from typing import Any, ClassVar

from dirigo.flow.sources.load_shapes import Load, constant
from dirigo.scheduling import DirectSendRandom, RejectSend
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.reporting.drawing import lines
from dirigo_lab.experiments.window_jobs.bursts import bursts
from dirigo_lab.experiments.window_jobs.calibrated import calibrated_s, message_s
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = {
    Size.FULL: (128, 512, 2_048, 4_096),
    Size.QUICK: (128, 512),
    Size.TINY: (32, 64),
}
UPSTREAMS = 8  # maps per window function
LESSEES_MAX = 8
UTILISATION = 0.5
ALPHA = 2.5
BURST_MS = 250
MAP_S, WINDOW_S = 0.001, 0.004
WINDOW_EVERY_S = 0.5
_WARM_UP_S = 1.0
_RESULTS = {Size.FULL: 1_000, Size.QUICK: 250, Size.TINY: 40}


class Scaling(Experiment):
    """Only the number of workers changes, and with it the number of sources and functions."""

    name: ClassVar = "scale"
    title: ClassVar = "From 128 to 4,096 workers"
    question: ClassVar = "With a bounded fan-out per function, does anything get worse as the pool grows?"

    def settings(self, scale: Scale, size: Size) -> list[Labels]:  # noqa: ARG002
        return [{"workers": workers} for workers in WORKERS[size]]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        workers = int(labels["workers"])
        functions = workers // UPSTREAMS
        seconds = _WARM_UP_S + max(4.0, (ceil(_RESULTS[size] / functions) + 1) * WINDOW_EVERY_S)
        per_s = UTILISATION / message_s(_job(workers, [], 0.0), costs)
        loads = bursts(workers, per_s, ALPHA, BURST_MS, seconds, seed)
        job = _job(workers, loads, objective_s(costs))
        pool = SimulatedPool(workers, [job], RejectSend(LESSEES_MAX), costs, seed)
        began = process_time()
        outcome = pool.run(labels, seconds, _WARM_UP_S)
        figures = dict(outcome.figures)
        figures["events_per_s"] = figures["events"] / (process_time() - began)  # of this machine: not the same every time
        figures["elsewhere_share"] = figures["elsewhere"] / figures["messages"]
        figures["control_per_round"] = figures["control"] / figures["rounds"]
        return Outcome(labels, seed, outcome.latencies, figures, {})

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        sizes = summary.values_of("workers")
        results = [summary.one(job="maxima", workers=workers) for workers in sizes]
        runs = [summary.one(job="", workers=workers) for workers in sizes]
        satisfied = [each["satisfaction"] for each in results]
        control = [each["control_per_round"] for each in runs]
        per_worker = ", ".join(f"{workers:,}" for workers in sizes)
        return [
            Claim(
                f"satisfaction does not depend on the size of the pool ({per_worker} workers)",
                "(ours)",
                f"{_listed(satisfied, '.1%')}; forwarded: {_listed([each['elsewhere_share'] for each in runs], '.1%')}",
                min(satisfied) > max(satisfied) - 0.05,
            ),
            Claim(
                "a barrier costs the same however large the pool",
                "(ours)",
                f"control messages per round: {_listed(control, '.1f')}",
                max(control) < 1.2 * min(control),
            ),
            Claim(
                "the simulator keeps its speed",
                "(ours)",
                f"events per second of computing: {_listed([each['events_per_s'] for each in runs], ',.0f')}",
                runs[-1]["events_per_s"] > 0.3 * runs[0]["events_per_s"],
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        above = figure.add_subplot(2, 1, 1)
        for value in ("p50", "p99"):
            lines(
                above,
                summary.all(job="maxima"),
                x=lambda row: float(row.labels["workers"]),
                value=value,
                series=lambda _row, value=value: value,  # type: ignore[misc]
            )
        above.set_ylabel("latency of results, ms")
        below = figure.add_subplot(2, 1, 2)
        lines(
            below,
            summary.all(job=""),
            x=lambda row: float(row.labels["workers"]),
            value="control_per_round",
            series=lambda _row: "control messages per round",
        )
        below.set_xlabel("workers")
        for axes in (above, below):
            axes.set_xscale("log", base=2)

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        return [
            (
                f"A source and a map per worker, a window function for every {UPSTREAMS} maps, on at most "
                f"{1 + LESSEES_MAX} workers; no "
                f"last stage, so each window function has results of its own. REJECTSEND, bursts with alpha {ALPHA:g}, "
                "workers busy "
                f"for {UTILISATION:.0%} of the time, {1000 * (MAP_S + WINDOW_S):g} ms a message."
            ),
            "The objective is twice the p99 at constant load and half utilisation.",
        ]


def _listed(values: list[float], shown: str) -> str:
    return ", ".join(format(value, shown) for value in values)


def _job(workers: int, loads: list[Load], objective: float) -> WindowJob:
    return WindowJob(
        "maxima",
        loads,
        range(workers),
        max(1, workers // UPSTREAMS),
        MAP_S,
        WINDOW_S,
        WINDOW_EVERY_S,
        objective,
        has_whole=False,
        map_lessees_max=LESSEES_MAX,
        window_lessees_max=LESSEES_MAX,
    )


@lru_cache(maxsize=8)
def objective_s(costs: RuntimeCosts) -> float:
    """That of 32 workers: it is the same for any number."""
    return calibrated_s(_job(32, [constant(1.0)] * 32, 0.0), 32, costs, DirectSendRandom(LESSEES_MAX))
