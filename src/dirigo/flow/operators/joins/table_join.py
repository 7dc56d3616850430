"""A join with a bounded table: the table goes wherever the stream's rows run, so nothing is kept and nothing is ordered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.operators.joins.matching import JoinShape, Positions, expand
from dirigo.flow.operators.steps import Step


class TableJoin(Step):
    """Each row with the rows of a table that have its key. The table is sorted once; a batch is looked up in one go."""

    kind = "join with a table"

    def __init__(self, name: str, shape: JoinShape, time: TimeColumn | None, table: pa.RecordBatch) -> None:
        super().__init__(name, shape.schema, time)
        self._shape = shape
        self._table = table
        self._numbers: dict[Any, int] = {}
        keys = _keys(table, shape.right_on)
        rows = np.array([row for row, key in enumerate(keys) if key is not None], dtype=np.int64)
        codes = np.array(
            [self._numbers.setdefault(key, len(self._numbers)) for key in keys if key is not None], dtype=np.int64
        )
        self._order = rows[np.argsort(codes, kind="stable")]
        counts = np.bincount(codes, minlength=len(self._numbers)) if len(codes) else np.zeros(0, dtype=np.int64)
        self._counts = np.append(counts, 0)  # the last one is for keys that are not in the table
        self._starts = np.append(np.cumsum(counts) - counts, 0)

    def describe(self) -> str:
        on = ", ".join(f"{one} = {other}" for one, other in zip(self._shape.left_on, self._shape.right_on, strict=True))
        return f"join with a table of {self._table.num_rows:,} rows on {on}"

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        codes = self._codes(batch)
        left, right = expand(self._starts[codes], self._counts[codes], self._order)
        return self._shape.complete(batch, self._table, left, right)

    def _codes(self, batch: pa.RecordBatch) -> Positions:
        find, missing = self._numbers.get, len(self._numbers)
        keys = _keys(batch, self._shape.left_on)
        return np.fromiter((find(key, missing) for key in keys), dtype=np.int64, count=len(keys))


def _keys(batch: pa.RecordBatch, names: tuple[str, ...]) -> list[Any]:
    """The key of each row; None where a part of it is null, because a null equals nothing."""
    columns = [batch.column(name).to_pylist() for name in names]
    if len(columns) == 1:
        return columns[0]  # type: ignore[no-any-return]
    return [None if None in key else key for key in zip(*columns, strict=True)]
