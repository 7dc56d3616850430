"""``reality``: the same flows on real workers and in the simulator, to see how far the simulator can be believed.

A shared machine can be half as fast ten minutes later. So what the runtime costs is measured anew before each run, on the
same cluster, and the simulator goes by that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from dirigo.flow.sources.load_shapes import Load, constant
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.costs.measurement import WORKERS as CALIBRATION_WORKERS
from dirigo_lab.experiments.costs.measurement import calibrate_costs
from dirigo_lab.experiments.experiment import (
    Claim,
    Experiment,
    ExperimentSummary,
    Label,
    Labels,
    Latencies,
    Outcome,
    Scale,
    Size,
)
from dirigo_lab.experiments.reporting.drawing import distributions
from dirigo_lab.experiments.simulated_tenants import FlowPool
from dirigo_lab.experiments.window_jobs import on_machine
from dirigo_lab.experiments.window_jobs.bursts import bursts
from dirigo_lab.experiments.window_jobs.job_flow import flow_of
from dirigo_lab.experiments.window_jobs.on_spark import run_jobs
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

UTILISATION = 0.4
MAP_S, WINDOW_S = 0.002, 0.020  # long enough that what the runtime computes on a few cores is not most of what is measured
OBJECTIVE_S = 0.25
_BURST_MS = 500
_POOLS = (4, 8)
_LOADS = {"constant": None, "bursts, alpha 5": 5.0, "bursts, alpha 2.5": 2.5}
_STRATEGIES = ("fifo", "reject_send")
_SPARK, _SIMULATOR = "Spark", "simulator"
_NEAR = 0.2
_ROWS, _BARRIERS, _SECONDS = 2_000, 30, 3.0  # of the measurement before each run: less than dirigo costs takes


class Reality(Experiment):
    """Pools of two sizes, three loads, two strategies, two hosts."""

    name: ClassVar = "reality"
    title: ClassVar = "The simulator beside real workers"
    question: ClassVar = "Does the simulator predict what real workers do?"
    spark_workers: ClassVar = max(_POOLS)

    def __init__(self) -> None:
        self._measured: dict[tuple[Label, Label, Label, int], RuntimeCosts] = {}  # by workers, load, strategy and seed

    def runs_at(self, scale: Scale) -> bool:
        return scale is Scale.MACHINE

    def is_simulated(self, scale: Scale, labels: Labels) -> bool:  # noqa: ARG002
        return labels["host"] == _SIMULATOR

    def settings(self, scale: Scale, size: Size) -> list[Labels]:  # noqa: ARG002
        pools = _POOLS if size is not Size.TINY else _POOLS[:1]
        return [
            {"workers": workers, "load": load, "strategy": strategy, "host": host}
            for workers in pools
            for load in _LOADS
            for strategy in _STRATEGIES
            for host in (_SPARK, _SIMULATOR)
        ]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        job, seconds = _job(labels, seed, size)
        workers = int(labels["workers"])
        measured = self._measured.get(_key(labels, seed), costs)
        pool = FlowPool([flow_of(job, seconds)], str(labels["strategy"]), workers, seed, costs=measured)
        pool.run()
        pairs = [(at, 1000 * latency) for at, latency in pool.results[job.name] if at - latency > on_machine.WARM_UP_S]
        figures = {"utilisation": pool.busy_s[job.name] / pool.ended_s[job.name] / workers}
        return Outcome(labels, seed, [Latencies.of(job.name, 1000 * job.objective_s, pairs)], figures)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        job, seconds = _job(labels, seed, size)
        with on_machine.workers_of(cluster, CALIBRATION_WORKERS):
            costs = calibrate_costs(cluster, _silent, rows=_ROWS, barriers=_BARRIERS, seconds=_SECONDS)
        self._measured[_key(labels, seed)] = costs
        with on_machine.workers_of(cluster, int(labels["workers"])):
            outcome = run_jobs(cluster, [job], str(labels["strategy"]), labels, seed, seconds, on_machine.WARM_UP_S)
        # What was measured is kept with the run: a simulation of it can be repeated.
        measured = {f"cost:{name}": value for name, value in msgspec.structs.asdict(costs).items() if name != "machine"}
        return replace(outcome, figures={**outcome.figures, **measured})

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        claims = []
        for workers in summary.values_of("workers"):
            for load in summary.values_of("load"):
                told, is_near = [], True
                for strategy in _STRATEGIES:
                    real, predicted = (
                        summary.one(job="maxima", workers=workers, load=load, strategy=strategy, host=host)
                        for host in (_SPARK, _SIMULATOR)
                    )
                    told.append(
                        f"{strategy}: p50 {real['p50']:,.0f} and {predicted['p50']:,.0f} ms, in time "
                        f"{real['satisfaction']:.0%} and {predicted['satisfaction']:.0%}"
                    )
                    is_near &= abs(predicted["p50"] - real["p50"]) <= _NEAR * real["p50"]
                    is_near &= abs(predicted["satisfaction"] - real["satisfaction"]) <= _NEAR
                claims.append(
                    Claim(
                        f"{workers} workers, {load}: median and satisfaction are predicted within {_NEAR:.0%}",
                        "(ours)",
                        f"Spark and simulator: {'; '.join(told)}",
                        is_near,
                    )
                )
        return claims

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        pools = summary.values_of("workers")
        for number, workers in enumerate(pools):
            axes = figure.add_subplot(len(pools), 1, number + 1)
            distributions(
                axes,
                summary.all(job="maxima", workers=workers),
                x=lambda row: f"{row.labels['load']}\n{row.labels['strategy']}",
                series=lambda row: str(row.labels["host"]),
                satisfaction=True,
            )
            axes.set_title(f"{workers} workers", loc="left", fontsize=10)
            axes.set_ylabel("latency of results, ms")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:  # noqa: ARG002
        hops = [f"{measured.hop_s * 1e6:.0f}" for measured in self._measured.values()]
        return [
            *on_machine.assumptions(),
            (
                f"Workers are busy for {UTILISATION:.0%} of the time; a new rate every {_BURST_MS} ms; objective "
                f"{OBJECTIVE_S * 1000:g} ms."
            ),
            (
                "The simulator goes by what the runtime cost on this machine just before, measured anew for each run: a "
                f"hop took {', '.join(hops)} microseconds."
            ),
        ]


def _key(labels: Labels, seed: int) -> tuple[Label, Label, Label, int]:
    return labels["workers"], labels["load"], labels["strategy"], seed


def _silent(_: str) -> None:
    """What is measured just now is of no interest here."""


def _job(labels: Labels, seed: int, size: Size) -> tuple[WindowJob, float]:
    workers, alpha = int(labels["workers"]), _LOADS[str(labels["load"])]
    seconds = on_machine.WARM_UP_S + on_machine.SECONDS[size]
    per_s = UTILISATION / (MAP_S + WINDOW_S + on_machine.RUNTIME_S)
    loads: list[Load] = [constant(per_s)] * workers
    if alpha is not None:
        loads = bursts(workers, per_s, alpha, _BURST_MS, seconds, seed)
    job = on_machine.window_job("maxima", loads, workers, OBJECTIVE_S, has_whole=False)
    return replace(job, map_s=MAP_S, window_s=WINDOW_S), seconds
