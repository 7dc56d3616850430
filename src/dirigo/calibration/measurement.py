"""What runs came to, which rate follows from that, and what makes the figures doubtful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

HALF = 0.5
TAILS = 2.0  # the objective is so many times the tail
_OFF_MOST = 0.10  # of utilisation, before the rate is adjusted
_ALL_BUSY = 0.9
_RESULTS_LEAST = 100  # or the tail is the largest alone


@dataclass(frozen=True)
class Measurement:
    """What one run came to, after it had settled."""

    step: str
    rate_wanted: float | None  # rows per second; None for as fast as sources go
    workers: int
    seconds: float
    rows: int
    busy_s: float
    results: int
    latency_ms: Mapping[str, float]
    is_short: bool  # the sources ended before half of the time was over
    is_full: bool  # queues were full and sources had to wait for them, or they were getting there

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def utilisation(self) -> float:
        """The share of the workers' time that the job took; about, because workers tell their figures only now and then."""
        return min(1.0, self.busy_s / (self.seconds * self.workers))

    @property
    def is_all(self) -> bool:
        """Whether more rows could not have been coped with, however much time the workers seem to have had.

        If they had little to do although sources could go as fast as they wanted, it was the sources that were slow.
        """
        return self.is_full or (self.rate_wanted is None and self.utilisation >= HALF - _OFF_MOST)

    @property
    def half_rate(self) -> float:
        """The rate at which rows of this cost keep the workers busy half of the time."""
        by_cost = self.workers * self.rows / self.busy_s
        return HALF * (min(by_cost, self.rows_per_s) if self.is_all else by_cost)

    def figures(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "rows_per_second": round(self.rows_per_s, 1),
            "utilisation": round(self.utilisation, 4),
            "row_cost_us": round(self.busy_s / self.rows * 1e6, 3),
            "results": self.results,
            "latency_ms": dict(self.latency_ms),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Calibration:
    """The objective, and how it was found."""

    flow: str
    steps: Sequence[Measurement]
    chosen: Measurement
    notes: Sequence[str] = ()

    @property
    def objective_ms(self) -> int:
        return max(1, ceil(TAILS * self.chosen.latency_ms["p99"]))

    def figures(self) -> dict[str, Any]:
        chosen = self.chosen.figures()
        return {
            "flow": self.flow,
            "workers": self.chosen.workers,
            "rows_per_second": chosen["rows_per_second"],
            "utilisation": chosen["utilisation"],
            "latency_ms": chosen["latency_ms"],
            "objective_ms": self.objective_ms,
            "steps": [step.figures() for step in self.steps],
            "notes": list(self.notes),
        }


def adjusted_rate(probe: Measurement, found: Measurement) -> float:
    """The rate for another round, after one with which the workers were not half busy."""
    rate = found.half_rate
    if found.utilisation > HALF:
        rate *= (HALF / found.utilisation) ** 0.5  # at a lower rate messages are smaller, and a row costs more
    if found.utilisation >= _ALL_BUSY:
        rate = min(rate, HALF * HALF * found.rows_per_s)  # rows piled up, which cost nothing yet
    return min(rate, probe.half_rate) if probe.is_all else rate


def is_half(found: Measurement) -> bool:
    return not found.is_full and abs(found.utilisation - HALF) <= _OFF_MOST


def are_slow(found: Measurement) -> bool:
    """Whether sources gave fewer rows than were asked for, though nobody made them wait."""
    is_idle = not found.is_full and found.utilisation < HALF - _OFF_MOST
    return is_idle and found.rate_wanted is not None and found.rows_per_s < 0.9 * found.rate_wanted


def notes_on(probe: Measurement, chosen: Measurement) -> list[str]:
    notes = []
    if chosen.is_short:
        notes.append(f"the sources ended after {chosen.seconds:.1f} s, which is too short to tell; give them more rows.")
    elif are_slow(chosen):
        notes.append(f"the sources give no more than {chosen.rows_per_s:,.0f} rows/s, so the workers are never half busy.")
    elif chosen.is_full:
        notes.append(
            f"queues filled up at {chosen.rows_per_s:,.0f} rows/s, so latencies say little; measure longer, with --for."
        )
    elif probe.is_all and chosen.utilisation < HALF - _OFF_MOST:
        notes.append(
            f"more than {probe.rows_per_s:,.0f} rows/s could not be coped with, though workers were {probe.utilisation:.0%} "
            "busy at that; the rate is about half of it."
        )
    elif not is_half(chosen):
        notes.append(f"the workers were {chosen.utilisation:.0%} busy and not half of the time, so it is a rough figure.")
    if probe.is_short and not chosen.is_short:
        notes.append(f"the sources ended after {probe.seconds:.1f} s of the probe; what a row costs is a rough figure.")
    if chosen.results < _RESULTS_LEAST:
        notes.append(f"only {chosen.results} results came, so p99 is a rough figure; measure longer, with --for.")
    return notes
