"""What a user promises about a job: a latency, a throughput, and how often they must hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dirigo.flow.api.duration import Duration, positive_milliseconds
from dirigo.flow.api.rate import Rate, is_number, positive_rows_per_second
from dirigo.flow.errors import FlowError
from dirigo.kernel import Objective


@dataclass(frozen=True, slots=True)
class SLO:
    """A service-level objective.

    `latency` is the longest acceptable time from a row's intended arrival to its result: strategies with deadlines work
    towards it, and what came of it is always measured. `target` is the share of results that should meet it. No strategy of
    ours goes by it; the share that was in time is compared with it, and a policy of your own can read it. `throughput` is
    the rows per second that token buckets set aside for the job ("50k/s", "1.5M/s" or a number). `weight` says how much
    this job counts against others when not all can be served.
    """

    latency: Duration | None = None
    throughput: Rate | None = None
    target: float = 0.99
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.latency is None and self.throughput is None:
            raise FlowError("SLO: give a latency, a throughput or both, for example SLO(latency='200ms').")
        if self.latency is not None:
            positive_milliseconds(self.latency, "SLO latency")
        if self.throughput is not None:
            positive_rows_per_second(self.throughput, "SLO throughput")
        if not is_number(self.target) or not 0 < self.target <= 1:
            raise FlowError(f"SLO target: {self.target!r} is not a share of rows; give a number above 0 and at most 1.")
        if not is_number(self.weight) or not 0 < self.weight < math.inf:
            raise FlowError(f"SLO weight: {self.weight!r} is not a weight; give a number above 0.")

    @property
    def latency_ms(self) -> int | None:
        return None if self.latency is None else positive_milliseconds(self.latency, "SLO latency")

    @property
    def objective(self) -> Objective:
        """As strategies see it."""
        latency_s = math.inf if self.latency_ms is None else self.latency_ms / 1000
        return Objective(latency_s, self.throughput_per_s, float(self.target))

    @property
    def throughput_per_s(self) -> float | None:
        return None if self.throughput is None else positive_rows_per_second(self.throughput, "SLO throughput")
