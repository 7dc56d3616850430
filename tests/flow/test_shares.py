"""Keys as operators hold them belong to the partition that their rows are sent to."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.exchange.partitions import partition_of
from dirigo.flow.exchange.shares import Share
from dirigo.flow.rows.keys import KeyColumns, forms_of

PARTITIONS = 7
_INSTANTS = [datetime(2024, 1, day, 3, 4, 5, 678_000, tzinfo=UTC) for day in range(1, 20)]
COLUMNS: dict[str, Any] = {
    "int8": pa.array(range(-20, 20), pa.int8()),
    "uint64": pa.array([2**63 + n for n in range(20)], pa.uint64()),
    "bool": pa.array([True, False]),
    "float": pa.array([0.0, -0.0, 1.5, float("nan"), 3.0, 1e300], pa.float64()),
    "float32": pa.array([0.5, float("nan"), 7.0], pa.float32()),
    "text": pa.array([f"key {n}" for n in range(30)]),
    "large text": pa.array([f"key {n}" for n in range(30)], pa.large_string()),
    "binary": pa.array([bytes([n, n]) for n in range(30)]),
    "dictionary": pa.array(["a", "b", "c", "a"]).dictionary_encode(),
    "milliseconds": pa.array(_INSTANTS, pa.timestamp("ms", tz="UTC")),
    "nanoseconds": pa.array([1_700_000_000_000_000_001 + n for n in range(20)], pa.timestamp("ns")),
    "zone": pa.array(_INSTANTS, pa.timestamp("us", tz="Europe/Berlin")),
    "date": pa.array([date(2024, 1, day) for day in range(1, 20)]),
    "duration": pa.array(range(20), pa.duration("s")),
    "decimal": pa.array([Decimal("1.50"), Decimal("2.25"), Decimal("-3.00")], pa.decimal128(9, 2)),
    "list": pa.array([[n, n + 1] for n in range(20)], pa.list_(pa.int64())),
}


def owners(keys: list[Any], kinds: list[pa.DataType], *, as_tuples: bool = False) -> list[int]:
    """The partition that each key belongs to; exactly one."""
    found = []
    for key in keys:
        (owner,) = [n for n in range(PARTITIONS) if Share(n, PARTITIONS).keys([key], kinds, as_tuples=as_tuples)]
        found.append(owner)
    return found


@pytest.mark.parametrize("name", COLUMNS)
def test_keys_belong_to_where_their_rows_are_sent(name: str) -> None:
    column = COLUMNS[name]
    batch = pa.record_batch({"key": column, "other": pa.array(range(len(column)))})
    sent = partition_of([column], PARTITIONS).tolist()
    assert owners(KeyColumns(batch.schema, ["key"]).read(batch), [column.type]) == sent
    if name == "list":
        with pytest.raises(FlowError, match="cannot be divided anew"):
            owners(forms_of(batch, ["key"]), [column.type])
    else:
        assert owners(forms_of(batch, ["key"]), [column.type]) == sent
        if name != "nanoseconds":
            assert owners([(value,) for value in column.to_pylist()], [column.type], as_tuples=True) == sent
    both = [column, batch.column("other")]
    sent = partition_of(both, PARTITIONS).tolist()
    keys = KeyColumns(batch.schema, ["key", "other"]).read(batch)
    assert owners(keys, [column.type, pa.int64()]) == sent
    parts = [Share(n, PARTITIONS).rows(batch, ["key", "other"]).num_rows for n in range(PARTITIONS)]
    assert sum(parts) == batch.num_rows


def test_a_null_is_a_key_of_its_own() -> None:
    column = pa.array([1, None, 2], pa.int64())
    batch = pa.record_batch({"key": column})
    assert owners(forms_of(batch, ["key"]), [column.type]) == partition_of([column], PARTITIONS).tolist()
