"""``dirigo nexmark``: runs Nexmark queries over generated events, or writes the events themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from dirigo import SLO
from dirigo.cli.display.output import JsonFile, console, fail, write_json
from dirigo.cli.own_cluster import own_cluster
from dirigo.cli.strategies import StrategyOnHost, given
from dirigo.errors import DirigoError
from dirigo.nexmark.generator import RATE, Generator
from dirigo.runtime.control import JobStatus
from dirigo.runtime.folders import OwnFolder
from dirigo_lab.commands.nexmark_tables import figures_of, notes, results_table
from dirigo_lab.nexmark.check import ENGINES, check_engine, differences
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.run import RunReport, check_run, query_named, run_query

_EVENTS = 100_000
_WORKERS_IN_CHAOS = 3
_WORKERS_ON_SPARK = 2
_GENERATE, _ALL = "generate", "all"
_SECONDS_BETWEEN_UPDATES = 0.05
_Queries = typer.Argument(
    None, metavar="QUERY", help="q0 to q22 and q12_event, or 'all'; 'generate' writes the events.", show_default=False
)


def nexmark(
    queries: list[str] = _Queries,
    events: int = typer.Option(_EVENTS, "--events", metavar="N", help="How many events; 46 of 50 are bids."),
    rate: int = typer.Option(RATE, "--rate", metavar="R", help="Events per second of event time."),
    host: str = typer.Option(
        "spark", "--host", metavar="NAME", help="Where to run: spark, on workers in Spark; or sim, in this process."
    ),
    out: Path | None = typer.Option(
        None, "--out", metavar="DIR", help="Write results to DIR/QUERY/*.parquet; without it they are only counted."
    ),
    json_file: Path | None = JsonFile,
    workers: int | None = typer.Option(
        None, "--workers", metavar="N", help="Workers: 2 on Spark; simulated 1, or 3 with --chaos.", show_default=False
    ),
    master: str | None = typer.Option(
        None, "--master", metavar="URL", help="The Spark master; without it Spark runs in this process.", show_default=False
    ),
    paced: bool = typer.Option(False, "--paced", help="Release events in real time, not as fast as possible."),
    strategy: str | None = StrategyOnHost,
    slo: str | None = typer.Option(
        None,
        "--slo",
        metavar="TIME",
        help="An objective: the longest latency of a result, as 200ms.",
        show_default=False,
    ),
    chaos: bool = typer.Option(
        False, "--chaos", help="With --host sim: reorder and delay whatever may be; results must not change."
    ),
    seed: int = typer.Option(0, "--seed", metavar="S", help="With --host sim: the seed; events are always the same."),
    check: str | None = typer.Option(
        None, "--check", metavar="ENGINE", help="Compare all rows with a batch query of duckdb or spark.", show_default=False
    ),
    listing: bool = typer.Option(False, "--list", help="List the queries."),
) -> None:
    """Run Nexmark queries over generated events, and tell how many events per second they took.

    On Spark, several queries run at once, as jobs that share one pool of workers.

    Examples:

        dirigo nexmark q7

        dirigo nexmark q7 q12_event --events 10000000 --workers 2 --check spark

        dirigo nexmark q7 --paced --rate 50000 --events 1000000

        dirigo nexmark q5 q7 --paced --strategy edf --slo 200ms

        dirigo nexmark q3 q8 --master spark://host:7077 --out build/results --json build/nexmark.json

        dirigo nexmark all --host sim --chaos --workers 4 --seed 7

        dirigo nexmark generate --events 1000000 --rate 10000 --out build/events

        dirigo nexmark --list
    """
    try:
        if listing:
            _list()
        elif queries and _GENERATE in queries:
            _generate(queries, events, rate, out)
        else:
            _refuse_mixtures(host, master, paced, chaos, seed)
            if workers is None:
                workers = _WORKERS_ON_SPARK if host == "spark" else _WORKERS_IN_CHAOS if chaos else 1
            names = _chosen(queries or [])
            check_run(events, rate, host, workers)
            how = given(strategy)
            objective = None if slo is None else SLO(latency=slo)
            if check is not None:
                check_engine(check)
            with nullcontext(out) if out is not None or check is None else _passing_folder() as results:
                if host == "spark":
                    settings = {"workers": workers, "master": master, **how}
                    reports, equal = _run_on_spark(names, events, rate, results, settings, objective, paced, check)
                else:
                    how |= {"workers": workers, "chaos": chaos, "seed": seed, "slo": objective}
                    reports = _run_on_sim(names, events, rate, results, how)
                    equal = {} if check is None or results is None else _check(reports, rate, results, check)
            console.print(results_table(reports, equal, check))
            for note in notes(reports):
                console.print(note)
            if out is not None:
                console.print(escape(f"results written to {out}"), soft_wrap=True)
            write_json(json_file, {"queries": [figures_of(report, rate, host, equal) for report in reports]})
            if not all(equal.values()):
                raise typer.Exit(1)
    except DirigoError as error:
        fail(escape(" ".join(str(error).split())))
    except OSError as error:
        fail(escape(f"cannot write {error.filename or out}: {error.strerror}"))


# --- queries ---------------------------------------------------------------------------------------------------------------


def _chosen(words: list[str]) -> list[str]:
    if not words:
        fail("name one or more queries, for example q7, or 'all'; 'dirigo nexmark --list' shows them")
    names = [name for word in words for name in (QUERIES if word == _ALL else [query_named(word).name])]
    return list(dict.fromkeys(names))


def _refuse_mixtures(host: str, master: str | None, paced: bool, chaos: bool, seed: int) -> None:
    if host == "spark" and (chaos or seed):
        fail("chaos and its seed belong to the simulator: add --host sim")
    if host == "sim" and (master is not None or paced):
        fail("the simulator has neither a master nor real time: leave out --master and --paced, or use --host spark")


def _run_on_sim(names: list[str], events: int, rate: int, out: Path | None, how: dict[str, Any]) -> list[RunReport]:
    reports = []
    with _progress() as progress:
        for name in names:
            task = progress.add_task(name, total=events)
            reports.append(run_query(name, events, rate, out, "sim", **how, progress=_updates(progress, task)))
            progress.remove_task(task)
    return reports


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(escape(f"{out} cannot be made a folder: {error.strerror}"))


def _run_on_spark(
    names: list[str],
    events: int,
    rate: int,
    out: Path | None,
    settings: dict[str, Any],
    objective: SLO | None,
    paced: bool,
    check: str | None,
) -> tuple[list[RunReport], dict[str, bool]]:
    from dirigo_lab.nexmark.on_spark import run_on_cluster

    workers = settings["workers"]
    if out is not None:
        _make_folder(out)  # or it would be noticed only when Spark has started
    began = time.monotonic()
    with own_cluster(**settings) as cluster:
        ready_s = time.monotonic() - began
        first_s: float | None = None
        with _progress() as progress:
            tasks = {name: progress.add_task(name, total=events) for name in names}

            def told(jobs: Mapping[str, tuple[int, JobStatus]]) -> None:
                nonlocal first_s
                for name, (done, status) in jobs.items():
                    progress.update(tasks[name], completed=done)
                    if first_s is None and status.metrics.rows_out:
                        first_s = time.monotonic() - began

            how: dict[str, Any] = {"workers": workers, "paced": paced, "slo": objective, "progress": told}
            reports = run_on_cluster(cluster, names, events, rate, out, **how)
        results = "" if first_s is None else f", the first results there after {first_s:.1f} s"
        console.print(f"Spark and {workers} workers were ready after {ready_s:.1f} s{results}", soft_wrap=True)
        equal = {} if check is None or out is None else _check(reports, rate, out, check, getattr(cluster, "spark", None))
    return reports, equal


@contextmanager
def _passing_folder() -> Iterator[Path]:
    """Where results lie only until they have been compared."""
    with OwnFolder("results") as folder:
        yield folder


def _check(reports: list[RunReport], rate: int, results: Path, engine: str, spark: Any = None) -> dict[str, bool]:
    """Query -> whether its rows are those of another engine; tells what differs."""
    equal = {}
    with console.status(f"asking {ENGINES[engine]} the same ..."):
        names = [report.query for report in reports]
        for name, difference in differences(names, reports[0].events, rate, results, engine, spark):
            equal[name] = difference is None
            if difference is not None:
                console.print(f"[red]{name} differs from {ENGINES[engine]}:[/] {escape(difference)}")
    return equal


# --- events ----------------------------------------------------------------------------------------------------------------


def _generate(words: list[str], events: int, rate: int, out: Path | None) -> None:
    if words != [_GENERATE]:
        fail("'generate' stands alone: run the queries with a command of their own")
    if out is None:
        fail("say where to write the events: add --out DIR")
    check_run(events, rate, host="sim", workers=1)
    generator = Generator(rate=rate)
    began = time.perf_counter()
    with _progress() as progress:
        task = progress.add_task("writing events", total=events)
        write_events(generator, events, out, _updates(progress, task))
    seconds = time.perf_counter() - began
    table = Table(title="Nexmark's events")
    table.add_column("kind")
    table.add_column("rows", justify="right")
    table.add_column("folder")
    for kind, rows in zip(("person", "auction", "bid"), generator.counts(0, events), strict=True):
        table.add_row(kind, f"{rows:,}", escape(str(out / kind)))
    console.print(table)
    console.print(f"{events:,} events in {seconds:.1f} s")


# --- listing and progress --------------------------------------------------------------------------------------------------


def _list() -> None:
    table = Table(title="Nexmark's queries")
    table.add_column("name", no_wrap=True)
    table.add_column("result")
    table.add_column("repeatable")
    for query in QUERIES.values():
        table.add_row(query.name, query.title, "yes" if query.is_deterministic else "no")
    console.print(table)


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} events"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _updates(progress: Progress, task: TaskID) -> Callable[[int], None]:
    """Passes on how far a run is, but not so often that telling takes longer than running."""
    next_s = 0.0

    def update(done: int) -> None:
        nonlocal next_s
        now_s = time.monotonic()
        if now_s >= next_s:
            next_s = now_s + _SECONDS_BETWEEN_UPDATES
            progress.update(task, completed=done)

    return update
