"""Owns the pane column, by which every partial table begins, and the grouping of rows by pane and key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.columns.plain import column_of
from dirigo.flow.errors import FlowError
from dirigo.flow.rows.grouping import Grouping

PANE: Final = "__pane"
PANE_FIELD: Final = pa.field(PANE, pa.int64())

Panes = npt.NDArray[np.int64] | int  # the pane of each row, or one for all rows


def single_pane(panes: Panes) -> int | None:
    """The pane that all rows share, if they do. Most batches lie in one pane, and need not be grouped by it."""
    if not isinstance(panes, np.ndarray):
        return int(panes)
    first = int(panes[0])
    return first if bool((panes == first).all()) else None


def pane_column(panes: Panes, rows: int) -> pa.Array:
    """The pane of each row as a column."""
    if isinstance(panes, np.ndarray):
        return pa.array(panes, pa.int64())
    return column_of(np.full(rows, panes, np.int64))


def group_by_pane(panes: Panes, keys: Sequence[pa.Array], rows: int) -> tuple[Grouping, pa.Array]:
    """The rows grouped by pane and keys, and the pane of each group. There must be rows."""
    pane = single_pane(panes)
    if pane is not None:
        grouping = Grouping.of(keys, rows)
        return grouping, pane_column(pane, grouping.count)
    assert isinstance(panes, np.ndarray)
    grouping = Grouping.of([pa.array(panes), *keys], rows)
    return grouping, pane_column(panes[grouping.firsts], grouping.count)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of a schema."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def refuse_pane(schema: pa.Schema) -> None:
    """FlowError if the input has a column of that name."""
    if PANE in schema.names:
        raise FlowError(f"the column name '{PANE}' is used by windows themselves; rename the column.")
