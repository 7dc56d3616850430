"""``dirigo submit``, ``jobs``, ``cancel``, ``drain`` and ``savepoint``: jobs on a cluster that runs in the background."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from dirigo.cli.connection import ClusterName, connected, connected_service, named, one_line_errors
from dirigo.cli.display.amounts import bytes_of
from dirigo.cli.display.job_details import job_details
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.progress import figures_of, follow, outcome, sinks_here, tell_failure
from dirigo.cli.display.status_tables import closing_tables, jobs_table, notes, running_first
from dirigo.cli.flows import one_flow
from dirigo.cli.signals import INTERRUPTED, may_say_cancelled, shield
from dirigo.cli.strategies import StrategyOfJob, given
from dirigo.flow.api.dataflow import Dataflow
from dirigo.kernel import job_of
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.client.savepoints import SAVEPOINT_S, place_of, seconds_of
from dirigo.runtime.control import STOP_AFTER_S
from dirigo.runtime.errors import ControlError
from dirigo.spark.connection import Service, dataframes_of

_ERRORS_SHOWN = 5
_NOTES_MOST = 10
_CANCEL_S = 3.0  # for a job that was cancelled to be over
_STOPS_SOON_S = 1.0  # its code, usually
_File = typer.Argument(metavar="FILE.py", help="A Python file that assigns a Dataflow to a name at its top level.")
_JobName = typer.Argument(metavar="JOB", help="The name of a job (the newest of that name), or its id.")
_OneJob = typer.Argument(None, metavar="JOB", help="Tell all about this job, by its name or id.", show_default=False)


def submit(
    file: Path = _File,
    cluster: str = ClusterName,
    name: str | None = typer.Option(
        None, "--name", metavar="JOB", help="The name of the job; that of the dataflow if not given.", show_default=False
    ),
    wanted: str = typer.Option("", "--flow", metavar="NAME", help="The dataflow, if the file has several."),
    budget: str = typer.Option("64MiB", "--budget", metavar="SIZE", help="When more waits in queues, sources stop a while."),
    strategy: str | None = StrategyOfJob,
    snapshots_every: str | None = typer.Option(
        None,
        "--snapshots-every",
        metavar="TIME",
        help="How often a snapshot is taken; as often as the cluster says if not given.",
        show_default=False,
    ),
    savepoint: str | None = typer.Option(
        None,
        "--savepoint",
        metavar="PATH",
        help="The folder of a savepoint that the job goes on from: a path, or a URI.",
        show_default=False,
    ),
    dropped: list[str] = typer.Option(
        [], "--dropped", metavar="NAME", help="An operator of the savepoint whose state is given up.", show_default=False
    ),
    renamed: list[str] = typer.Option(
        [], "--renamed", metavar="OLD=NEW", help="An operator of the savepoint and its name now.", show_default=False
    ),
    wait: bool = typer.Option(False, "--wait", "--follow", help="Show how the job gets on, and wait for its end."),
) -> None:
    """Run a dataflow of a Python file as a job on a cluster.

    The file is executed here, as in an import, so keep run(...) under `if __name__ == "__main__":`. The job goes on
    when this command has ended, unless you wait for it: then rows for to_memory(), to_callback() and to_console() come
    here.

    Examples:

        dirigo submit shop.py

        dirigo submit shop.py --flow orders --name orders-eu --budget 256MB

        dirigo submit shop.py --savepoint /srv/savepoints/orders --renamed sums=totals

        dirigo submit shop.py --wait
    """
    with one_line_errors():
        flow = one_flow(file, wanted)
        how = {
            "name": name,
            "budget_bytes": bytes_of(budget, "--budget"),
            "snapshots_every": snapshots_every,
            "savepoint": savepoint,
            "dropped": dropped,
            "renamed": _renames(renamed),
            **given(strategy),
        }
        if not wait:
            _refuse_what_belongs_here(flow)
    with connected_service(cluster) as service, _submitted(service, flow, how, cluster) as job:
        if wait:
            _wait_for(service.client, job)
        else:
            console.print(escape(f"job '{job.name}' is submitted as {job.id}"))
            console.print(escape(f"watch it with 'dirigo top{named(cluster)}'"))


def _renames(given: list[str]) -> dict[str, str]:
    renames = dict(each.partition("=")[::2] for each in given)
    for old, new in renames.items():
        if not old or not new:
            raise ControlError(f"--renamed takes the old name and the new one, such as sums=totals, not '{old or new}'.")
    return renames


def _refuse_what_belongs_here(flow: Dataflow) -> None:
    sinks, sources = sinks_here(flow), dataframes_of(flow)
    if sinks:
        raise ControlError(
            f"rows of sink '{sinks[0]}' come to whoever submits the job, who must wait for them; "
            "add --wait, or end the stream with to_parquet(), to_json_lines() or to_spark()."
        )
    if sources:
        raise ControlError(
            f"the DataFrame of source '{next(iter(sources))}' is read by whoever submits the job, who must stay; "
            "add --wait, or write it into the job from a Spark application of its own."
        )


@contextmanager
def _submitted(service: Service, flow: Dataflow, how: dict[str, Any], cluster: str) -> Iterator[Job]:
    job = None
    try:
        with shield():  # so that whoever interrupts learns of the job
            job = service.submit(flow, **how)
        yield job
    except KeyboardInterrupt:
        if job is None:
            raise
        _say_what_becomes_of(job, cluster, is_fed_here=bool(dataframes_of(flow)))
        raise typer.Exit(INTERRUPTED) from None


def _say_what_becomes_of(job: Job, cluster: str, *, is_fed_here: bool) -> None:
    may_say_cancelled()
    if is_fed_here:
        job.drain()
        console.print(escape(f"job {job.id} gets no more rows from here, and ends when it has done those that it has"))
    else:
        console.print(escape(f"job {job.id} goes on; end it with 'dirigo cancel {job.id}{named(cluster)}'"))


def _wait_for(client: Client, job: Job) -> None:
    (status,) = follow(client, [job])
    problem = outcome(job, status)
    console.print(closing_tables([status]))
    if problem is not None:
        tell_failure(*problem)
    if problem is not None or status.state != "finished":
        raise typer.Exit(1)


# --- what there is ---------------------------------------------------------------------------------------------------------


def jobs(job: str | None = _OneJob, cluster: str = ClusterName, json_file: Path | None = JsonFile) -> None:
    """List the jobs of a cluster: those that run first, then the last ones that are over; or tell all about one of them.

    Examples:

        dirigo jobs --json build/jobs.json

        dirigo jobs orders
    """
    with connected(cluster) as client:
        found = running_first(client.jobs()) if job is None else [client.job_status(job)]
    if job is not None:
        console.print(job_details(found[0], time.time()))
    elif found:
        console.print(jobs_table(found, time.time()))
        for note in notes(found, with_each_strategy=False)[:_NOTES_MOST]:
            console.print(note)
        for each in [each for each in found if each.state == "failed"][:_ERRORS_SHOWN]:
            console.print(f"[red]{escape(each.id)}[/]: {escape(each.error or 'failed')}", soft_wrap=True)
    else:
        console.print(escape(f"no jobs yet; submit one with 'dirigo submit FILE.py{named(cluster)}'"))
    write_json(json_file, {"jobs": [figures_of(each) for each in found]})


def cancel(job: str = _JobName, cluster: str = ClusterName) -> None:
    """Stop a job at once; what it had not finished is lost.

    Example: dirigo cancel orders
    """
    with connected(cluster) as client:
        status = client.cancel(job)
        stuck: list[int] = []
        with suppress(ControlError):  # the job is cancelled all the same
            stuck = _stuck_in(client, status.id)
    console.print(escape(f"job {status.id} is cancelled"))
    for worker in stuck:
        console.print(
            f"[yellow]worker {worker} still executes its code; if that does not stop within {STOP_AFTER_S:g} s, the worker "
            "is ended and started again, and other jobs that use it fail[/]",
            soft_wrap=True,
        )


def _stuck_in(client: Client, job: str) -> list[int]:
    """The workers where code of a job that was cancelled goes on; most code stops as soon as it is asked to."""
    client.job_status(job, wait_s=_CANCEL_S)
    until = time.monotonic() + _STOPS_SOON_S
    while True:
        stuck = [each.id for each in client.status().workers if each.leftover and job_of(each.leftover) == job]
        if not stuck or time.monotonic() >= until:
            return stuck
        time.sleep(0.1)


def drain(job: str = _JobName, cluster: str = ClusterName) -> None:
    """Stop reading a job's sources: what has been read is worked to its end, and open windows are closed.

    Example: dirigo drain orders
    """
    with connected(cluster) as client:
        status = client.end_sources(job)
    console.print(escape(f"job {status.id} reads no more, and finishes what it has; see 'dirigo jobs{named(cluster)}'"))


def savepoint(
    job: str = _JobName,
    path: str = typer.Argument(metavar="PATH", help="An empty folder for it, or one that is not there: a path, or a URI."),
    stop: bool = typer.Option(False, "--stop", help="End the job with it."),
    timeout: float = typer.Option(SAVEPOINT_S, "--timeout", metavar="SECONDS", help="How long to wait for it."),
    cluster: str = ClusterName,
) -> None:
    """Take a snapshot of a job now, and keep it in a folder of its own; another job can go on from it.

    With --stop the job has come to exactly what the savepoint holds, and is finished.

    Examples:

        dirigo savepoint orders /srv/savepoints/orders

        dirigo savepoint orders /srv/savepoints/orders --stop
    """
    with connected(cluster) as client:
        status = client.savepoint(job, place_of(path), seconds_of(timeout), stops=stop)
    console.print(escape(f"the savepoint of job {status.id} is in {place_of(path)}"), soft_wrap=True)
    if stop:
        again = f"dirigo submit FILE.py --savepoint {path}{named(cluster)}"
        console.print(escape(f"job {status.id} is stopped; go on with '{again}'"), soft_wrap=True)
