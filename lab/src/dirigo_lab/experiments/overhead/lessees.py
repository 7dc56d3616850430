"""``overhead-lessees``: what a barrier costs as a function has more and more lessees (figure 7a of the paper)."""

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

LESSEES = (1, 2, 4, 8, 16, 32, 64)
STATE_BYTES = KB
OBJECTIVE_MS = 300.0
_FLAT_MOST = 1.15
_PAPER_GROWTH = {32: 0.18, 64: 0.41}


class OverheadLessees(Experiment):
    """Small states at 1 to 64 lessees."""

    name: ClassVar = "overhead-lessees"
    title: ClassVar = "A barrier with many lessees"
    question: ClassVar = "How much longer does a barrier take if more workers take part in it?"
    spark_workers: ClassVar = 17

    def settings(self, scale: Scale, size: Size) -> list[Labels]:  # noqa: ARG002
        most = LESSEES[-1] if scale is Scale.PAPER else 16
        return [{"lessees": lessees} for lessees in LESSEES if lessees <= most]

    def simulate(self, labels: Labels, seed: int, size: Size, costs: RuntimeCosts) -> Outcome:
        return simulate(_setting(labels), ROUNDS[size], labels, seed, costs)

    def run_on_spark(self, cluster: Any, labels: Labels, seed: int, size: Size) -> Outcome:
        return run_on_spark(cluster, _setting(labels), ROUNDS_ON_SPARK[size], labels, seed)

    def claims(self, scale: Scale, summary: ExperimentSummary) -> list[Claim]:
        p50 = {int(row.labels["lessees"]): row["p50"] for row in summary.all(job=BLOCKED)}
        felt = {int(row.labels["lessees"]): row["p50"] for row in summary.all(job=WHOLE)}
        medians = "; ".join(f"{lessees}: {ms:.1f} ({felt[lessees]:.1f})" for lessees, ms in p50.items())
        told = f"median ms from BLOCKED (from the start) by lessees: {medians}"
        below = max(ms for lessees, ms in p50.items() if lessees <= 16)
        claims = [
            Claim(
                "a barrier takes less than a tenth of a lax objective",
                f"below 10 % of 300 to 400 ms{', with all lessees' if scale is Scale.PAPER else ''}",
                f"{told}; {max(p50.values()) / OBJECTIVE_MS:.1%} of 300 ms at most",
                (max(p50.values()) if scale is Scale.PAPER else below) < 0.1 * OBJECTIVE_MS,
            )
        ]
        if scale is Scale.PAPER:
            claims += self._growth(p50)
        return claims

    def _growth(self, p50: dict[int, float]) -> list[Claim]:
        """In the share of what one lessee takes, as the paper tells it, and in milliseconds, as a user pays for it."""
        shares = {lessees: ms / p50[1] - 1 for lessees, ms in p50.items()}
        more = {lessees: ms - p50[1] for lessees, ms in p50.items()}
        bounds = {lessees: share * PAPER_MOST_MS for lessees, share in _PAPER_GROWTH.items()}
        base = (
            f"one lessee takes {p50[1]:.1f} ms here and, as far as the paper tells, up to {PAPER_MOST_MS:g} ms there, so "
            "that the same milliseconds weigh more; they are what the lessor needs to send to and take a reply in from "
            "each lessee, and the longest of many hops instead of a usual one"
        )
        is_flat = shares[16] <= _FLAT_MOST - 1
        is_gentle = all(shares[lessees] <= share for lessees, share in _PAPER_GROWTH.items())
        return [
            Claim(
                "up to 16 lessees a barrier takes about as long as with one",
                "relatively unchanged",
                f"16 lessees take {shares[16]:+.0%}, {more[16]:+.2f} ms",
                is_flat,
                "" if is_flat else base,
            ),
            Claim(
                "with 32 and 64 lessees it takes longer, by a share",
                "+18 % and +41 %",
                f"{shares[32]:+.0%} and {shares[64]:+.0%}",
                is_gentle and 0 < shares[32] < shares[64],
                "" if is_gentle else base,
            ),
            Claim(
                "with 32 and 64 lessees it takes longer, in milliseconds",
                f"at most {bounds[32]:+.1f} and {bounds[64]:+.1f} ms, if one lessee takes {PAPER_MOST_MS:g} ms",
                f"{more[32]:+.1f} and {more[64]:+.1f} ms",
                0 < more[32] < more[64] and all(more[lessees] <= bound for lessees, bound in bounds.items()),
            ),
        ]

    def draw(self, figure: Any, summary: ExperimentSummary) -> None:
        axes = figure.add_subplot(1, 1, 1)
        rows = [row for row in summary.rows if row.job]
        distributions(axes, rows, x=lambda row: str(row.labels["lessees"]), series=lambda row: row.job)
        axes.set_xlabel("lessees")
        axes.set_ylabel("a barrier, ms")

    def assumptions(self, scale: Scale, size: Size, costs: RuntimeCosts) -> list[str]:
        state = f"Each lessee has a state of {STATE_BYTES // KB} KB, as in the paper."
        if scale is Scale.PAPER:
            return [state, *assumptions_in_simulation(size, costs)]
        return [state, *assumptions_on_spark(size)]


def _setting(labels: Labels) -> Setting:
    return Setting(int(labels["lessees"]), STATE_BYTES)
