"""What a user promises about a job: a latency, a throughput, and how often they must hold."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from dirigo.flow.duration import Duration, positive_milliseconds
from dirigo.flow.errors import FlowError

_RATE: Final = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([kKM]?)\s*/\s*s\s*", re.ASCII)
_FACTOR: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}


@dataclass(frozen=True, slots=True)
class SLO:
    """A service-level objective.

    `latency` is the longest acceptable time from a row's arrival to its effect; `throughput` the rows per second to
    sustain ("50k/s", "1.5M/s" or a number). `target` is the share of rows that must meet them; `weight` says how much
    this job counts against others when not all can be served.
    """

    latency: Duration | None = None
    throughput: str | float | None = None
    target: float = 0.99
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.latency is None and self.throughput is None:
            raise FlowError("SLO: give a latency, a throughput or both, for example SLO(latency='200ms').")
        if self.latency is not None:
            positive_milliseconds(self.latency, "SLO latency")
        if self.throughput is not None:
            _rows_per_second(self.throughput)
        if not _is_number(self.target) or not 0 < self.target <= 1:
            raise FlowError(f"SLO target: {self.target!r} is not a share of rows; give a number above 0 and at most 1.")
        if not _is_number(self.weight) or not 0 < self.weight < math.inf:
            raise FlowError(f"SLO weight: {self.weight!r} is not a weight; give a number above 0.")

    @property
    def latency_ms(self) -> int | None:
        return None if self.latency is None else positive_milliseconds(self.latency, "SLO latency")

    @property
    def throughput_per_s(self) -> float | None:
        return None if self.throughput is None else _rows_per_second(self.throughput)


def _rows_per_second(value: str | float) -> float:
    if isinstance(value, str):
        match = _RATE.fullmatch(value)
        rate = float(match[1]) * _FACTOR[match[2]] if match else None
    else:
        rate = float(value) if _is_number(value) else None
    if rate is None:
        raise FlowError(f"SLO throughput: {value!r} is not a rate; write it like '200/s', '50k/s' or '1.5M/s'.")
    if not 0 < rate < math.inf:
        raise FlowError(f"SLO throughput: {value!r} is not a rate that can be met; give one above zero.")
    return rate


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
