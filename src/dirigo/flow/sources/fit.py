"""Making batches of a user's rows: the rows that fit come as a batch, each of the others as a bad row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from dirigo.flow.rows.row import BadRowError, batch_of
from dirigo.flow.sources.source import BadRow, SourceBatch, joined

_TRIED_AFTER_BAD_ROW: Final = 16
_GROWTH: Final = 4


def fit_rows(rows: Sequence[Any], schema: pa.Schema, what: str, first_number: int) -> SourceBatch:
    """The rows of a user as a read_batch; errors count the rows from `first_number`.

    All rows are tried at once. After a bad row, the next ones are tried in small steps that grow, so that many bad rows
    do not make a batch be tried as many times over.
    """
    good: list[pa.RecordBatch] = []
    bad: list[BadRow] = []
    position, step = 0, len(rows)
    while position < len(rows):
        tried = rows[position : position + step]
        try:
            good.append(batch_of(tried, schema))
        except BadRowError as error:
            if error.position:
                good.append(batch_of(tried[: error.position], schema))
            culprit = position + error.position
            bad.append(BadRow(_text_of(rows[culprit]), f"{what}, row {first_number + culprit}: {error.message}"))
            position, step = culprit + 1, _TRIED_AFTER_BAD_ROW
        else:
            position, step = position + len(tried), step * _GROWTH
    return SourceBatch(joined(good, schema), bad)


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema, what: str, first_number: int) -> SourceBatch:
    """A user's batch as a read_batch: cast to the schema as a whole if that loses nothing, else row by row."""
    if batch.schema.equals(schema):
        return SourceBatch(batch.replace_schema_metadata(schema.metadata))
    if set(schema.names) == set(batch.schema.names) and batch.num_columns == len(schema):
        try:
            return SourceBatch(batch.select(schema.names).cast(schema))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            pass  # the rows that do not fit are found one by one
    return fit_rows(batch.to_pylist(), schema, what, first_number)


def _text_of(row: Any) -> str:
    """The row as text. A class with a broken `repr` must not hide that its row is bad."""
    try:
        return repr(row)
    except Exception as error:
        return f"<{type(row).__name__} whose repr fails: {error}>"
