"""What strategies see of a job: who it is, what it was promised, and what its user says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Objective:
    """A latency from the intended arrival of a row to its result, a throughput, and how much of it should be in time."""

    latency_s: float = float("inf")
    rows_per_s: float | None = None
    target: float = 0.99  # the share of results that should meet the latency; what figures are compared with


NO_OBJECTIVE = Objective()


@dataclass(frozen=True, slots=True)
class JobProperties:
    """One job. The same for all its actors, and at every worker."""

    id: str  # as in the addresses of its actors; no other job has it
    name: str  # as its user gave it; a job that is submitted again has the same
    objective: Objective = NO_OBJECTIVE
    weight: float = 1.0  # how much it counts against others
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)  # whatever its user wants policies to know

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))
