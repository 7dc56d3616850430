"""Owns the taking of some rows of a column."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pyarrow as pa


def take(column: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """The values of the rows with these numbers. For plain numbers numpy takes a third of the time that Arrow does."""
    kind = column.type
    if column.null_count == 0:
        if pa.types.is_integer(kind) or pa.types.is_float64(kind):
            return pa.array(column.to_numpy().take(rows))
        if pa.types.is_timestamp(kind):
            return pa.array(column.view(pa.int64()).to_numpy().take(rows)).view(kind)
    return column.take(pa.array(rows))
