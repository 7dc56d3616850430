"""Rows with their own memory: nothing of what they were cut from is kept, whatever the types of their columns."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from dirigo.flow.exchange.partitions import split
from dirigo.flow.rows.own_memory import cut, owned

ROWS = 20_000
COLUMNS = {
    "integers": pa.array(range(ROWS)),
    "booleans": pa.array([n % 3 == 0 for n in range(ROWS)]),
    "with nulls": pa.array([None if n % 5 == 0 else n for n in range(ROWS)]),
    "texts": pa.array([f"text {n}" for n in range(ROWS)]),
    "large texts": pa.array([f"text {n}" for n in range(ROWS)], pa.large_string()),
    "bytes": pa.array([bytes([n % 250]) * 20 for n in range(ROWS)]),
    "fixed bytes": pa.array([bytes([n % 250]) * 20 for n in range(ROWS)], pa.binary(20)),
    "decimals": pa.array([decimal.Decimal(n) for n in range(ROWS)], pa.decimal128(20, 2)),
    "times": pa.array(range(ROWS), pa.timestamp("ms", "UTC")),
    "lists": pa.array([[n, None, n] for n in range(ROWS)]),
    "structs": pa.array([{"a": n, "b": f"text {n}"} for n in range(ROWS)]),
    "maps": pa.array([[(f"key {n}", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "nothing": pa.nulls(ROWS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_piece_holds_its_own_rows_only(name: str) -> None:
    batch = pa.RecordBatch.from_arrays([COLUMNS[name], COLUMNS["texts"]], ["column", "other"])
    piece = cut(batch, 5_000, 100)
    assert piece.equals(batch.slice(5_000, 100))
    assert piece.get_total_buffer_size() < 2 * piece.nbytes + 1_000
    assert batch.slice(5_000, 100).get_total_buffer_size() > 20 * piece.get_total_buffer_size()
    small = owned(batch.slice(0, 100))
    assert small.equals(batch.slice(0, 100))
    assert small.get_total_buffer_size() < 2 * small.nbytes + 1_000


def test_what_is_nearly_whole_is_not_copied() -> None:
    batch = pa.RecordBatch.from_arrays([COLUMNS["texts"]], ["column"])
    assert owned(batch) is batch
    most = batch.slice(0, ROWS - 1_000)
    assert owned(most) is most


def test_partitions_hold_no_more_together_than_all_rows() -> None:
    batch = pa.RecordBatch.from_arrays([COLUMNS["integers"], COLUMNS["texts"]], ["column", "other"])
    parts = split(batch, np.arange(ROWS) % 200, 200)
    assert len(parts) == 200
    assert sum(part.get_total_buffer_size() for _, part in parts) < 1.2 * batch.get_total_buffer_size()
