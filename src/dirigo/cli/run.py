"""``dirigo run``: runs the dataflows of a Python file to their end, on a cluster that is there for them alone."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import typer

from dirigo.cli.connecting import INTERRUPTED, one_line_errors
from dirigo.cli.following import dataframes_here, figures_of, follow, outcome, tell_failure
from dirigo.cli.output import JsonFile, console, fail, write_json
from dirigo.cli.status_tables import closing_table
from dirigo.flow import Dataflow
from dirigo.flow.graph import live_nodes
from dirigo.flow.loading import load_flows
from dirigo.runtime.client import JobHandle
from dirigo.runtime.errors import ControlError
from dirigo.spark.service import READY_S, AnyCluster, new_cluster

_File = typer.Argument(metavar="FILE.py", help="A Python file that assigns a Dataflow to a name at its top level.")


def run(
    file: Path = _File,
    workers: int | None = typer.Option(
        None, "--workers", metavar="N", help="How many workers; one per core if not given.", show_default=False
    ),
    master: str | None = typer.Option(
        None, "--master", metavar="URL", help="A Spark master, if not this machine.", show_default=False
    ),
    json_file: Path | None = JsonFile,
) -> None:
    """Run all dataflows of a Python file to their end, on a cluster that is started for them and stopped after them.

    The file is executed here, as in an import, so keep run(...) under `if __name__ == "__main__":`. If a job fails, the
    others are cancelled, and the exit code is 1. Ctrl-C cancels all jobs.

    Examples:

        dirigo run shop.py

        dirigo run shop.py --workers 4 --json build/run.json
    """
    logging.getLogger("dirigo").addHandler(logging.NullHandler())  # what went wrong is told at the end, once
    with one_line_errors(), _interruptible():
        flows = load_flows(file)
        _check(flows)
        if workers is not None and workers < 1:
            fail(f"a cluster of {workers} workers does nothing; ask for 1 or more")
        cluster: AnyCluster | None = None
        try:
            with console.status("starting Spark ...") as status:
                cluster = new_cluster(workers=workers, master=master, spark=_session_of(flows))
                status.update("waiting for workers ...")
                cluster.wait_ready(READY_S)
            is_good = _run(cluster, flows, json_file)
        except KeyboardInterrupt:
            console.print("\ncancelled")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if cluster is not None:
                with _not_interruptible(), console.status("stopping ..."):
                    cluster.stop()
    if not is_good:
        raise typer.Exit(1)


def _run(cluster: AnyCluster, flows: list[Dataflow], json_file: Path | None) -> bool:
    jobs: list[JobHandle] = []
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
    console.print(closing_table(ended))
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
    sessions = [session for flow in flows for session in dataframes_here(flow).values()]
    return sessions[0] if sessions else None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Whoever ends this process with a signal wants nothing left behind, as after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _not_interruptible() -> Iterator[None]:
    """Ctrl-C pressed twice must not leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _interrupt(sign: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise KeyboardInterrupt
