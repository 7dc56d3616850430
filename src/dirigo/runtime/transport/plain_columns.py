"""Columns whose values stand in the batch itself: a dictionary travels apart from its batch, and would get lost."""

from __future__ import annotations

import pyarrow as pa


def has_dictionary(schema: pa.Schema) -> bool:
    """Whether a column, or a part of one, is a dictionary."""
    return any(_contains_dictionary(field.type) for field in schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns with the types of their values; dictionaries inside of nested types stay."""
    if not has_dictionary(schema):
        return schema
    return pa.schema([field.with_type(_value_type(field.type)) for field in schema])


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without dictionaries at the top."""
    if not has_dictionary(batch.schema):
        return batch
    columns = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.schema))


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _contains_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_contains_dictionary(kind.field(number).type) for number in range(kind.num_fields))
