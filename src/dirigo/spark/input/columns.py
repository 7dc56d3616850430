"""Columns of a DataFrame as a source of a job has them: which Arrow types they are, and batches brought to them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import as_schema, nearest_name
from dirigo.runtime.ingest.pusher import PushError

_Is = Callable[[pa.DataType], bool]
_TEXT: tuple[_Is, ...] = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: tuple[_Is, ...] = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_HARMLESS: tuple[tuple[tuple[_Is, ...], tuple[_Is, ...]], ...] = (
    # Given, and wanted. A single value that does not fit is an error.
    ((pa.types.is_integer,), (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)),
    ((pa.types.is_floating,), (pa.types.is_floating,)),
    ((pa.types.is_decimal,), (pa.types.is_decimal,)),
    ((pa.types.is_timestamp,), (pa.types.is_timestamp,)),
    ((pa.types.is_date,), (pa.types.is_date,)),
    ((pa.types.is_time,), (pa.types.is_time,)),
    ((pa.types.is_duration,), (pa.types.is_duration,)),
    (_TEXT, _TEXT),
    (_BYTES, _BYTES),
)


def source_schema(columns: StructType, what: str) -> pa.Schema:
    """The columns of a DataFrame in Arrow's types. Points in time stay what they are for Spark: microseconds, in UTC."""
    try:
        schema = to_arrow_schema(columns, timezone="UTC")
    except PySparkException as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise FlowError(f"{what}: a column of the DataFrame has no Arrow type ({reason}); cast or drop it.") from None
    return as_schema(pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema]), what)


class Fitting:
    """Brings batches of a DataFrame to the columns of a source: in their order, and cast where that harms nothing."""

    def __init__(self, columns: StructType, wanted: pa.Schema, source: str) -> None:
        """Refuse columns that do not match, in one sentence; ``source`` says whose they are."""
        given = source_schema(columns, source)
        for name in wanted.names:
            if name not in given.names:
                near = nearest_name(name, given.names)
                hint = f" (it has '{near}')" if near is not None else ""
                raise PushError(
                    f"{source} wants the column '{name}', which the DataFrame lacks{hint};"
                    f" select exactly {', '.join(wanted.names)}."
                )
        for name in given.names:
            if name not in wanted.names:
                raise PushError(f"{source} has no column '{name}'; select exactly {', '.join(wanted.names)}.")
        for field in wanted:
            found = given.field(field.name).type
            if not _is_harmless(found, field.type):
                raise PushError(
                    f"{source} wants the column '{field.name}' as {field.type}, but in the DataFrame it is {found};"
                    " cast it there."
                )
        self._wanted = wanted
        self._source = source
        self._order = [given.names.index(name) for name in wanted.names]

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [self._cast(batch.column(number), field) for number, field in zip(self._order, self._wanted, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._wanted)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.null_count and not field.nullable:
            raise PushError(f"{self._source} allows no nulls in the column '{field.name}'; filter them out before.")
        if column.type == field.type:
            return column
        # Of points in time, digits that the source has no room for are dropped; everything else must fit exactly.
        is_time = pa.types.is_timestamp(field.type)
        try:
            return column.cast(field.type, safe=not is_time)
        except pa.ArrowException as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise PushError(
                f"{self._source} wants the column '{field.name}' as {field.type}, and a value does not fit ({reason});"
                " filter such rows out, or declare a larger type."
            ) from None


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same type without promises about nulls, which no operator keeps track of."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    return kind


def _is_harmless(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted:
        return True
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in given]
        return names == [field.name for field in wanted] and all(
            _is_harmless(given.field(number).type, wanted.field(number).type) for number in range(len(names))
        )
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _is_harmless(given.key_type, wanted.key_type) and _is_harmless(given.item_type, wanted.item_type)
    if _is_any_list(given) and _is_any_list(wanted):
        return _is_harmless(given.value_type, wanted.value_type)
    return any(
        any(is_kind(given) for is_kind in givens) and any(is_kind(wanted) for is_kind in targets)
        for givens, targets in _HARMLESS
    )


def _is_any_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
