"""``dirigo demo``: two tenants share a pool under one strategy after another, and what each of them gets out of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dirigo.cli.display.output import JsonFile, console, fail, write_json
from dirigo.errors import DirigoError
from dirigo.runtime.control import JobStatus
from dirigo.runtime.folders import OwnFolder
from dirigo_lab.demo.contest import WARM_UP_S, Run, TenantRun, median, run_tenants
from dirigo_lab.demo.isolation import measure
from dirigo_lab.demo.picture import save_pictures
from dirigo_lab.demo.tenants import Tenant, bulk, urgent
from dirigo_lab.nexmark.check import differences

_WORKERS, _WORKERS_CPU = 4, 2
_LOADS = ("pareto", "constant")
_SECONDS, _SECONDS_NOISY = 12.0, 30.0
_CALIBRATIONS = 3


def demo(
    strategies: str = typer.Option(
        "fifo,reject_send", "--strategies", metavar="A,B", help="The strategies to compare, in this order."
    ),
    seconds: float | None = typer.Option(
        None, "--seconds", metavar="S", help="How long bids come in each run: 12, or 30 with --noisy.", show_default=False
    ),
    runs: int = typer.Option(1, "--runs", metavar="N", help="Runs of each strategy, in turn; medians are told."),
    load: str = typer.Option("pareto", "--load", metavar="SHAPE", help="pareto: bursts with alpha 2.5; or constant."),
    cpu: bool = typer.Option(False, "--cpu", help="Compute instead of sleeping, on 2 workers."),
    workers: int | None = typer.Option(
        None, "--workers", metavar="N", help="Workers: 4, or 2 with --cpu.", show_default=False
    ),
    calibrate: bool = typer.Option(
        False, "--calibrate", help="First find q7's objective: alone, constant load, half of the pool, twice its p99."
    ),
    noisy: bool = typer.Option(
        False, "--noisy", help="Instead: what a tenant feels of a neighbour that sends ten times what it used to."
    ),
    check: bool = typer.Option(True, "--check/--no-check", help="Compare all results with Spark SQL's."),
    out: Path = typer.Option(Path("build/demo"), "--out", metavar="DIR", help="Where the picture goes."),
    json_file: Path | None = JsonFile,
) -> None:
    """Show why strategies matter: an urgent tenant and a bulky one with a hot key share a pool under bursts.

    The urgent tenant is Nexmark's q7, the bulky one q12_event. What a bid costs is emulated: a worker sleeps for some
    milliseconds per bid, or computes with --cpu, so that a pool of workers means something on a small machine.

    Examples:

        dirigo demo

        dirigo demo --strategies fifo,edf,reject_send --runs 5 --json build/demo.json

        dirigo demo --cpu --load constant

        dirigo demo --noisy --strategies fifo,reject_send,tokens
    """
    logging.getLogger("dirigo").addHandler(logging.NullHandler())
    names = [name.strip() for name in strategies.split(",") if name.strip()]
    if not names:
        fail("name one or more strategies, for example --strategies fifo,reject_send")
    if load not in _LOADS:
        fail(f"there is no load '{load}'; use {' or '.join(_LOADS)}")
    seconds = (_SECONDS_NOISY if noisy else _SECONDS) if seconds is None else seconds
    if runs < 1 or seconds <= 0:
        fail("ask for 1 run or more, and for more than 0 seconds")
    workers = workers or (_WORKERS_CPU if cpu else _WORKERS)
    tenants = [replace(tenant, load=load) for tenant in (urgent(workers, cpu=cpu), bulk(workers, cpu=cpu))]
    try:
        if noisy:
            _noisy(names, seconds, runs, workers, json_file)
            return
        is_equal = _demo(names, tenants, seconds, runs, workers, calibrate, check, out, json_file)
    except DirigoError as error:
        fail(escape(str(error)))
    if not is_equal:
        raise typer.Exit(1)


def _demo(
    names: Sequence[str],
    tenants: Sequence[Tenant],
    seconds: float,
    runs: int,
    workers: int,
    calibrate: bool,
    check: bool,
    out: Path,
    json_file: Path | None,
) -> bool:
    from dirigo.flow.api.strategy import strategy_of
    from dirigo.spark.cluster import Cluster

    for name in names:
        strategy_of(name)  # or it would be noticed only when Spark has started
    began = time.monotonic()
    with console.status("starting Spark ..."):
        cluster = Cluster(workers)
    done: dict[str, list[Run]] = {name: [] for name in names}
    is_equal = True
    with cluster, OwnFolder("demo") as folder:
        with console.status(f"waiting for {workers} workers ..."):
            cluster.wait_ready()
        console.print(f"Spark and {workers} workers were ready after {time.monotonic() - began:.1f} s")
        if calibrate:
            with console.status("q7 alone, at half of the pool ..."):
                tenants = [_calibrated(cluster, tenants[0], seconds, workers), *tenants[1:]]
        facts = _facts(tenants, workers)
        for fact in facts:
            console.print(f"  {escape(fact)}", soft_wrap=True)
        for number in range(runs):
            for name in names:
                results = folder / f"{name.replace(':', '.')}-{number}"
                with _progress(f"{name} {number + 1}/{runs}" if runs > 1 else name, tenants, seconds) as told:
                    done[name].append(run_tenants(cluster, tenants, name, seconds, workers, out=results, progress=told))
        if check:
            with console.status("asking Spark SQL for the same ..."):
                is_equal = _check(cluster.spark, folder, tenants, seconds)
    last = [done[name][-1] for name in names]
    console.print(_table(done, tenants))
    for line in _why(done, tenants):
        console.print(line, soft_wrap=True)
    if check:
        console.print("[green]all results equal Spark SQL's[/]" if is_equal else "[red]results differ from Spark SQL's[/]")
    title = f"{tenants[0].query} and {tenants[1].query} on {workers} shared workers, {tenants[0].load} load"
    plain = [[*_HEADINGS], *([_plain(cell) for cell in row] for row in _rows(done, tenants))]
    for path in save_pictures(last, title, facts, plain, out / "latency"):
        console.print(f"picture: {escape(str(path))}", soft_wrap=True)
    figures = {"workers": workers, "seconds": seconds, "load": tenants[0].load, "cpu": tenants[0].cpu, "facts": facts}
    write_json(json_file, figures | {"runs": [run.figures() for each in done.values() for run in each]})
    return is_equal


def _noisy(names: Sequence[str], seconds: float, runs: int, workers: int, json_file: Path | None) -> None:
    from dirigo.spark.cluster import Cluster

    with console.status("starting Spark ..."):
        cluster = Cluster(workers)
    found = []
    with cluster:
        cluster.wait_ready()
        for name in names:
            with console.status(f"{name} beside a quiet and a noisy neighbour ..."):
                found.append(measure(name, workers, runs, partial(_beside, cluster, seconds, workers)))
    table = Table(title="q7 beside a neighbour at 1 and at 10 times its rate", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("strategy", "p99 ms, quiet", "p99 ms, noisy", "factor", "in time, quiet", "in time, noisy"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for each in found:
        table.add_row(
            each.strategy,
            f"{each.quiet_p99_ms:,.1f}",
            f"{each.noisy_p99_ms:,.1f}",
            f"{each.factor:.2f}",
            f"{each.quiet_satisfaction:.1%}",
            f"{each.noisy_satisfaction:.1%}",
        )
    console.print(table)
    write_json(
        json_file, {"workers": workers, "seconds": seconds, "runs": runs, "isolation": [each.figures() for each in found]}
    )


def _beside(cluster: Any, seconds: float, workers: int, tenants: Sequence[Tenant], strategy: str) -> Run:
    return run_tenants(cluster, tenants, strategy, seconds, workers)


def _calibrated(cluster: Any, tenant: Tenant, seconds: float, workers: int) -> Tenant:
    """The paper's way: one job, constant input, half utilisation, twice the tail; without any scaling."""
    alone = replace(tenant.at(0.5 / tenant.utilisation(workers)), load="constant")
    probe = run_tenants(cluster, [alone], "fifo", WARM_UP_S, workers)
    alone = alone.at(0.5 / max(0.5, probe.utilisation))  # what a bid costs beside its emulated work takes time as well
    found = [run_tenants(cluster, [alone], "fifo", seconds + WARM_UP_S, workers) for _ in range(_CALIBRATIONS)]
    # Each has some dozens of results only, so one that the machine delayed is a whole run's tail.
    tail_ms = median(run.tenants[tenant.query].steady_latency_ms["p99"] for run in found)
    run = found[-1]
    told = f"{run.utilisation:.0%} of the pool: tail {tail_ms:,.1f} ms, twice that is its objective"
    console.print(f"{tenant.query} alone, {told}", soft_wrap=True)
    return replace(tenant, latency_ms=max(1, round(2 * tail_ms)))


def _facts(tenants: Sequence[Tenant], workers: int) -> list[str]:
    facts = []
    for tenant in tenants:
        does = "computing" if tenant.cpu else "sleeping"
        facts.append(
            f"{tenant.query}: {tenant.bids_per_s:,.0f} bids/s on average, {tenant.bid_ms:g} ms of a worker each ({does}, "
            f"emulated), {tenant.utilisation(workers):.0%} of the pool; objective {tenant.latency_ms:,} ms"
        )
    shape = tenants[0]
    bursts = f"Pareto bursts, alpha {shape.alpha:g}, a new rate every {shape.burst_every}"
    facts.append(f"load: {bursts if shape.load == 'pareto' else 'constant'}; {workers} workers")
    return facts


def _check(spark: Any, folder: Path, tenants: Sequence[Tenant], seconds: float) -> bool:
    is_equal = True
    for tenant in tenants:
        for results in sorted(folder.iterdir()):
            for name, difference in differences(
                [tenant.query], tenant.events(seconds), tenant.rate, results, "spark", spark
            ):
                if difference is not None:
                    is_equal = False
                    console.print(f"[red]{name} under {results.name} differs from Spark SQL:[/] {escape(difference)}")
    return is_equal


# --- what came of it -------------------------------------------------------------------------------------------------------

_HEADINGS = ("job", "strategy", "in time", "p50 ms", "p99 ms", "bids/s", "forwarded", "barriers")


def _rows(done: Mapping[str, Sequence[Run]], tenants: Sequence[Tenant]) -> list[list[str]]:
    rows = []
    for tenant in tenants:
        for name, runs in done.items():
            its = [run.tenants[tenant.query] for run in runs]

            def middle(value: Callable[[TenantRun], float], its: list[TenantRun] = its) -> float:
                return median(map(value, its))

            share = middle(lambda each: each.satisfaction)
            colour = "green" if share >= 0.9 else "yellow" if share >= 0.6 else "red"
            rows.append(
                [
                    tenant.query,
                    name,
                    f"[{colour}]{share:.1%}[/]",
                    f"{middle(lambda each: each.metrics.latency_ms.get('p50', 0.0)):,.0f}",
                    f"{middle(lambda each: each.metrics.latency_ms.get('p99', 0.0)):,.0f}",
                    f"{middle(lambda each: each.rows_per_s):,.0f}",
                    f"{middle(lambda each: each.metrics.forwarded):,.0f}",
                    f"{middle(lambda each: each.metrics.barriers):,.0f}",
                ]
            )
    return rows


def _why(done: Mapping[str, Sequence[Run]], tenants: Sequence[Tenant]) -> list[str]:
    """Where the time of late results went, for each tenant and strategy that had some."""
    lines = []
    for tenant in tenants:
        for name, runs in done.items():
            why = runs[-1].tenants[tenant.query].metrics.satisfaction.why_results
            told = ", ".join(f"{cause} {share:.0%}" for cause, share in sorted(why.items(), key=lambda item: -item[1])[:3])
            if told:
                lines.append(f"  {tenant.query} under {name}, late results spent their time: {told}")
    return lines


def _table(done: Mapping[str, Sequence[Run]], tenants: Sequence[Tenant]) -> Table:
    runs = len(next(iter(done.values())))
    title = "what each tenant got" + (f", medians of {runs} runs" if runs > 1 else "")
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    for row in _rows(done, tenants):
        table.add_row(*row)
    return table


def _plain(cell: str) -> str:
    from rich.text import Text

    return Text.from_markup(cell).plain


@contextmanager
def _progress(name: str, tenants: Sequence[Tenant], seconds: float) -> Any:
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} bids  {task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with progress:
        tasks = {
            tenant.query: progress.add_task(f"{name}: {tenant.query}", total=tenant.bids_per_s * seconds, note="")
            for tenant in tenants
        }

        def told(statuses: Mapping[str, JobStatus]) -> None:
            for query, status in statuses.items():
                share = status.metrics.satisfaction.results
                note = "" if share is None else f"{share:.0%} in time"
                progress.update(tasks[query], completed=status.metrics.rows_in, note=note)

        yield told
