"""``dirigo slo``: objectives. ``calibrate`` finds the latency that a flow can be held to."""

from __future__ import annotations

import logging
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dirigo.calibration import Calibration, calibrate
from dirigo.cli.connection import one_line_errors
from dirigo.cli.display.amounts import NOTHING, shown_count, shown_latency
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.progress import tell_failure
from dirigo.cli.display.status_tables import plain_table
from dirigo.cli.flows import one_flow
from dirigo.cli.own_cluster import check_workers, own_cluster
from dirigo.cli.strategies import StrategyName, given
from dirigo.flow.api.dataflow import live_nodes
from dirigo.flow.api.duration import positive_milliseconds
from dirigo.runtime.errors import JobFailed

app = typer.Typer(no_args_is_help=True, help="Objectives: find the latency that a flow can be held to.")

_File = typer.Argument(metavar="FILE", help="A Python file with a Dataflow.")


@app.callback()
def _group() -> None:
    """Objectives: find the latency that a flow can be held to."""


@app.command("calibrate")
def slo_calibrate(
    file: Path = _File,
    wanted: str = typer.Option("", "--flow", metavar="NAME", help="The dataflow, if the file has several."),
    workers: int = typer.Option(2, "--workers", metavar="N", help="How many workers."),
    master: str | None = typer.Option(
        None, "--master", metavar="URL", help="A Spark master, if not this machine.", show_default=False
    ),
    probe: str = typer.Option("5s", "--probe", metavar="TIME", help="How long to find out what a row costs."),
    for_: str = typer.Option("10s", "--for", metavar="TIME", help="How long to measure at a rate, up to three times."),
    strategy: str | None = StrategyName,
    json_file: Path | None = JsonFile,
) -> None:
    """Find a latency objective for a flow: twice its p99, when it runs alone and keeps the workers busy half of the time.

    First its sources are read as fast as they go, which tells what a row costs; then at a constant rate, which is
    adjusted until the workers are about half busy. Results are not written anywhere.

    Examples:

        dirigo slo calibrate shop.py --workers 2

        dirigo slo calibrate shop.py --flow orders --for 30s --json build/slo.json
    """
    logging.getLogger("dirigo").addHandler(logging.NullHandler())
    check_workers(workers)
    with one_line_errors():
        flow = one_flow(file, wanted)
        live_nodes(flow)
        times = {"probe_s": _seconds(probe, "--probe"), "measure_s": _seconds(for_, "--for")}
        settings = {"workers": workers, "master": master, **given(strategy)}
        try:
            with own_cluster(**settings) as cluster, console.status("") as status:
                found = calibrate(cluster.client, flow, **times, told=status.update)
        except JobFailed as error:
            tell_failure(str(error.args[0]), error.remote_traceback)
            raise typer.Exit(1) from None
    console.print(_steps(found))
    console.print(_verdict(found))
    for note in found.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
    write_json(json_file, found.figures())


def _seconds(text: str, option: str) -> float:
    return positive_milliseconds(text, option) / 1000


def _steps(found: Calibration) -> Table:
    table = plain_table(expand=False)
    table.add_column("step")
    for heading in ("rows/s", "busy", "results", "p50", "p99"):
        table.add_column(heading, justify="right")
    for step in found.steps:
        is_probe = step is found.steps[0]  # as fast as sources go there are only queues to measure
        latencies = [NOTHING if is_probe else shown_latency(step.latency_ms.get(rank)) for rank in ("p50", "p99")]
        figures = (f"{step.rows_per_s:,.0f}", f"{step.utilisation * 100:.0f} %", shown_count(step.results))
        table.add_row(step.step, *figures, *latencies, style="bold" if step is found.chosen else "dim")
    return table


def _verdict(found: Calibration) -> Text:
    chosen = found.chosen
    return Text.assemble(
        f"{found.flow} on {chosen.workers} workers, {chosen.utilisation * 100:.0f} % busy at ",
        f"{chosen.rows_per_s:,.0f} rows/s: ",
        (f"{found.objective_ms}ms", "bold green"),
        " is twice its p99\n",
        (f'slo=dg.SLO(latency="{found.objective_ms}ms")', "dim"),
    )
