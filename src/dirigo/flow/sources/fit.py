"""Making batches of a user's rows: the rows that fit come as a batch, each of the others as a bad row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.rows.row import BadRowError, batch_of
from dirigo.flow.rows.schema import require_unique_names
from dirigo.flow.rows.unreadable import rows_told
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
    """A user's batch as a read_batch. A row is good if it can be cast to the schema, whatever other rows there are."""
    if batch.schema.equals(schema):
        return SourceBatch(batch.replace_schema_metadata(schema.metadata))
    require_unique_names(batch.schema, what)
    if set(schema.names) == set(batch.schema.names) and batch.num_columns == len(schema):
        try:
            return _cast_rows(batch.select(schema.names), schema, what, first_number)
        except pa.ArrowNotImplementedError:
            pass  # Arrow has no cast between such types, so the rows must fit as Python values
    return fit_rows(rows_told(batch), schema, what, first_number)


def _cast_rows(batch: pa.RecordBatch, schema: pa.Schema, what: str, first_number: int) -> SourceBatch:
    good: list[pa.RecordBatch] = []
    bad: list[BadRow] = []
    parts = [(0, batch)]  # the last one comes first
    while parts:
        start, part = parts.pop()
        try:
            good.append(_cast(part, schema))
        except ValueError as error:
            rows = part.num_rows
            if rows == 1 and part is not batch:
                bad.append(BadRow(_text_of(rows_told(part)[0]), f"{what}, row {first_number + start}: {error}"))
                continue
            # Halves, until each bad row stands alone. They are copies: of a slice of lists, Arrow casts other rows too.
            for first, end in ((rows // 2, rows), (0, rows // 2)):
                if first < end:
                    parts.append((start + first, part.take(pa.array(range(first, end)))))
    return SourceBatch(joined(good, schema), bad)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """All columns cast without a loss, but times are cut to their unit, as everywhere."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.null_count and not field.nullable:
            raise ValueError(f"the field {field.name!r} is None, but the column allows no nulls.")
        try:
            columns.append(column.cast(options=pc.CastOptions(field.type, allow_time_truncate=True)))
        except pa.ArrowInvalid as error:
            raise ValueError(f"the field {field.name!r} cannot be cast to {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _text_of(row: Any) -> str:
    """The row as text. A class with a broken `repr` must not hide that its row is bad."""
    try:
        return repr(row)
    except Exception as error:
        return f"<{type(row).__name__} whose repr fails: {error}>"
