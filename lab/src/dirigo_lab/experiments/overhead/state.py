"""``overhead-state``: what a barrier costs as the partial states grow that it collects (figure 7b of the paper)."""

from __future__ import annotations

from typing import Any, ClassVar

from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, ExperimentSummary, Labels, Outcome, Scale, Size
from dirigo_lab.experiments.overhead.barrier import (
    BLOCKED,
    KB,
    PAPER_MOST_MS,
    ROUNDS,
    WHOLE,
    Setting,
    assumptions_in_simulation,
    simulate,
)
from dirigo_lab.experiments.overhead.on_spark import ROUNDS_ON_SPARK, assumptions_on_spark, run_on_spark
from dirigo_lab.experiments.reporting.drawing import distributions

LESSEES = 4
STATES_KB = (1, 4, 16, 64, 256, 512, 1024, 4096)
_SMALL_KB = 64
_PAPER_TIMES = {512: 2.3, 4096: 12.3}


class OverheadState(Experiment):
    """States of 1 KB to 4 MB at each of four lessees."""

    name: ClassVar = "overhead-state"
    title: ClassVar = "A barrier with large states"
    question: ClassVar = "How much longer does a barrier take if it collects larger partial states?"
    spark_workers: ClassVar = LESSEES + 1

    def settings(self, scale: Scale, size: Size) -> list[Labels]:  # noqa: ARG002
        return [{"state_kb": state_kb} for state_kb in STATES_KB]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        return simulate(_setting(labels), ROUNDS[size], labels, seed, costs)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        return run_on_spark(cluster, _setting(labels), ROUNDS_ON_SPARK[size], labels, seed)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:  # noqa: ARG002
        p50 = {int(row.labels["state_kb"]): row["p50"] for row in summary.all(job=BLOCKED)}
        felt = {int(row.labels["state_kb"]): row["p50"] for row in summary.all(job=WHOLE)}
        told = "; ".join(f"{state_kb}: {ms:.1f} ({felt[state_kb]:.1f})" for state_kb, ms in p50.items())
        small = max(ms for state_kb, ms in p50.items() if state_kb <= _SMALL_KB)
        times = {state_kb: p50[state_kb] / p50[1] for state_kb in _PAPER_TIMES}
        paper_ms = {state_kb: factor * PAPER_MOST_MS for state_kb, factor in _PAPER_TIMES.items()}
        small_one = f"a small state takes {p50[1]:.1f} ms here and up to {PAPER_MOST_MS:g} ms in the paper"
        is_steep = any(times[state_kb] > factor for state_kb, factor in _PAPER_TIMES.items())
        why = f"{small_one}, so that moving a large one is more of the whole" if is_steep else ""
        return [
            Claim(
                "up to 64 KB a barrier hardly depends on the size of the states",
                f"stable, below {PAPER_MOST_MS:g} ms",
                f"at most {small:.1f} ms; median ms from BLOCKED (from the start) by KB: {told}",
                small < PAPER_MOST_MS,
            ),
            Claim(
                "larger states make it noticeably longer",
                "2.3 times with 512 KB, 12.3 times with 4 MB",
                f"{times[512]:.1f} times with 512 KB, {times[4096]:.1f} times with 4 MB",
                1.0 < times[512] < times[4096] and not is_steep,
                why,
            ),
            Claim(
                "in milliseconds, large states cost no more than there",
                f"up to {paper_ms[512]:.0f} and {paper_ms[4096]:.0f} ms, if a small one takes {PAPER_MOST_MS:g} ms",
                f"{p50[512]:.1f} and {p50[4096]:.1f} ms",
                all(p50[state_kb] <= ms for state_kb, ms in paper_ms.items()),
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        axes = figure.add_subplot(1, 1, 1)
        rows = [row for row in summary.rows if row.job]
        distributions(axes, rows, x=lambda row: _shown(int(row.labels["state_kb"])), series=lambda row: row.job)
        axes.set_xlabel(f"state at each of {LESSEES} lessees")
        axes.set_ylabel("a barrier, ms")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:
        lessees = (
            f"{LESSEES} lessees, as in the paper, each with a state of one value that is rewritten before each barrier."
        )
        if scale is Scale.PAPER:
            return [lessees, *assumptions_in_simulation(size, costs)]
        return [lessees, *assumptions_on_spark(size)]


def _setting(labels: Labels) -> Setting:
    return Setting(LESSEES, int(labels["state_kb"]) * KB)


def _shown(state_kb: int) -> str:
    return f"{state_kb} KB" if state_kb < 1024 else f"{state_kb // 1024} MB"
