"""Jobs that a command waits for: how they get on, live, and what became of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape

from dirigo.cli.display.amounts import shown_count
from dirigo.cli.display.output import console
from dirigo.cli.display.rates import Rates
from dirigo.cli.display.status_tables import LIVE, jobs_now, ran_s
from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.errors import OperatorFailure
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import ClusterStatus, JobStatus
from dirigo.runtime.errors import JobFailed

_REFRESH_S = 0.25
_errors = Console(stderr=True, highlight=False)


def follow(client: Client, jobs: Sequence[Job]) -> list[JobStatus]:
    """Show how jobs get on until all are over. When one fails the others are cancelled: they may have no end."""
    rates = Rates()
    ids = [job.id for job in jobs]
    is_cancelled = False
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            status = client.status()
            rates.note(status)
            found = {job.id: job for job in status.jobs if job.id in ids}
            mine = [found[each] for each in ids if each in found]
            live.update(Group(jobs_now(mine, rates, time.time()), _sum_of(mine)), refresh=True)
            going = [job for job in mine if job.state in LIVE]
            if not going:
                return mine
            if not is_cancelled and len(going) < len(mine) and any(job.state == "failed" for job in mine):
                is_cancelled = True
                for job in going:
                    client.cancel(job.id)
            client.job_status(going[0].id, _REFRESH_S)


def outcome(job: Job, status: JobStatus) -> tuple[str, str | None] | None:
    """Wait until a job's rows are here; what went wrong, and where, or nothing."""
    try:
        job.wait()
    except JobFailed as error:
        if error.__cause__ is None or isinstance(error.__cause__, OperatorFailure):
            return error.args[0], error.remote_traceback
        return error.args[0], "".join(traceback.format_exception(error.__cause__))  # a sink raised it, here
    except Exception as error:  # the rows do not come
        trace = "".join(traceback.format_exception(error))
        return f"job '{job.name}' failed: {status.error or f'{type(error).__name__}: {error}'}", trace
    return None


def tell_failure(sentence: str, trace: str | None) -> None:
    """One line for what went wrong, and below it where."""
    _errors.print(f"[red]error:[/] {escape(sentence)}", soft_wrap=True)
    if trace:
        _errors.print(escape(trace.rstrip()), soft_wrap=True)


def figures_of(job: JobStatus) -> dict[str, Any]:
    """A job as plain figures."""
    return _without_counts(msgspec.to_builtins(job)) | {"seconds": round(ran_s(job), 3)}


def status_figures(status: ClusterStatus) -> dict[str, Any]:
    """A cluster as plain figures."""
    figures: dict[str, Any] = msgspec.to_builtins(status)
    return figures | {"jobs": [_without_counts(job) for job in figures["jobs"]]}


def _without_counts(job: dict[str, Any]) -> dict[str, Any]:
    """Latencies by bucket mean something to this version alone; percentiles are there beside them."""
    return job | {"metrics": {name: value for name, value in job["metrics"].items() if name != "latencies"}}


def _sum_of(jobs: Sequence[JobStatus]) -> str:
    rows_in = sum(job.metrics.rows_in for job in jobs)
    rows_out = sum(job.metrics.rows_out for job in jobs)
    return f"{shown_count(rows_in)} rows in, {shown_count(rows_out)} rows out; Ctrl-C to stop"


# --- what a flow needs of the process that submits it --------------------------------------------------------------------


def sinks_here(flow: Dataflow) -> list[str]:
    """The sinks whose rows come to the process that submits the flow."""
    works = [node.work for node in flow.nodes]
    sinks = [work for work in works if isinstance(work, SinkRows)]
    return [work.name for work in sinks if work.sink.is_outside and work.sink.is_taken_by_client]
