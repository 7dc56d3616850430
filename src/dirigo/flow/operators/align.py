"""What makes the streams of a union alike: the same columns in one order, each of one type."""

from __future__ import annotations

import pyarrow as pa

from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.operators.steps import Step


class Align(Step):
    """Columns in the order and the types of a schema that has the same names."""

    kind = "align"

    def __init__(self, name: str, schema: pa.Schema, time: TimeColumn | None) -> None:
        super().__init__(name, schema, None if time is None else time.in_schema(schema))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
