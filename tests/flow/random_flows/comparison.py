"""Running random flows, and saying how their results differ from those of plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import pyarrow as pa

from dirigo.testing import Simulation, run
from flow.flows import Rows
from flow.random_flows.generator import RandomFlow

_SHOWN = 3


def difference(random_flow: RandomFlow) -> str | None:
    """How the flow's first wrong result differs from the expected one; None if all sinks are right in every run."""
    for options in _ways_to_run(random_flow.seed):
        try:
            simulation = run(random_flow.flow, **options)
        except Exception as error:
            error.add_note(f"in a run with {options} of {random_flow}")
            raise
        for sink in random_flow.expected:
            wrong = _wrong_rows(random_flow, sink, simulation)
            if wrong:
                late = simulation.late_rows_dropped
                return f"{wrong}\nin a run with {options}, with late rows {late}, of {random_flow}"
    return None


def _ways_to_run(seed: int) -> list[dict[str, Any]]:
    """In sequence with large and with small batches, and two kinds of chaos."""
    rng = Random(seed)
    small = {"workers": 2, "rows_max": rng.choice([1, 7])}
    chaos = [
        {"workers": rng.choice([2, 3]), "seed": rng.randrange(10**6), "chaos": True, "rows_max": rng.choice([3, 20, 60])}
        for _ in range(2)
    ]
    return [{}, small, *chaos]


def _wrong_rows(random_flow: RandomFlow, sink: str, simulation: Simulation) -> str | None:
    apart = rows_apart(random_flow.expected[sink].rows, _in_milliseconds(simulation.table(sink)))
    return apart and f"The sink '{sink}' of the flow of seed {random_flow.seed} differs from plain Python:\n{apart}"


def rows_apart(expected: Rows, found: Rows) -> str | None:
    """How many rows are missing or too many, and a few of them; None if there are none, whatever the order."""
    wanted, came = _countable(expected), _countable(found)
    if wanted == came:
        return None
    lines = []
    for what, rows in (("missing", wanted - came), ("too many", came - wanted)):
        lines += [f"  {rows.total()} rows {what}", *(f"    {row}" for row in list(rows.elements())[:_SHOWN])]
    return "\n".join(lines)


def _in_milliseconds(table: pa.Table) -> Rows:
    """The rows with every timestamp as a number, as the reference has them."""
    columns = [
        column.cast(pa.timestamp("ms", tz=column.type.tz)).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    rows: Rows = pa.table(columns, names=table.schema.names).to_pylist()
    return rows


def _countable(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Rows as texts, which tell 1 from 1.0; neither their order nor that of their columns matters."""
    return Counter(str(dict(sorted(row.items()))) for row in rows)
