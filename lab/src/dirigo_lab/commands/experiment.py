"""``dirigo experiment``: runs the paper's experiments and our own, and tells what came of its claims."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dirigo.cli.display.output import JsonFile, console, fail, write_json
from dirigo.cli.own_cluster import own_cluster
from dirigo.errors import DirigoError
from dirigo_lab.experiments import runner
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Claim, Experiment, Outcome, Scale, Size
from dirigo_lab.experiments.registry import EXPERIMENTS, experiment_named
from dirigo_lab.experiments.reporting.report import (
    PLACES,
    Report,
    figures_table,
    results_table,
    verdict_of,
    write_index,
    write_report,
)
from dirigo_lab.experiments.reporting.store import label_names, store
from dirigo_lab.experiments.reporting.summary import session_for, summarise

_ALL = "all"
_SEEDS, _SEEDS_OF_ALL = 3, 1  # by default; three of all would take hours
_WHERE = {Scale.PAPER: "in the simulator", Scale.MACHINE: "on Spark"}
_Names = typer.Argument(None, metavar="NAME", help="Experiments by name, or 'all'; --list shows them.", show_default=False)


def experiment(
    names: list[str] = _Names,
    scale: str = typer.Option(
        "paper", "--scale", metavar="SCALE", help="paper: the simulator, with the paper's workers; machine: Spark, here."
    ),
    seeds: int | None = typer.Option(
        None, "--seeds", metavar="K", help="Runs of each setting: 3, or 1 with --quick and for all.", show_default=False
    ),
    quick: bool = typer.Option(False, "--quick", help="Run less: minutes for all, and rough figures."),
    costs: Path | None = typer.Option(
        None,
        "--costs",
        metavar="FILE",
        help="What the runtime costs, for the simulator; dirigo costs writes it.",
        show_default=False,
    ),
    out: Path | None = typer.Option(
        None, "--out", metavar="DIR", help="Where everything goes: build/experiments/SCALE.", show_default=False
    ),
    listing: bool = typer.Option(False, "--list", help="List the experiments."),
    json_file: Path | None = JsonFile,
) -> None:
    """Run experiments, and compare what comes out with what the paper claims.

    Each setting runs once per seed. All latencies are kept as Parquet files and summarised with Spark; a page per
    experiment has its claims, a picture, all figures, and what was assumed.

    Examples:

        dirigo experiment skew

        dirigo experiment all --quick

        dirigo experiment transient --seeds 5 --json build/transient.json

        dirigo experiment all --scale machine

        dirigo experiment --list
    """
    logging.getLogger("dirigo").addHandler(logging.NullHandler())
    try:
        if listing:
            console.print(_list())
            return
        where = _scale(scale)
        chosen = _chosen(names or [], where)
        count = seeds if seeds is not None else _SEEDS_OF_ALL if quick or _ALL in (names or []) else _SEEDS
        if count < 1:
            fail(f"{count} seeds are no run; ask for 1 or more")
        size = Size.QUICK if quick else Size.FULL
        known = RuntimeCosts.measured() if costs is None else RuntimeCosts.read(costs)
        folder = out or Path("build/experiments") / where.value
        reports, failures = _run(chosen, where, size, count, known, folder)
        if len(chosen) > 1:
            _tell_all(reports)
        if reports:
            console.print(escape(f"all experiments: {write_index(folder, list(EXPERIMENTS))}"), soft_wrap=True)
            write_json(json_file, {report.experiment.name: report.figures() for report in reports})
    except DirigoError as error:
        fail(_one_line(error))
    except ConnectionError as error:
        fail(
            escape(
                f"Spark, which summarises results, is gone ({error}); what was summarised is in {folder}, run the rest again"
            )
        )
    except OSError as error:
        fail(escape(f"cannot write {error.filename or out}: {error.strerror or error}"))
    if failures:
        raise typer.Exit(1)


# --- what is asked for -----------------------------------------------------------------------------------------------------


def _list() -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("experiment", "what it asks", "scales"):
        table.add_column(heading)
    for name, each in EXPERIMENTS.items():
        scales = ", ".join(scale.value for scale in Scale if each.runs_at(scale))
        table.add_row(escape(name), escape(f"{each.title}: {each.question}"), scales)
    return table


def _scale(text: str) -> Scale:
    try:
        return Scale(text)
    except ValueError:
        fail(f"there is no scale '{escape(text)}'; use {' or '.join(scale.value for scale in Scale)}")


def _chosen(words: Sequence[str], scale: Scale) -> list[Experiment]:
    """What can run at the scale. Whoever asks for all gets a line about the others, who names one gets an error."""
    if not words:
        fail("name an experiment, or 'all'; 'dirigo experiment --list' shows them")
    named = {word: experiment_named(word) for word in words if word != _ALL}
    for each in named.values():
        if not each.runs_at(scale):
            other = next(other for other in Scale if other is not scale)
            fail(f"{each.name} runs {_WHERE[other]} only; use --scale {other.value}")
    wanted = {**EXPERIMENTS, **named} if _ALL in words else named
    for each in wanted.values():
        if not each.runs_at(scale):
            console.print(f"[dim]{escape(each.name)} is left out: it does not run {_WHERE[scale]}[/]")
    return [each for each in wanted.values() if each.runs_at(scale)]


# --- running ---------------------------------------------------------------------------------------------------------------


def _run(
    chosen: Sequence[Experiment], scale: Scale, size: Size, seeds: int, costs: RuntimeCosts, out: Path
) -> tuple[list[Report], int]:
    """One experiment after the other. One that fails does not keep the others from being run."""
    reports, failures = [], 0
    is_simulated = scale is Scale.PAPER
    with (
        _session() if is_simulated and chosen else nullcontext() as spark,  # a cluster would be in its way
        runner.simulations() as simulations,
    ):
        for each in chosen if is_simulated else ():
            simulations.begin(each, size, range(seeds), costs)
        for each in chosen:
            try:
                if is_simulated:
                    with _progress(each.name) as told:
                        outcomes = simulations.outcomes(each, told)
                else:
                    outcomes = _on_spark(each, size, seeds, costs, out / each.name)
            except runner.RunError as error:
                failures += 1
                console.print(f"[red]{_one_line(error)}[/]", soft_wrap=True)
                if error.details:
                    console.print(escape(error.details), style="dim", soft_wrap=True)
                continue
            store(outcomes, out / each.name)
            with nullcontext(spark) if spark is not None else _session() as session, console.status("summarising ..."):
                summary = summarise(session, out / each.name, outcomes)
            report = Report.of(each, scale, size, seeds, costs, summary)
            page, picture = write_report(report, out)
            _tell(report)
            console.print(escape(f"page: {page}\npicture: {picture}"), soft_wrap=True)
            reports.append(report)
    return reports, failures


@contextmanager
def _session() -> Iterator[Any]:
    with console.status("starting Spark ...") as status, session_for() as spark:
        status.stop()
        yield spark


def _on_spark(each: Experiment, size: Size, seeds: int, costs: RuntimeCosts, folder: Path) -> list[Outcome]:
    with own_cluster(workers=each.spark_workers) as cluster, _progress(each.name) as told:
        kept = partial(store, folder=folder)
        return runner.run(each, Scale.MACHINE, size, range(seeds), costs, progress=told, cluster=cluster, kept=kept)


@contextmanager
def _progress(name: str) -> Iterator[runner.Progress]:
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[setting]}[/]"),
        console=console,
        transient=True,
    )
    with progress:
        task = progress.add_task(escape(name), total=None, setting="")

        def told(done: int, total: int, setting: str) -> None:
            progress.update(task, completed=done, total=total, setting=escape(setting))

        yield told


# --- what came of it -------------------------------------------------------------------------------------------------------


def _tell(report: Report) -> None:
    each = report.experiment
    seeds = f"{report.seeds} seed{'s' if report.seeds > 1 else ''}"
    console.print(f"\n[bold]{escape(each.name)}[/]: {escape(each.title)} ({PLACES[report.scale]}, {seeds})", soft_wrap=True)
    words = len(label_names(report.summary.outcomes))
    results, figures = results_table(report.summary, ranges=False), figures_table(report.summary, ranges=False)
    if len(results) > 1:
        console.print(_plain(results, words + 1))
    elif len(figures) > 1:
        console.print(_plain(figures, words))
    if report.seeds > 1:
        console.print("[dim]medians over the seeds; the page has the ranges, and all other figures[/]")
    if report.claims:
        console.print(_claims([("", claim) for claim in report.claims]))


def _tell_all(reports: Sequence[Report]) -> None:
    claims = [(report.experiment.name, claim) for report in reports for claim in report.claims]
    if claims:
        console.print(_claims(claims))
        console.print(f"{sum(claim.holds for _, claim in claims)} of {len(claims)} claims hold")


def _claims(claims: Sequence[tuple[str, Claim]]) -> Table:
    is_named = any(name for name, _ in claims)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in (*(("experiment",) if is_named else ()), "claim", "paper", "ours", "verdict"):
        table.add_column(heading)
    for name, claim in claims:
        verdict = f"[{'green' if claim.holds else 'yellow'}]{verdict_of(claim)}[/]"
        ours = escape(claim.ours) + (f"\n[dim]{escape(claim.why)}[/]" if claim.why else "")
        cells = [escape(claim.text), escape(claim.paper), ours, verdict]
        table.add_row(*([escape(name), *cells] if is_named else cells))
    return table


def _plain(cells: Sequence[Sequence[str]], words: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(cells[0]):
        table.add_column(escape(heading), justify="left" if number < words else "right")
    for row in cells[1:]:
        table.add_row(*map(escape, row))
    return table


def _one_line(error: Exception) -> str:
    return escape(" ".join(str(error).split()))
