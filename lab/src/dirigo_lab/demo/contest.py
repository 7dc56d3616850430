"""Runs the same tenants on one pool under one strategy after another, and notes what each of them got out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dirigo.runtime.client.job import Job
from dirigo.runtime.control import JobMetrics, JobStatus
from dirigo.scheduling import StrategyLike
from dirigo.scheduling.accounting import percentiles
from dirigo_lab.demo.tenants import Tenant
from dirigo_lab.jobs import give_up

LOOK_S = 0.25
WARM_UP_S = 3.0  # until all workers know what messages cost
_OVER = ("finished", "cancelled", "failed")

Told = Callable[[Mapping[str, JobStatus]], None]


@dataclass
class Sample:
    """The results of one moment."""

    at_s: float  # since the job was started
    p50_ms: float
    p99_ms: float


@dataclass
class TenantRun:
    """One tenant in one run."""

    name: str
    metrics: JobMetrics
    seconds: float
    latency_objective_ms: int
    samples: list[Sample] = field(default_factory=list)
    warm_up: Mapping[int, int] = field(default_factory=dict)  # latencies of the first seconds: bucket -> results

    @property
    def steady_latency_ms(self) -> dict[str, float]:
        """Percentiles over all results but those of the first seconds."""
        counts = {bucket: count - self.warm_up.get(bucket, 0) for bucket, count in self.metrics.latencies.items()}
        return percentiles({bucket: count for bucket, count in counts.items() if count > 0})

    @property
    def satisfaction(self) -> float:
        return self.metrics.satisfaction.results or 0.0

    @property
    def rows_per_s(self) -> float:
        return self.metrics.rows_in / self.seconds

    def figures(self) -> dict[str, Any]:
        metrics = self.metrics
        return {
            "job": self.name,
            "objective_ms": self.latency_objective_ms,
            "satisfaction": self.satisfaction,
            "satisfaction_messages": metrics.satisfaction.messages,
            "latency_ms": metrics.latency_ms,
            "rows_per_s": round(self.rows_per_s, 1),
            "results": metrics.rows_out,
            "messages": metrics.messages,
            "forwarded": metrics.forwarded,
            "barriers": metrics.barriers,
            "gathered": metrics.gathered,
            "why_late": metrics.satisfaction.why_results,
            "busy_s": metrics.busy_s,
        }


@dataclass
class Run:
    """All tenants under one strategy."""

    strategy: str
    tenants: dict[str, TenantRun]
    utilisation: float  # of the workers, while all tenants ran

    def figures(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "utilisation": round(self.utilisation, 3),
            "tenants": [tenant.figures() for tenant in self.tenants.values()],
        }


def run_tenants(
    cluster: Any,
    tenants: Sequence[Tenant],
    strategy: StrategyLike,
    seconds: float,
    workers: int,
    *,
    name: str | None = None,
    out: Path | None = None,
    progress: Told | None = None,
) -> Run:
    """Run tenants together on a cluster (a ``dg.Cluster`` or ``Client``) until their bids are worked off."""
    jobs: dict[str, Job] = {}
    try:
        for tenant in tenants:
            jobs[tenant.query] = cluster.submit(tenant.flow(seconds, out), strategy=strategy)
        samples, warm_up = _follow(jobs, progress)
        ended = {query: job.wait() for query, job in jobs.items()}
    except BaseException:
        for job in jobs.values():
            give_up(job)
        raise
    runs = {
        tenant.query: _tenant_run(tenant, ended[tenant.query], samples[tenant.query], warm_up[tenant.query])
        for tenant in tenants
    }
    busy_s = sum(run.metrics.busy_s for run in runs.values())
    together_s = max(run.seconds for run in runs.values())
    return Run(name or str(strategy), runs, busy_s / together_s / workers)


def _follow(jobs: Mapping[str, Job], progress: Told | None) -> tuple[dict[str, list[Sample]], dict[str, dict[int, int]]]:
    """Look at jobs until they are over; samples, and the latencies of the first seconds."""
    warm_up: dict[str, dict[int, int]] = {name: {} for name in jobs}
    samples: dict[str, list[Sample]] = {name: [] for name in jobs}
    seen: dict[str, dict[int, int]] = {name: {} for name in jobs}
    while True:
        statuses = {name: job.status() for name, job in jobs.items()}
        if progress is not None:
            progress(statuses)
        for name, status in statuses.items():
            latencies = status.metrics.latencies
            new = {bucket: count - seen[name].get(bucket, 0) for bucket, count in latencies.items()}
            seen[name] = dict(latencies)
            if status.started_s is None or time.time() - status.started_s <= WARM_UP_S:
                warm_up[name] = seen[name]
            found = percentiles({bucket: count for bucket, count in new.items() if count > 0})
            if found and status.started_s is not None:
                samples[name].append(Sample(time.time() - status.started_s, found["p50"], found["p99"]))
        if all(status.state in _OVER for status in statuses.values()):
            return samples, warm_up
        if any(status.state == "failed" for status in statuses.values()):
            return samples, warm_up
        time.sleep(LOOK_S)


def _tenant_run(tenant: Tenant, status: JobStatus, samples: list[Sample], warm_up: dict[int, int]) -> TenantRun:
    assert status.ended_s is not None
    began_s = status.submitted_s if status.started_s is None else status.started_s
    return TenantRun(tenant.query, status.metrics, status.ended_s - began_s, tenant.latency_ms, samples, warm_up)


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
