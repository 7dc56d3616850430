"""``dirigo snapshots``: what snapshots of jobs there are, how large and how old, whether or not a cluster runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dirigo.cli.connection import DEFAULT_CLUSTER, one_line_errors
from dirigo.cli.display.amounts import NOTHING, shown_bytes, shown_seconds
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.status_tables import plain_table
from dirigo.runtime.snapshots.savepoint import savepoint_in
from dirigo.runtime.snapshots.store import SnapshotInfo, list_snapshots
from dirigo.spark.service.service import snapshots_folder


def snapshots(
    name: str = typer.Option(DEFAULT_CLUSTER, "--name", metavar="NAME", help="The cluster, if it has a name of its own."),
    folder: str | None = typer.Option(
        None,
        "--folder",
        metavar="URI",
        help="The folder that was given for snapshots, if not the cluster's own; or that of a savepoint.",
        show_default=False,
    ),
    json_file: Path | None = JsonFile,
) -> None:
    """List the snapshots of jobs: how old and how large each is, and how long it took. No cluster has to run.

    --folder is what `dirigo cluster start --snapshots` was given; there, too, each cluster has a folder of its name. The
    folder of a savepoint is shown as it is.

    Examples:

        dirigo snapshots

        dirigo snapshots --folder /srv/savepoints/orders

        dirigo snapshots --folder s3://bucket/snapshots --name big --json build/snapshots.json
    """
    with one_line_errors():
        given = absolute(folder or "")
        found = savepoint_in(given) if given else []
        where = given if found else snapshots_folder(name, given)
        assert where is not None
        found = found or list_snapshots(where)
    if found:
        console.print(snapshots_table(found, time.time()))
        for each in found:
            if each.problem:
                console.print(
                    f"[red]snapshot {each.number} of {escape(each.job)}[/]: {escape(each.problem)}", soft_wrap=True
                )
    else:
        console.print(escape(f"no snapshots in {where}"), soft_wrap=True)
    write_json(json_file, {"folder": where, "snapshots": [msgspec.to_builtins(each) for each in found]})


def snapshots_table(found: Sequence[SnapshotInfo], now_s: float) -> Table:
    """One line for each, for a terminal of 80 columns."""
    table = plain_table()
    table.add_column("job", overflow="fold", ratio=1)
    for heading in ("snapshot", "age", "took", "written", "size", "generation"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for each in found:
        if each.problem:
            table.add_row(each.job, str(each.number), *[NOTHING] * 5, Text("damaged", style="red"))
            continue
        last = Text("last") if each.is_final else Text()
        table.add_row(
            each.job,
            str(each.number),
            shown_seconds(each.age_s(now_s)),
            shown_seconds(each.duration_s),
            shown_bytes(each.written_bytes),
            shown_bytes(each.total_bytes),
            str(each.generation),
            last if each.is_whole else Text("damaged", style="red"),
        )
    return table


def absolute(place: str) -> str:
    """A folder as a process elsewhere understands it; nothing stays nothing."""
    return place if not place or "://" in place else str(Path(place).expanduser().absolute())
