"""Columns of results as Spark has them: which Spark type an Arrow type becomes, and batches brought to it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from dirigo.runtime.results.log import LogError

_WIDER_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_DECIMAL_OF_UINT64 = pa.decimal128(20, 0)
_DIGITS_MAX = 38


class _NoSuchType(Exception):  # noqa: N818  # caught at once
    """Spark has no type with these values."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a log for Spark, by name and in their order.

    Whole numbers without a sign become the next larger ones with it (uint64 a decimal(20, 0)), as Spark reads them from
    Parquet too; times without a zone stay without one (timestamp_ntz). What Spark has no type for is refused.
    Who asks for other columns with ``.schema(...)`` gets them cast: as a timestamp, a time without a zone is taken as UTC.
    """
    fields = []
    for field in schema:
        try:
            fields += from_arrow_schema(pa.schema([pa.field(field.name, _plain_type(field.type), field.nullable)]))
        except (PySparkException, _NoSuchType):
            raise LogError(
                f"Spark has no type for the column '{field.name}', which is {field.type}; cast or drop it in the flow."
            ) from None
    return StructType(fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects of a batch of these columns."""
    return to_arrow_schema(schema, timezone="UTC")


def for_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The columns of `target`, found by name and cast to its types."""
    columns = []
    for field in target:
        number = batch.schema.get_field_index(field.name)
        if number < 0:
            names = ", ".join(batch.schema.names)
            raise LogError(f"The results have no column '{field.name}', only {names}; leave out .schema().")
        column = batch.column(number)
        if column.null_count and not field.nullable:
            raise LogError(f"Column '{field.name}' has nulls, which the schema does not allow; leave out .schema().")
        try:
            columns.append(_cast(column, field.type))
        except pa.ArrowException as error:
            reason = str(error).split("\n")[0].rstrip(".")
            raise LogError(
                f"Column '{field.name}' cannot be brought from {column.type} to {field.type} for Spark ({reason}); "
                "cast it in the flow."
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    # Spark counts microseconds: of finer times the rest is dropped, as Spark does itself. All else must fit exactly.
    loses_nothing_else = pa.types.is_timestamp(column.type) and column.type.unit == "ns" and pa.types.is_timestamp(kind)
    return pc.cast(column, kind, safe=not loses_nothing_else)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """A type with the same values that Spark knows; or the same type, if it knows that."""
    if kind in _WIDER_SIGNED:
        return _WIDER_SIGNED[kind]
    if pa.types.is_uint64(kind):
        return _DECIMAL_OF_UINT64
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_time32(kind):
        return pa.time64("ns")
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return _plain_decimal(kind)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain_type(key.type)), item.with_type(_plain_type(item.type)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _plain_decimal(kind: pa.DataType) -> pa.DataType:
    if 0 <= kind.scale <= kind.precision <= _DIGITS_MAX:
        return pa.decimal128(kind.precision, kind.scale)
    raise _NoSuchType
