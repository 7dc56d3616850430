"""A noisy neighbour: what a tenant that behaves feels of another one that sends ten times what it used to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dirigo_lab.demo.contest import Run, median
from dirigo_lab.demo.tenants import Tenant, bulk, urgent

NOISE = 10.0
# Messages are long enough that the runtime's own work for them is little on two cores, and the neighbour's are shorter: what
# runs is not interrupted, so everybody waits for some of the neighbour's messages.
_BEHAVED_MS, _NOISY_MS = 30.0, 7.5
_LATENCY_MS = 225
# Its load varies a little. With a constant one, whether two of its messages meet or never do would be chance, and the tail.
_ALPHA = 5.0
_WINDOWS_PER_S = 4  # of the tenant that behaves: enough results for a p99 in half a minute

RunTenants = Callable[[Sequence[Tenant], str], Run]


@dataclass(frozen=True)
class Isolation:
    """The tail of the tenant that behaves, beside a quiet and beside a noisy neighbour, under one strategy."""

    strategy: str
    quiet_p99_ms: float
    noisy_p99_ms: float
    quiet_satisfaction: float
    noisy_satisfaction: float

    @property
    def factor(self) -> float:
        return self.noisy_p99_ms / self.quiet_p99_ms

    def figures(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "quiet_p99_ms": self.quiet_p99_ms,
            "noisy_p99_ms": self.noisy_p99_ms,
            "factor": round(self.factor, 2),
            "quiet_satisfaction": self.quiet_satisfaction,
            "noisy_satisfaction": self.noisy_satisfaction,
        }


def neighbours(workers: int, noise: float) -> list[Tenant]:
    """A tenant that behaves with a fifth of the pool, and one whose usual eighth becomes more than all of it."""
    behaved_per_s = 0.2 * workers * 1000 / _BEHAVED_MS
    usual_per_s = 0.125 * workers * 1000 / _NOISY_MS
    behaved = replace(
        urgent(workers),
        load="pareto",
        alpha=_ALPHA,
        bid_ms=_BEHAVED_MS,
        bids_per_s=behaved_per_s,
        latency_ms=_LATENCY_MS,
        window_bids=round(behaved_per_s / _WINDOWS_PER_S),
    )
    noisy = replace(bulk(workers), load="constant", bid_ms=_NOISY_MS, bids_per_s=noise * usual_per_s, throughput=usual_per_s)
    return [behaved, noisy]


def measure(strategy: str, workers: int, runs: int, run: RunTenants) -> Isolation:
    """Both situations in turn, as often as asked for; medians."""
    seen: dict[float, list[Run]] = {1.0: [], NOISE: []}
    for _ in range(runs):
        for noise, its in seen.items():
            its.append(run(neighbours(workers, noise), strategy))

    def of(noise: float, value: Callable[[Any], float]) -> float:
        return median(value(next(iter(each.tenants.values()))) for each in seen[noise])

    def tail(tenant: Any) -> float:
        return float(tenant.steady_latency_ms["p99"])

    def satisfaction(tenant: Any) -> float:
        return float(tenant.satisfaction)

    return Isolation(strategy, of(1.0, tail), of(NOISE, tail), of(1.0, satisfaction), of(NOISE, satisfaction))
