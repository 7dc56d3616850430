"""``dirigo cluster``: a cluster in the background, to which jobs can be submitted."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.markup import escape
from rich.status import Status

from dirigo.cli.connection import DEFAULT_CLUSTER, connected, named, one_line_errors, running
from dirigo.cli.display.amounts import shown_seconds
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.progress import status_figures
from dirigo.cli.display.status_tables import LIVE, workers_table
from dirigo.cli.own_cluster import check_workers
from dirigo.cli.signals import INTERRUPTED, may_say_cancelled
from dirigo.cli.snapshots import absolute
from dirigo.cli.strategies import StrategyName, given
from dirigo.flow.api.duration import positive_milliseconds
from dirigo.runtime.client.client import Client
from dirigo.runtime.control import JobStatus
from dirigo.runtime.errors import ControlError
from dirigo.spark.service import file as service_file
from dirigo.spark.service import service
from dirigo.spark.service.file import RunningService

app = typer.Typer(no_args_is_help=True, help="Start, look at and stop a cluster that runs in the background.")
_Name = typer.Option(DEFAULT_CLUSTER, "--name", metavar="NAME", help="The cluster, if it has a name of its own.")


@app.command("start")
def start(
    name: str = _Name,
    workers: int | None = typer.Option(
        None, "--workers", metavar="N", help="How many workers; one per core if not given.", show_default=False
    ),
    master: str | None = typer.Option(
        None, "--master", metavar="URL", help="A Spark master, if not this machine.", show_default=False
    ),
    host: str | None = typer.Option(
        None,
        "--host",
        metavar="ADDRESS",
        help="Where workers and clients reach it: 127.0.0.1 if not given.",
        show_default=False,
    ),
    logs: Path | None = typer.Option(
        None, "--logs", metavar="DIR", help="The folder for results logs, if not the cluster's own.", show_default=False
    ),
    strategy: str | None = StrategyName,
    snapshots: str | None = typer.Option(
        None,
        "--snapshots",
        metavar="URI",
        help="The folder for snapshots of jobs, if not the cluster's own.",
        show_default=False,
    ),
    snapshots_every: str = typer.Option(
        service.SNAPSHOTS_EVERY, "--snapshots-every", metavar="TIME", help="How often; results become visible with them."
    ),
    no_snapshots: bool = typer.Option(False, "--no-snapshots", help="Take none: a job whose worker is lost fails."),
) -> None:
    """Start a cluster in the background, and wait until all its workers are ready.

    Jobs that a cluster of this name was running when it died go on from their last snapshots.

    Its state is in $DIRIGO_HOME/clusters/NAME (DIRIGO_HOME is ~/.dirigo if not set): the log of its process, results of
    jobs, and the keys by which the other commands get in, which only you can read.

    Examples:

        dirigo cluster start

        dirigo cluster start --strategy fifo

        dirigo cluster start --snapshots s3://bucket/snapshots --snapshots-every 10s

        dirigo cluster start --name big --workers 16 --master spark://one:7077 --host 10.0.0.5
    """
    check_workers(workers)
    with one_line_errors():
        given(strategy)
        positive_milliseconds(snapshots_every, "--snapshots-every")
        if no_snapshots and snapshots is not None:
            raise ControlError("--snapshots names a folder for what --no-snapshots does not take; give one of them.")
    settings = service.ServiceSettings(
        name,
        workers,
        master,
        host,
        None if logs is None else str(logs.absolute()),
        strategy,
        None if no_snapshots else absolute(snapshots or ""),
        snapshots_every,
    )
    try:
        with one_line_errors(), console.status("starting Spark ...") as status:
            started = service.start(settings, _Progress(status).show)
    except KeyboardInterrupt:
        if may_say_cancelled():
            console.print("not started")
        raise typer.Exit(INTERRUPTED) from None
    assert started.access is not None
    with one_line_errors(), Client(started.access) as client:
        now = client.status()
    here = named(name)
    console.print(f"[green]cluster '{escape(name)}' runs[/]: {len(now.workers)} workers, process {started.pid}")
    for job in now.jobs:  # nobody can have submitted one yet
        console.print(escape(_resumed(job)), soft_wrap=True)
    for what, command in (
        ("submit a job", f"dirigo submit FILE.py{here}"),
        ("watch it", f"dirigo top{here}"),
        ("stop it", f"dirigo cluster stop{named(name, '--name')}"),
        ("its log", str(service_file.log_file_of(name))),
    ):
        console.print(f"  {what:<14}{escape(command)}", soft_wrap=True)


def _resumed(job: JobStatus) -> str:
    """What became of a job of the cluster that died."""
    if job.state == "failed":
        return f"not resumed: {job.id}: {job.error}"
    return f"resumed: {job.id} from " + (f"snapshot {job.restored_from}" if job.restored_from else "its beginning")


class _Progress:
    """How many workers have come so far."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def show(self, starting: RunningService | None) -> None:
        if starting is None or starting.access is None:
            return
        try:
            with Client(starting.access, answer_s=2.0) as client:
                workers = client.status().workers
        except ControlError:
            return  # the process itself tells what is wrong
        ready = sum(worker.state == "ready" for worker in workers)
        self._status.update(f"{ready} of {len(workers)} workers are ready ...")


@app.command("status")
def status(name: str = _Name, json_file: Path | None = JsonFile) -> None:
    """Show how a cluster is: its process, its workers, and how many jobs it has.

    Example: dirigo cluster status --json build/cluster.json
    """
    found = running(name, "--name")
    with connected(name, "--name") as client:
        now = client.status()
    live = sum(job.state in LIVE for job in now.jobs)
    console.print(
        f"[bold]cluster '{escape(name)}'[/] is {found.state}: process {found.pid} on {escape(found.machine)}, "
        f"up {shown_seconds(now.uptime_s)}, jobs: {live} running, {len(now.jobs) - live} over",
        soft_wrap=True,
    )
    console.print(workers_table(now.workers))
    for worker in now.workers:
        if worker.state != "ready" and worker.problem:
            console.print(f"[yellow]worker {worker.id}[/]: {escape(worker.problem)}", soft_wrap=True)
    for reason, count in now.refused.items():
        console.print(f"[yellow]refused {count} times[/]: {escape(reason)}", soft_wrap=True)
    console.print(escape(f"log: {service_file.log_file_of(name)}"), soft_wrap=True)
    process = {"state": found.state, "pid": found.pid, "machine": found.machine}
    write_json(json_file, process | status_figures(now))


@app.command("resize")
def resize(
    workers: int = typer.Argument(metavar="N", help="How many workers it is to have."),
    name: str = _Name,
    json_file: Path | None = JsonFile,
) -> None:
    """Have a cluster start more workers, or let some of them go. It does not wait for that.

    More come as soon as Spark has slots for them; of fewer, those leave that no running job needs.

    Example: dirigo cluster resize 8
    """
    with connected(name, "--name") as client:
        before = len(client.status().workers)
        client.resize(workers)
        now = client.status()
    console.print(escape(f"cluster '{name}' is to have {workers} workers, and had {before}"))
    console.print(escape(f"watch it with 'dirigo top{named(name)}'"))
    write_json(json_file, {"wanted": workers, "before": before} | status_figures(now))


@app.command("stop")
def stop(name: str = _Name) -> None:
    """Stop a cluster: its jobs are cancelled, and all its processes end.

    Example: dirigo cluster stop
    """
    found = running(name, "--name")
    with one_line_errors(), console.status("stopping ..."):
        how = service.stop(found)
    console.print(escape(f"cluster '{name}' is {how}"))
