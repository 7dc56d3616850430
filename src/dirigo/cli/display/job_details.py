"""All that is known of one job, for people: what it did, how well it was served, and what is wrong with it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dirigo.cli.display.amounts import shown_bytes, shown_latency, shown_seconds
from dirigo.cli.display.satisfaction import in_time_of, shown_objective, why_late
from dirigo.cli.display.status_tables import LIVE, ran_s, state_of
from dirigo.runtime.control import JobStatus


def job_details(job: JobStatus, now_s: float) -> RenderableType:
    """A line that says how it is, and below it one for each thing to know."""
    when = f"for {shown_seconds(ran_s(job))}"
    if job.state not in LIVE and job.ended_s is not None:
        when = f"{shown_seconds(max(0.0, now_s - job.ended_s))} ago, after {shown_seconds(ran_s(job))}"
    head = Text.assemble((job.id, "bold"), "  ", state_of(job), f" {when}")
    if job.strategy:
        head.append(f", scheduled by {job.strategy}")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for what, told in _facts(job, now_s):
        table.add_row(f"  {what}", told)
    return Group(head, table)


def _facts(job: JobStatus, now_s: float) -> list[tuple[str, str | Text]]:
    metrics = job.metrics
    late_rows = f", {metrics.late_rows:,} too late for their window" if metrics.late_rows else ""
    facts: list[tuple[str, str | Text]] = [("rows", f"{metrics.rows_in:,} in, {metrics.rows_out:,} out{late_rows}")]
    if metrics.latency_ms:
        facts.append(("latency", ", ".join(f"{name} {shown_latency(ms)}" for name, ms in metrics.latency_ms.items())))
    facts += _objective(job)
    forwarded = f", {metrics.forwarded:,} of them forwarded to other workers" if metrics.forwarded else ""
    facts.append(("messages", f"{metrics.messages:,}{forwarded}"))
    if metrics.barriers:
        gathered = f", {metrics.gathered:,} of them with partial states to put together" if metrics.gathered else ""
        facts.append(("barriers", f"{metrics.barriers:,}{gathered}"))
    facts.append(("busy", f"{shown_seconds(metrics.busy_s)} of worker time"))
    if job.state in LIVE:
        facts.append(("queued", shown_bytes(metrics.queued_bytes)))
        facts.append(("state", shown_bytes(metrics.state_bytes)))
    facts += _snapshots(job, now_s)
    if job.labels:
        facts.append(("labels", Text(", ".join(f"{name}={value}" for name, value in job.labels.items()))))
    if job.workers:
        facts.append(("workers", ", ".join(map(str, sorted(job.workers)))))
    if job.note:
        facts.append(("note", Text(job.note, style="yellow")))
    facts += [("waiting", Text(each, style="yellow")) for each in job.waiting]
    if job.error:
        facts.append(("error", Text(job.error, style="red")))
    if job.traceback:
        facts.append(("raised at", Text(job.traceback.rstrip())))
    return facts


def _snapshots(job: JobStatus, now_s: float) -> list[tuple[str, str | Text]]:
    """What the job would go back to, and how often it has."""
    facts: list[tuple[str, str | Text]] = []
    if (last := job.snapshot) is not None:
        age = shown_seconds(max(0.0, now_s - last.began_s))
        sizes = f"{shown_bytes(last.total_bytes)}, {shown_bytes(last.written_bytes)} of it written"
        facts.append(("snapshot", f"{last.number}, {age} old, took {shown_seconds(last.duration_s)}, {sizes}"))
    if job.began_with:
        facts.append(("began with", Text(f"the savepoint in {job.began_with}")))
    if job.stopped_into:
        facts.append(("stopped", Text(f"with the savepoint in {job.stopped_into}")))
    if job.recoveries:
        took = f", the last time within {shown_seconds(job.recovered_in_s)}" if job.recovered_in_s is not None else ""
        facts.append(("recoveries", f"{job.recoveries}{took}; this is generation {job.generation}"))
    if job.snapshot_problem:
        facts.append(("snapshots", Text(job.snapshot_problem, style="yellow")))
    return facts


def _objective(job: JobStatus) -> list[tuple[str, str | Text]]:
    if job.latency_objective_ms is None or job.target is None:
        return []
    satisfaction = job.metrics.satisfaction
    told = Text(f"{shown_objective(job.latency_objective_ms)} for {job.target * 100:g} % of the results")
    if satisfaction.results is not None:
        told = Text.assemble(told, ": ", in_time_of(job), " were in time")
    facts: list[tuple[str, str | Text]] = [("objective", told)]
    for what, count, causes in (
        ("results", satisfaction.late_results, satisfaction.why_results),
        ("messages", satisfaction.late_messages, satisfaction.why_messages),
    ):
        if count:
            facts.append((f"late {what}", f"{count:,}: {why_late(causes)}"))
    return facts
