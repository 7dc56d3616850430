"""Runs Nexmark queries on a cluster: each is a job, and all of them share the pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dirigo import SLO, Dataflow, Sink, to_nothing, to_parquet
from dirigo.flow.api.dataflow import SourceNode, live_nodes
from dirigo.flow.sources.paced import PacedSource
from dirigo.nexmark.generator import RATE
from dirigo.nexmark.sources import EventSource
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import JobStatus
from dirigo.scheduling import StrategyLike
from dirigo_lab.jobs import give_up
from dirigo_lab.nexmark.run import RunReport, query_named
from dirigo_lab.nexmark.tables import GeneratedTables

_LOOK_S = 0.1
_OVER = ("finished", "cancelled", "failed")

Told = Callable[[Mapping[str, tuple[int, JobStatus]]], None]  # query -> (events gone through, status of its job)


def run_on_cluster(
    cluster: Any,
    names: Sequence[str],
    events: int,
    rate: int = RATE,
    out: Path | None = None,
    *,
    workers: int = 2,
    paced: bool = False,
    slo: SLO | None = None,
    strategy: StrategyLike | None = None,
    progress: Told | None = None,
) -> list[RunReport]:
    """Run queries over the first `events` events, all at once as jobs of one service, such as a ``dg.Cluster``.

    Rows go to OUT/<query>/*.parquet, or are only counted. `workers`: into how many splits the sources are cut. `paced`
    releases events in real time, `rate` of them per second. `slo`: the objective of each query. `strategy`: what
    schedules them, if not the cluster's. `progress` is told, now and then, how far each query is.
    """
    jobs: dict[str, Job] = {}
    rows_of: dict[str, int] = {}
    try:
        for name in names:
            query = query_named(name)
            flow = Dataflow(query.name, splits=workers, slo=slo)
            sink: Sink = to_nothing() if out is None else to_parquet(out / query.name, mode="overwrite")
            query.function(flow, GeneratedTables(events, rate, in_real_time=paced)).sink(sink)
            rows_of[name] = _rows_read_by(flow)
            jobs[name] = cluster.submit(flow, strategy=strategy)
        statuses = _wait(jobs, rows_of, events, progress)
    except BaseException:
        for job in jobs.values():
            give_up(job)
        raise
    return [_report(name, events, statuses[name], slo) for name in names]


def _wait(jobs: Mapping[str, Job], rows_of: Mapping[str, int], events: int, progress: Told | None) -> dict[str, JobStatus]:
    while True:
        statuses = {name: job.status() for name, job in jobs.items()}
        if progress is not None:
            progress({name: (_events_done(status, rows_of[name], events), status) for name, status in statuses.items()})
        if all(status.state in _OVER for status in statuses.values()) or _has_failed(statuses):
            return {name: job.wait() for name, job in jobs.items()}  # which raises if it failed
        time.sleep(_LOOK_S)


def _has_failed(statuses: Mapping[str, JobStatus]) -> bool:
    return any(status.state == "failed" for status in statuses.values())


def _events_done(status: JobStatus, rows: int, events: int) -> int:
    return min(events, events * status.metrics.rows_in // rows) if rows else events


def _rows_read_by(flow: Dataflow) -> int:
    """How many rows of the kinds that a query reads there are."""
    rows = 0
    for node in live_nodes(flow):
        if isinstance(node, SourceNode):
            source = node.source.source if isinstance(node.source, PacedSource) else node.source
            if isinstance(source, EventSource):
                rows += source.total or 0
    return rows


def _report(name: str, events: int, status: JobStatus, slo: SLO | None) -> RunReport:
    assert status.ended_s is not None
    began_s = status.submitted_s if status.started_s is None else status.started_s
    metrics = status.metrics
    return RunReport(
        name,
        events,
        metrics.rows_out,
        status.ended_s - began_s,
        metrics.latency_ms,
        status.strategy,
        slo,
        metrics.satisfaction,
        metrics.forwarded,
    )
