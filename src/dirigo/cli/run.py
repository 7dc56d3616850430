"""``dirigo run``: runs the dataflows of a Python file to their end, on a cluster that is there for them alone."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from dirigo.cli.connection import one_line_errors
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.progress import figures_of, follow, outcome, tell_failure
from dirigo.cli.display.status_tables import closing_tables
from dirigo.cli.own_cluster import check_workers, own_cluster
from dirigo.cli.strategies import StrategyName, given
from dirigo.flow.api.dataflow import Dataflow, live_nodes
from dirigo.flow.api.files import load_flows
from dirigo.runtime.client.job import Job
from dirigo.runtime.errors import ControlError
from dirigo.spark.connection import dataframes_of
from dirigo.spark.service.service import AnyCluster

_File = typer.Argument(metavar="FILE.py", help="A Python file that assigns a Dataflow to a name at its top level.")


def run(
    file: Path = _File,
    workers: int | None = typer.Option(
        None, "--workers", metavar="N", help="How many workers; one per core if not given.", show_default=False
    ),
    master: str | None = typer.Option(
        None, "--master", metavar="URL", help="A Spark master, if not this machine.", show_default=False
    ),
    strategy: str | None = StrategyName,
    json_file: Path | None = JsonFile,
) -> None:
    """Run all dataflows of a Python file to their end, on a cluster that is started for them and stopped after them.

    The file is executed here, as in an import, so keep run(...) under `if __name__ == "__main__":`. If a job fails, the
    others are cancelled, and the exit code is 1. Ctrl-C cancels all jobs.

    Examples:

        dirigo run shop.py

        dirigo run shop.py --workers 4 --json build/run.json

        dirigo run shop.py --strategy edf
    """
    logging.getLogger("dirigo").addHandler(logging.NullHandler())  # what went wrong is told at the end, once
    with one_line_errors():
        flows = load_flows(file)
        _check(flows)
        check_workers(workers)
        settings = {"workers": workers, "master": master, "spark": _session_of(flows), **given(strategy)}
        with own_cluster(**settings) as cluster:
            is_good = _run(cluster, flows, json_file)
    if not is_good:
        raise typer.Exit(1)


def _run(cluster: AnyCluster, flows: list[Dataflow], json_file: Path | None) -> bool:
    jobs: list[Job] = []
    try:
        for flow in flows:
            jobs.append(cluster.submit(flow))  # noqa: PERF401 - those that were submitted must be known if one is refused
        ended = follow(cluster.client, jobs)
        problems = [outcome(job, status) for job, status in zip(jobs, ended, strict=True)]
    except BaseException:
        for job in jobs:
            with suppress(ControlError):
                job.cancel()
        raise
    console.print(closing_tables(ended))
    write_json(json_file, {"jobs": [figures_of(job) for job in ended]})
    for problem in problems:
        if problem is not None:
            tell_failure(*problem)
    return not any(problems) and all(status.state == "finished" for status in ended)


def _check(flows: list[Dataflow]) -> None:
    """Find what is wrong before Spark is started, which takes a while."""
    names = Counter(flow.name for flow in flows)
    for name, count in names.items():
        if count > 1:
            raise ControlError(f"{count} dataflows have the name '{name}'; give each a name of its own.")
    for flow in flows:
        live_nodes(flow)


def _session_of(flows: list[Dataflow]) -> Any:
    """The file's own Spark session, if its dataflows read DataFrames: there is room for one in a process."""
    sessions = [session for flow in flows for session in dataframes_of(flow).values()]
    return sessions[0] if sessions else None
