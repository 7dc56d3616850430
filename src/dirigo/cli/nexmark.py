"""``dirigo nexmark``: runs Nexmark queries over generated events, or writes the events themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from dirigo.cli.output import JsonFile, console, fail, write_json
from dirigo.kernel import DirigoError
from dirigo.nexmark.checking import ENGINES, check_engine, differences
from dirigo.nexmark.events import write_events
from dirigo.nexmark.generator import RATE, Generator
from dirigo.nexmark.queries import QUERIES
from dirigo.nexmark.running import RunReport, check_run, query_named, run_query

_EVENTS = 100_000
_WORKERS_IN_CHAOS = 3
_GENERATE, _ALL = "generate", "all"
_SECONDS_BETWEEN_UPDATES = 0.05
_Queries = typer.Argument(
    None, metavar="QUERY", help="q0 to q22 and q12_event, or 'all'; 'generate' writes the events.", show_default=False
)


def nexmark(
    queries: list[str] = _Queries,
    events: int = typer.Option(_EVENTS, "--events", metavar="N", help="How many events; 46 of 50 are bids."),
    rate: int = typer.Option(RATE, "--rate", metavar="R", help="Events per second of event time."),
    host: str = typer.Option("sim", "--host", metavar="NAME", help="Where to run: sim, in this process."),
    out: Path | None = typer.Option(
        None, "--out", metavar="DIR", help="Write results to DIR/QUERY/*.parquet; without it they are only counted."
    ),
    json_file: Path | None = JsonFile,
    workers: int | None = typer.Option(
        None, "--workers", metavar="N", help="Simulated workers: 1, or 3 with --chaos.", show_default=False
    ),
    chaos: bool = typer.Option(False, "--chaos", help="Reorder and delay whatever may be; results must not change."),
    seed: int = typer.Option(0, "--seed", metavar="S", help="The seed of the simulation; events are always the same."),
    check: str | None = typer.Option(
        None, "--check", metavar="ENGINE", help="Compare all rows with a batch query of duckdb or spark.", show_default=False
    ),
    listing: bool = typer.Option(False, "--list", help="List the queries."),
) -> None:
    """Run Nexmark queries over generated events, and tell how many events per second they took.

    Examples:

        dirigo nexmark q7

        dirigo nexmark q3 q8 --events 1000000 --out build/results --json build/nexmark.json

        dirigo nexmark all --chaos --workers 4 --seed 7

        dirigo nexmark q7 q12_event --check spark

        dirigo nexmark generate --events 1000000 --rate 10000 --out build/events

        dirigo nexmark --list
    """
    try:
        if listing:
            _list()
        elif queries and _GENERATE in queries:
            _generate(queries, events, rate, out)
        else:
            if workers is None:
                workers = _WORKERS_IN_CHAOS if chaos else 1
            how = {"host": host, "workers": workers, "chaos": chaos, "seed": seed}
            with nullcontext(out) if out is not None or check is None else _passing_folder() as results:
                reports = _run(_chosen(queries or []), events, rate, results, how, check)
                equal = {} if check is None or results is None else _check(reports, rate, results, check)
            console.print(_results(reports, equal, check))
            if out is not None:
                console.print(escape(f"results written to {out}"), soft_wrap=True)
            figures = [_figures(report, rate, host) | _verdict(equal, report.query) for report in reports]
            write_json(json_file, {"queries": figures})
            if not all(equal.values()):
                raise typer.Exit(1)
    except DirigoError as error:
        fail(escape(str(error)))
    except OSError as error:
        fail(escape(f"cannot write {error.filename or out}: {error.strerror}"))


# --- queries ---------------------------------------------------------------------------------------------------------------


def _chosen(words: list[str]) -> list[str]:
    if not words:
        fail("name one or more queries, for example q7, or 'all'; 'dirigo nexmark --list' shows them")
    names = [name for word in words for name in (QUERIES if word == _ALL else [query_named(word).name])]
    return list(dict.fromkeys(names))


def _run(
    names: list[str], events: int, rate: int, out: Path | None, how: dict[str, Any], check: str | None
) -> list[RunReport]:
    check_run(events, rate, how["host"], how["workers"])
    if check is not None:
        check_engine(check)
    reports = []
    with _progress() as progress:
        for name in names:
            task = progress.add_task(name, total=events)
            reports.append(run_query(name, events, rate, out, **how, progress=_updates(progress, task)))
            progress.remove_task(task)
    return reports


@contextmanager
def _passing_folder() -> Iterator[Path]:
    """Where results lie only until they have been compared."""
    with TemporaryDirectory(prefix="dirigo-results-") as folder:
        yield Path(folder)


def _check(reports: list[RunReport], rate: int, results: Path, engine: str) -> dict[str, bool]:
    """Query -> whether its rows are those of another engine; tells what differs."""
    equal = {}
    with console.status(f"asking {ENGINES[engine]} the same ..."):
        names = [report.query for report in reports]
        for name, difference in differences(names, reports[0].events, rate, results, engine):
            equal[name] = difference is None
            if difference is not None:
                console.print(f"[red]{name} differs from {ENGINES[engine]}:[/] {escape(difference)}")
    return equal


def _verdict(equal: dict[str, bool], name: str) -> dict[str, Any]:
    return {"equal": equal[name]} if name in equal else {}


def _results(reports: list[RunReport], equal: dict[str, bool], check: str | None) -> Table:
    table = Table(title="Nexmark")
    table.add_column("query")
    for heading in ("events", "rows", "seconds", "events/s"):
        table.add_column(heading, justify="right")
    if check:
        table.add_column(f"equal to {ENGINES[check]}")
    for report in reports:
        figures = (f"{report.events:,}", f"{report.rows:,}", f"{report.seconds:.2f}", f"{report.events_per_s:,.0f}")
        verdict = {True: "[green]all rows[/]", False: "[red]no[/]", None: "not repeatable"}[equal.get(report.query)]
        table.add_row(report.query, *figures, *([verdict] if check else []))
    return table


def _figures(report: RunReport, rate: int, host: str) -> dict[str, Any]:
    return {
        "query": report.query,
        "events": report.events,
        "rate": rate,
        "host": host,
        "rows": report.rows,
        "seconds": round(report.seconds, 6),
        "events_per_second": round(report.events_per_s),
    }


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
