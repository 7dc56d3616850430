"""Results handed to a function."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.row import Row
from dirigo.flow.sinks import to_callback

BATCH = pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", None]})


def test_the_function_gets_every_row() -> None:
    rows: list[Row] = []
    sink = to_callback(rows.append)
    sink.prepare(BATCH.schema)
    writer = sink.open(BATCH.schema, 0)
    writer.write(BATCH)
    writer.write(BATCH.slice(0, 0))
    writer.flush()
    writer.close()
    assert [dict(row) for row in rows] == BATCH.to_pylist()
    assert rows[0].a == 1


def test_the_function_gets_whole_batches() -> None:
    batches: list[pa.RecordBatch] = []
    writer = to_callback(batches.append, batches=True).open(BATCH.schema, 0)
    writer.write(BATCH)
    writer.close()
    assert batches == [BATCH]


def test_what_the_function_raises_comes_through() -> None:
    def fail(row: Any) -> None:
        raise ValueError(f"row {row['a']}")

    with pytest.raises(ValueError, match="row 1"):
        to_callback(fail).open(BATCH.schema, 0).write(BATCH)


def test_what_is_no_function_is_refused() -> None:
    fn: Any = 5
    with pytest.raises(FlowError, match="int is no function"):
        to_callback(fn)
