"""Where a stream's event time is: a column of every row, read as milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import require_columns

Times = npt.NDArray[np.int64]

LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999; larger numbers count something else
_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True)
class TimeColumn:
    """A column of timestamps (any unit and zone), or of whole numbers that count milliseconds since the epoch."""

    name: str
    type: pa.DataType
    offset_ms: int = 0  # a window's result happens just before the end of its window

    @classmethod
    def of(cls, schema: pa.Schema, name: str, what: str) -> TimeColumn:
        require_columns(schema, [name], what)
        kind = schema.field(name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
            raise FlowError(
                f"{what}: the time column '{name}' has type {kind}; "
                "make it a timestamp, or int64 milliseconds since the epoch."
            )
        return cls(name, kind)

    @property
    def bounds_type(self) -> pa.DataType:
        """The type of the bounds of windows: that of the column, but fine enough for a millisecond."""
        if pa.types.is_timestamp(self.type) and self.type.unit == "s":
            return pa.timestamp("ms", self.type.tz)
        return self.type

    def in_schema(self, schema: pa.Schema) -> TimeColumn | None:
        """The same column of other rows, which may have another type; None if they have no such time."""
        if self.name not in schema.names:
            return None
        kind = schema.field(self.name).type
        if kind == self.type:
            return self
        is_time = pa.types.is_timestamp(kind) or pa.types.is_int64(kind)
        return TimeColumn(self.name, kind, self.offset_ms) if is_time else None

    def cast(self, types: Sequence[pa.DataType]) -> TimeColumn | None:
        """The same times after these casts; None if the values mean other times then, or none.

        A number counts milliseconds as a time column, but the unit of the timestamp in a cast.
        """
        kind = self.type
        for target in types:
            if kind == target:
                continue
            units = [each.unit if pa.types.is_timestamp(each) else "ms" for each in (kind, target)]
            if not all(pa.types.is_timestamp(each) or pa.types.is_int64(each) for each in (kind, target)):
                return None
            if not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(target)) and units != ["ms", "ms"]:
                return None
            kind = target
        return replace(self, type=kind)

    def read(self, batch: pa.RecordBatch) -> Times:
        """The times of all rows, in milliseconds. A null reads as -1, which no valid time is."""
        times = self._in_ms(batch.column(self.name))
        return times + self.offset_ms if self.offset_ms else times

    def _in_ms(self, column: pa.Array) -> Times:
        if column.null_count:
            column = column.fill_null(pa.scalar(-1, pa.int64()).cast(self.type))
        numbers: Times = column.view(pa.int64()).to_numpy()
        unit = self.type.unit if pa.types.is_timestamp(self.type) else "ms"
        if unit == "ms":
            return numbers
        return numbers.clip(-1, LATEST_MS) * 1_000 if unit == "s" else numbers // _PER_MS[unit]

    def array(self, times_ms: Times) -> pa.Array:
        """Times as a column of this type."""
        unit = self.type.unit if pa.types.is_timestamp(self.type) else "ms"
        scaled = times_ms // 1_000 if unit == "s" else times_ms * _PER_MS[unit]
        return pa.array(scaled, pa.int64()).view(self.type)
