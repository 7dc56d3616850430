"""Results kept in memory, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.unreadable import NO_FORM
from dirigo.flow.sinks.sink import Sink, Writer


def to_memory(*, name: str = "to_memory") -> MemorySink:
    """Keep all rows in memory: after the job, `.rows` has them as dicts and `.table` as an Arrow table."""
    return MemorySink(name)


class MemorySink(Sink):
    """The rows of all partitions, partition after partition, each in the order in which they came."""

    default_name = "to_memory"
    is_outside = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._schema: pa.Schema | None = None
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    def prepare(self, schema: pa.Schema) -> None:
        """A new run starts: the rows of an earlier one go."""
        self._schema = schema
        self._batches = {}

    def open(self, schema: pa.Schema, partition: int) -> MemoryWriter:
        self._schema = schema
        return MemoryWriter(self._batches.setdefault(partition, []))

    def batches_of(self, partition: int) -> list[pa.RecordBatch]:
        """What has come to a partition so far."""
        return list(self._batches.get(partition, ()))

    def put_back(self, partition: int, batches: Sequence[pa.RecordBatch]) -> None:
        """Have what came to a partition before a recovery."""
        self._batches[partition] = list(batches)

    @property
    def table(self) -> pa.Table:
        if self._schema is None:
            raise FlowError(f"{self.name}: there are no results yet; run the job first.")
        batches = [batch for _, partition in sorted(self._batches.items()) for batch in list(partition)]
        return pa.Table.from_batches(batches, self._schema)

    @property
    def rows(self) -> list[dict[str, Any]]:
        table = self.table
        try:
            rows: list[dict[str, Any]] = table.to_pylist()
        except NO_FORM as error:
            raise FlowError(
                f"{self.name}: a value has no form in Python ({error}); take the table instead of the rows."
            ) from error
        return rows


class MemoryWriter(Writer):
    """Adds the batches of one partition."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def flush(self) -> None:
        """All rows are visible at once."""

    def close(self) -> None:
        """All rows are visible at once."""
