"""Batches made of rows: fast when all rows are of one kind and fit, exact about the first one that does not."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.rows.schema import nearest_name
from dirigo.flow.rows.strict_values import misfit, strict_array


class BadRowError(DirigoError):
    """A row does not fit the columns. `position` counts rows from 0; `message` says what is wrong with this one."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"row {position}: {message}")
        self.position = position
        self.message = message

    def __reduce__(self) -> tuple[type[BadRowError], tuple[int, str]]:
        return BadRowError, (self.position, self.message)


class _MisfitError(Exception):
    """The fields of a row are not the columns; the message says how."""


def batch_of(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of all rows: mappings, named tuples, dataclass instances, or plain tuples in the order of the columns.

    Values must be of the type of their column already; only an int may stand for a float or decimal, and None for anything
    nullable. Times are cut to the unit of their column. The first row that does not fit raises `BadRowError`.
    """
    batch = _batch_if_all_fit(rows, schema)
    if batch is None:
        raise _first_bad_row(rows, schema)
    return batch


def _batch_if_all_fit(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch | None:
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=schema)
    columns = _columns_of(rows, tuple(schema.names))
    if columns is None:
        return None
    arrays = []
    for values, field in zip(columns, schema, strict=True):
        array = strict_array(values, field)
        if array is None:
            return None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns_of(rows: Sequence[Any], names: tuple[str, ...]) -> Iterable[Sequence[Any]] | None:
    """The values column by column; None if the fields of some row are not the columns."""
    kinds = set(map(type, rows))
    kind = kinds.pop()
    try:
        if kinds:
            return list(zip(*(_values_of(row, names) for row in rows), strict=True))
        # As many fields as columns, and each column among them; a mapping that invents fields would pass wrongly.
        if kind is dict or (issubclass(kind, Mapping) and not hasattr(kind, "__missing__")):
            return _transposed(rows, names, itemgetter) if set(map(len, rows)) == {len(names)} else None
        if kind is tuple:
            return list(zip(*rows, strict=True)) if set(map(len, rows)) == {len(names)} else None
        fields = _fields_of(kind)
        if fields is None:
            return list(zip(*(_values_of(row, names) for row in rows), strict=True))
        if set(fields) != set(names):
            return None
        return _transposed(rows, names, attrgetter)
    except (KeyError, AttributeError, _MisfitError):
        return None


def _transposed(rows: Sequence[Any], names: tuple[str, ...], getter: Callable[..., Any]) -> Iterable[Sequence[Any]]:
    # Column by column, because zip(*rows) spreads thousands of rows over the stack.
    return [list(map(getter(name), rows)) for name in names]


def _fields_of(kind: type) -> Sequence[str] | None:
    """The field names of a NamedTuple or dataclass."""
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return None


def _values_of(row: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """The values of one row of any kind, in the order of the columns."""
    if isinstance(row, Mapping):
        _compare_fields(list(row), names)
        return [row[name] for name in names]
    fields = _fields_of(type(row))
    if fields is not None:
        _compare_fields(fields, names)
        return [getattr(row, name) for name in names]
    if isinstance(row, tuple):
        if len(row) != len(names):
            raise _MisfitError(f"the tuple has {len(row)} values, but there are {len(names)} columns: {', '.join(names)}.")
        return row
    raise _MisfitError(
        f"{reprlib.repr(row)} is of type {type(row).__name__}; a row is a dict, Row, NamedTuple, dataclass or tuple."
    )


def _compare_fields(fields: Iterable[Any], names: tuple[str, ...]) -> None:
    given = set(fields)
    for field in fields:
        if field not in names:
            nearest = nearest_name(field, [name for name in names if name not in given])
            hint = f"; did you mean {nearest!r}?" if nearest is not None else "."
            raise _MisfitError(f"the field {field!r} is not a column{hint} The columns are {', '.join(names)}.")
    for name in names:
        if name not in given:
            raise _MisfitError(f"the field {name!r} is missing; give every column a value, None if there is none.")


def _first_bad_row(rows: Sequence[Any], schema: pa.Schema) -> BadRowError:
    """Halves the rows until one is left: a batch with a bad row takes little longer than a good one."""
    start, end = 0, len(rows)
    while end - start > 1:
        middle = (start + end) // 2
        if _batch_if_all_fit(rows[start:middle], schema) is None:
            end = middle
        else:
            start = middle
    return BadRowError(start, _what_is_wrong(rows[start], schema))


def _what_is_wrong(row: Any, schema: pa.Schema) -> str:
    try:
        values = _values_of(row, tuple(schema.names))
    except (_MisfitError, AttributeError) as error:
        return str(error)
    messages = (misfit(value, field) for value, field in zip(values, schema, strict=True))
    return next((message for message in messages if message is not None), "it does not fit together with the other rows.")
