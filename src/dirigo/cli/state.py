"""``dirigo state``: what an operator of a job keeps, as a table in the terminal or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import typer
from rich.markup import escape
from rich.text import Text

from dirigo.cli.connection import ClusterName, connected
from dirigo.cli.display.output import JsonFile, console, write_json
from dirigo.cli.display.status_tables import plain_table

_JobName = typer.Argument(metavar="JOB", help="The name of a job (the newest of that name), or its id.")
_OperatorName = typer.Argument(metavar="OPERATOR", help="The name of an operator that keeps something.")


def state(
    job: str = _JobName,
    operator: str = _OperatorName,
    fresh: bool = typer.Option(False, "--fresh", help="Take a snapshot now, and read from that."),
    limit: int = typer.Option(20, "--limit", metavar="N", help="Print at most so many rows.", min=0),
    cluster: str = ClusterName,
    json_file: Path | None = JsonFile,
) -> None:
    """Show what an operator of a job keeps, as of the job's last snapshot. The job goes on meanwhile.

    The folder of snapshots must be reachable from here. --json FILE has all rows.

    Examples:

        dirigo state prices per_shop

        dirigo state prices per_shop --fresh --limit 100 --json build/per_shop.json
    """
    with connected(cluster) as client:
        found = client.job(job)
        table = found.state(operator, fresh=fresh)
    snapshot = int(table.schema.metadata[b"dirigo.snapshot"])
    shown = plain_table()
    for name in table.column_names:
        shown.add_column(escape(name), overflow="fold")
    for row in _rows(table.slice(0, limit)):
        shown.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    console.print(shown)
    more = f", of which the first {limit} are shown" if table.num_rows > limit else ""
    rows = "1 row" if table.num_rows == 1 else f"{table.num_rows:,} rows"
    console.print(escape(f"{rows} in '{operator}' of job {found.id}, as of snapshot {snapshot}{more}"), soft_wrap=True)
    if json_file is not None:
        rows_told = [_told(row) for row in _rows(table)]
        write_json(json_file, {"job": found.id, "operator": operator, "snapshot": snapshot, "rows": rows_told})


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def _told(value: Any) -> Any:
    """A value as JSON has it: the keys of maps, and what it has no form for, such as times and bytes, as text."""
    if isinstance(value, dict):
        return {str(key): _told(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_told(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
