"""A job and a service in a notebook: how they are at the moment at which they are shown."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dirigo.flow.notebook.html import BAD, GOOD, QUIET, Markup, coloured, stacked, table, title
from dirigo.runtime.control import ClusterStatus, JobStatus

_COLOURS = {"running": GOOD, "ready": GOOD, "failed": BAD, "lost": BAD, "cancelled": QUIET, "finished": QUIET}
_JOBS_MOST = 20
_LIVE = ("starting", "running", "recovering", "draining")


def job_html(job: JobStatus) -> Markup:
    """Its state, what it has read and written, how well it meets its objective, and what is wrong with it."""
    metrics = job.metrics
    facts: list[tuple[object, object]] = [
        ("state", _state(job.state)),
        ("time", f"{_seconds(job):,.1f} s"),
        ("rows", f"{metrics.rows_in:,} in, {metrics.rows_out:,} out"),
    ]
    if metrics.latency_ms:
        facts.append(("latency", ", ".join(f"{name} {ms:,.0f} ms" for name, ms in metrics.latency_ms.items())))
    if job.latency_objective_ms is not None and job.target is not None:
        facts.append(("objective", f"{job.latency_objective_ms:,} ms for {job.target * 100:g} % of results"))
        facts.append(("in time", _in_time(job)))
    if metrics.late_rows:
        facts.append(("too late", f"{metrics.late_rows:,} rows"))
    if (last := job.snapshot) is not None:
        age_s = max(0.0, time.time() - last.began_s)
        facts.append(
            ("snapshot", f"{last.number}, {age_s:,.1f} s old, took {last.duration_s:,.2f} s, {last.total_bytes:,} bytes")
        )
    if job.recoveries:
        facts.append(("recoveries", f"{job.recoveries:,}, now generation {job.generation:,}"))
    facts += [("snapshots", told) for told in (job.snapshot_problem,) if told]
    facts += [(name, told) for name, told in (("note", job.note), *(("waits", each) for each in job.waiting)) if told]
    if job.error:
        facts.append(("problem", coloured(job.error, BAD)))
    return stacked(title(job.id, "job" + (f", scheduled by {job.strategy}" if job.strategy else "")), table(facts))


def service_html(name: str, what: str, status: ClusterStatus) -> Markup:
    """Its workers and its jobs."""
    workers = [
        (
            worker.id,
            _state(worker.state),
            worker.host,
            f"{worker.busy:.0%}",
            f"{worker.queued_bytes:,}",
            worker.problem or "",
        )
        for worker in status.workers
    ]
    jobs = sorted(status.jobs, key=lambda job: (job.state not in _LIVE, -job.submitted_s))
    parts = [
        title(name, f"{what}, up {status.uptime_s:,.0f} s"),
        table(workers, ("worker", "state", "host", "busy", "queued bytes", "problem")),
    ]
    if jobs:
        headings = ("job", "state", "seconds", "rows in", "rows out", "in time", "problem")
        parts.append(table(_job_rows(jobs[:_JOBS_MOST]), headings))
    if len(jobs) > _JOBS_MOST:
        parts.append(coloured(f"and {len(jobs) - _JOBS_MOST:,} more jobs", QUIET))
    return stacked(*parts)


def unknown_html(name: str, what: str, problem: Exception) -> Markup:
    """Of something that cannot be asked how it is."""
    return stacked(title(name, what), coloured(problem, BAD))


def _job_rows(jobs: Sequence[JobStatus]) -> list[tuple[object, ...]]:
    return [
        (
            job.id,
            _state(job.state),
            f"{_seconds(job):,.1f}",
            f"{job.metrics.rows_in:,}",
            f"{job.metrics.rows_out:,}",
            _in_time(job),
            coloured(job.error, BAD) if job.error else "",
        )
        for job in jobs
    ]


def _state(state: str) -> Markup:
    return coloured(state, _COLOURS.get(state, "#b36b00"))


def _seconds(job: JobStatus) -> float:
    return max(0.0, (job.ended_s or time.time()) - job.submitted_s)


def _in_time(job: JobStatus) -> Markup:
    """Never rounded up: what misses its target must not look as if it met it."""
    share = job.metrics.satisfaction.results
    if share is None or job.target is None:
        return Markup()
    return coloured(f"{int(share * 1000 + 1e-6) / 10:g} %", GOOD if share >= job.target else BAD)
