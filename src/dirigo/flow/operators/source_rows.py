"""The first actor behind a source: it looks at every row once, so that nobody after it has to.

A source itself runs no user code and cannot be spread over workers; this actor can.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.exchange.edge import timed
from dirigo.flow.exchange.emitter import Emitter
from dirigo.flow.operators.operator import Operator
from dirigo.flow.rows.bad_rows import rows_at, without
from dirigo.flow.sources.reader import BAD_PORT
from dirigo.flow.sources.source import Source

_LONG = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)


class SourceRows(Operator):
    """Rows as they come from a source, checked: each has a valid time, and none is larger than ``row_bytes_max``."""

    kind = "source"
    emits_per_row = True
    runs_alone = False

    def __init__(self, name: str, source: Source, row_bytes_max: int) -> None:
        time = None if source.time is None else TimeColumn.of(source.schema, source.time, name)
        super().__init__(name, source.schema, time)
        self.row_bytes_max = row_bytes_max
        self._long_columns = [field.name for field in source.schema if any(is_long(field.type) for is_long in _LONG)]

    def on_rows(self, states: Any, port: int, batch: Any, emitter: Emitter) -> None:
        if port == BAD_PORT:
            emitter.bad(batch, self.name)
            return
        if self._long_columns and batch.nbytes > self.row_bytes_max:
            batch = self._without_large_rows(batch, emitter)
        if self.time is not None:
            batch, _ = timed(batch, self.time, self.name, emitter)
        emitter.rows(batch)

    def _without_large_rows(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        lengths = sum(
            pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy().astype(np.int64) for name in self._long_columns
        )
        mask = lengths > self.row_bytes_max
        if not mask.any():
            return batch
        emitter.bad(
            rows_at(batch, mask, f"it is longer than {self.row_bytes_max:,} bytes, the flow's row_bytes_max"), self.name
        )
        return without(batch, mask)
