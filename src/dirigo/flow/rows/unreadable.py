"""Values that have no form in Python: times after the year 9999, and text that is no Unicode.

Only who asks for such a value fails; other values and other rows are not affected, and the row can still be told about.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import types

NO_FORM: Final = (pa.ArrowException, ValueError, OverflowError, TypeError)  # what Arrow and numpy raise for such values


class Unreadable:
    """Stands for a value that has no form in Python."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class PartlyReadable(list[Any]):
    """The values of a column. To ask for one that has no form in Python raises."""

    def __getitem__(self, position: Any) -> Any:
        value = super().__getitem__(position)
        if isinstance(value, Unreadable):
            raise ValueError(f"the value {value} has no form in Python")
        return value


def values_told(array: pa.Array) -> list[Any]:
    """As `to_pylist`, with an `Unreadable` for each value that has no form in Python."""
    try:
        values: list[Any] = array.to_pylist()
        return values
    except NO_FORM:
        return [_told(scalar) for scalar in array]


def rows_told(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, to tell of them: as `to_pylist`, but it never fails."""
    columns = [values_told(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _told(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except NO_FORM:
        kind = scalar.type
        if types.is_temporal(kind):
            return Unreadable(f"{scalar.value} as {kind}")
        if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            return Unreadable(scalar.as_buffer().to_pybytes().decode(errors="backslashreplace"))
        return Unreadable(f"some {kind}")
