"""Experiments that pretend: what they give is computed from labels and seed, so that every figure is known beforehand."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Latencies, Outcome, Scale, Size
from dirigo_lab.experiments.registry import EXPERIMENTS
from dirigo_lab.experiments.reporting.drawing import distributions, lines

RESULTS = 400
OBJECTIVE_MS = 20.0
COSTS = RuntimeCosts(
    hop_s=0.0003, fetch_s=0.0001, message_s=0.0002, critical_s=0.0004, state_bytes_per_s=2e8, machine="a machine"
)


def outcome_of(labels: Labels, seed: int, results: int = RESULTS) -> Outcome:
    """Latencies that are skewed, and different for each setting and seed."""
    rng = np.random.default_rng([seed, int(labels["workers"]), len(str(labels["strategy"]))])
    faster = 0.5 if labels["strategy"] == "reject_send" else 1.0
    urgent = rng.pareto(2.5, results) * 40 * faster / float(labels["load"])
    bulk = rng.normal(100, 10, results // 2)
    return Outcome(
        labels,
        seed,
        [
            Latencies("urgent", OBJECTIVE_MS, np.arange(results) / 10, urgent),
            Latencies("bulk", float("inf"), np.arange(results // 2) / 5, bulk),
        ],
        {"forwards": float(10 * seed + int(labels["workers"])), "share": 0.5},
        {"busy_s": [1.0 * seed, 2.0, 3.0]},
    )


class Pretended(Experiment):
    """Two strategies on 2, 4 and 8 workers."""

    name: ClassVar[str] = "pretended"
    title: ClassVar[str] = "Nothing <but> numbers"
    question: ClassVar[str] = "Is reject_send faster?"
    spark_workers: ClassVar[int | None] = 3

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        workers = (8, 2, 4) if size is Size.FULL else (8, 2)  # not sorted: the order is ours
        return [{"strategy": name, "workers": count, "load": 0.5} for name in ("reject_send", "fifo") for count in workers]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        if labels["workers"] == 8:
            time.sleep(0.2)  # what begins first does not end first
        return outcome_of(labels, seed)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        cluster.runs.append((seed, labels["strategy"], labels["workers"]))
        return outcome_of(labels, seed)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:
        ours, theirs = (summary.one(job="urgent", strategy=name, workers=2)["p50"] for name in ("reject_send", "fifo"))
        return [
            Claim("reject_send is faster", "2 times", f"{theirs / ours:.1f} times", ours < theirs),
            Claim("bulk is fast", "10 ms & less", "100 ms", holds=False, why="it was made <so>"),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        above, below = figure.add_subplot(2, 1, 1), figure.add_subplot(2, 1, 2)
        distributions(
            above,
            summary.all(job="urgent"),
            x=lambda row: f"{row.labels['workers']} workers",
            series=lambda row: str(row.labels["strategy"]),
            satisfaction=True,
        )
        whole = summary.all(job="")
        lines(below, whole, x=lambda row: float(row.labels["workers"]), value="forwards", series=lambda _: "forwards")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:
        return ["Latencies are drawn, because nobody waits for them."]


class Failing(Pretended):
    """One of its settings divides by nothing."""

    name: ClassVar[str] = "failing"
    spark_workers: ClassVar[int | None] = None

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        if labels["workers"] == 2 and labels["strategy"] == "fifo":
            raise ZeroDivisionError(f"{1 // 1} by nothing")
        return outcome_of(labels, seed)


class Endless(Pretended):
    """Its runs end only with their process."""

    name: ClassVar[str] = "endless"

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        time.sleep(600)
        raise AssertionError("nobody ended this")


class Vanishing(Pretended):
    """One of its runs takes its process with it."""

    name: ClassVar[str] = "vanishing"

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        if labels["workers"] == 2 and labels["strategy"] == "fifo":
            os._exit(1)
        return outcome_of(labels, seed)


class Borrowing(Pretended):
    """One of its runs is another experiment's; the others, which say so, are its own."""

    name: ClassVar[str] = "borrowing"

    def __init__(self, other: str = "pretended") -> None:
        self._other = other

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        made = outcome_of(labels, seed)
        return replace(made, figures={**made.figures, "own": 1.0})

    def settings(self, scale: Scale, size: Size) -> list[Labels]:
        return [{**labels, "whose": "borrowing"} for labels in super().settings(scale, size)]

    def same_as(self, labels: Labels, size: Size) -> tuple[str, Labels] | None:
        if labels["workers"] != 2 or labels["strategy"] != "fifo":
            return None
        return self._other, {name: value for name, value in labels.items() if name != "whose"}


class OnSpark(Pretended):
    """Not for the simulator."""

    name: ClassVar[str] = "on-spark"

    def runs_at(self, scale: Scale) -> bool:
        return scale is Scale.MACHINE


ALL: dict[str, Experiment] = {
    each.name: each for each in (Pretended(), Failing(), Endless(), Vanishing(), Borrowing(), OnSpark())
}

# In a process of a pool they are in the registry, as ours are; in that of the tests only where a test asks for it.
if multiprocessing.parent_process() is not None:
    EXPERIMENTS.update(ALL)
