"""What a job was promised, as strategies see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Objective:
    """A latency from the intended arrival of a row to its result, a throughput, and how much the job counts."""

    latency_s: float = float("inf")
    rows_per_s: float | None = None
    weight: float = 1.0


NO_OBJECTIVE = Objective()
