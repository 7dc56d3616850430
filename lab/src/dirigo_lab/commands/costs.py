"""``dirigo costs``: what the runtime itself costs on this machine, for simulated experiments to go by."""

from __future__ import annotations

import logging
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from dirigo.cli.connection import one_line_errors
from dirigo.cli.display.output import console, fail
from dirigo.cli.display.progress import tell_failure
from dirigo.cli.display.status_tables import plain_table
from dirigo.cli.own_cluster import own_cluster
from dirigo.runtime.errors import JobFailed
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.costs.measurement import BARRIERS, ROWS, SECONDS, WORKERS, calibrate_costs

_MEANINGS = {
    "hop_s": "a message on its way, until the other worker takes it in",
    "packet_s": "of other threads, at each end of that way",
    "fetch_s": "of the fetcher, to take a message in",
    "message_s": "of the worker thread, for a message, beside user code",
    "critical_s": "of the worker thread, for a critical message",
    "reply_s": "of the fetcher, for a reply of a lessee among others",
    "send_s": "for each further message of several that are sent at once",
    "operator_s": "of an operator, for a message with a row: a windowed aggregate",
    "closing_s": "of it, to close a window",
    "wake_s": "by which a worker that emulates work sleeps too long",
}


def costs(
    out: Path = typer.Option(Path("build/costs.json"), "--out", metavar="FILE", help="Where to write.", dir_okay=False),
) -> None:
    """Measure what the runtime itself costs on this machine: a hop, a message, a critical message, a byte of state.

    Starts two workers on Spark, and takes about a minute. Nothing else should run meanwhile. Simulated experiments go by
    these figures.

    Examples:

        dirigo costs

        dirigo costs --out costs/laptop.json
    """
    logging.getLogger("dirigo").addHandler(logging.NullHandler())
    with one_line_errors():
        try:
            with own_cluster(workers=WORKERS, master=None) as cluster, console.status("") as status:
                costs = calibrate_costs(cluster, status.update, rows=ROWS, barriers=BARRIERS, seconds=SECONDS)
        except JobFailed as error:
            tell_failure(str(error.args[0]), error.remote_traceback)
            raise typer.Exit(1) from None
    console.print(_table(costs))
    console.print(f"[dim]{escape(costs.machine)}[/]")
    try:
        costs.write(out)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")
    console.print(f"costs written to {escape(str(out))}")


def _table(costs: RuntimeCosts) -> Table:
    table = plain_table(expand=False)
    table.add_column("cost")
    table.add_column("", justify="right")
    table.add_column("of what")
    for name, meaning in _MEANINGS.items():
        table.add_row(name, f"{getattr(costs, name) * 1e6:,.0f} µs", meaning)
    table.add_row("idle_share", f"{costs.idle_share:.1%}", "of a core, for each worker that waits for rows")
    table.add_row("state_bytes_per_s", f"{costs.state_bytes_per_s / 1e6:,.0f} MB/s", "partial states, from lessee to lessor")
    return table
