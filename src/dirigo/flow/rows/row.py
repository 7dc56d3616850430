"""Rows of a batch as Python objects, for plain callables, and batches of what such callables return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dirigo.flow.rows.batches import BadRowError, batch_of
from dirigo.flow.rows.schema import nearest_name
from dirigo.flow.rows.unreadable import NO_FORM, PartlyReadable, rows_told, values_told

__all__ = ["BadRowError", "Row", "batch_of", "python_values", "rows_of", "told"]


class _UnknownFieldError(KeyError):
    """A KeyError whose sentence is not shown as a quoted key."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Columns(dict[str, list[Any]]):
    """The columns of a batch as Python lists, each converted when a row first asks for it."""

    __slots__ = ("batch", "names")

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__()
        self.batch = batch
        self.names: tuple[str, ...] = tuple(batch.schema.names)

    def __missing__(self, name: str) -> list[Any]:
        if name not in self.names:
            raise _UnknownFieldError(_unknown(name, self.names))
        column = self.batch.column(name)
        try:
            values = python_values(column)
        except NO_FORM:
            values = PartlyReadable(values_told(column))
        self[name] = values
        return values


class Row(Mapping[str, Any]):
    """One row: row["price"] or row.price, and all that a mapping offers. It cannot be changed; make a dict of it first.

    A column whose name is a method of mappings, such as "items", can only be read as row["items"].
    """

    # Without a dictionary of its own a row refuses every new attribute.
    __slots__ = ("_columns", "_position")

    def __init__(self, columns: _Columns, position: int) -> None:
        self._columns = columns
        self._position = position

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._position]

    def __getattr__(self, name: str) -> Any:
        # The class of the row has a property for each column, so only names that are no column come here.
        raise AttributeError(_unknown(name, self._columns.names), name=name, obj=self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.names)

    def __len__(self) -> int:
        return len(self._columns.names)

    def __contains__(self, name: object) -> bool:
        return name in self._columns.names

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.asdict() == (other.asdict() if isinstance(other, Row) else dict(other))

    def __hash__(self) -> int:
        return hash(frozenset(self.asdict().items()))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.asdict().items())})"

    def __reduce__(self) -> tuple[Callable[..., Row], tuple[Any, ...]]:
        # Only this row travels, not its whole batch.
        return _row_of_one, (self._columns.batch.slice(self._position, 1).take(pa.array([0])),)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._columns.names else default

    def asdict(self) -> dict[str, Any]:
        """The row as a dictionary of its own."""
        columns, position = self._columns, self._position
        return {name: columns[name][position] for name in columns.names}


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch, in order. A row may be kept; it keeps its batch in memory."""
    columns = _Columns(batch)
    return map(_row_class(columns.names), repeat(columns), range(batch.num_rows))


def told(row: Row) -> dict[str, Any]:
    """The row as a dictionary, to tell of it; it never fails."""
    try:
        return row.asdict()
    except NO_FORM:
        return rows_told(row._columns.batch.slice(row._position, 1))[0]


@lru_cache(maxsize=512)
def _row_class(names: tuple[str, ...]) -> type[Row]:
    """Rows with a property for each column: several times as fast as looking for an attribute in vain first."""
    properties = {name: property(_getter(name)) for name in names if name.isidentifier() and not hasattr(Row, name)}
    return type("Row", (Row,), {"__slots__": (), "__module__": Row.__module__, **properties})


def _getter(name: str) -> Callable[[Row], Any]:
    return lambda row: row._columns[name][row._position]


def _row_of_one(batch: pa.RecordBatch) -> Row:
    return next(rows_of(batch))


def _unknown(name: str, known: tuple[str, ...]) -> str:
    nearest = nearest_name(name, known)
    hint = f"; did you mean {nearest!r}?" if nearest is not None else "."
    return f"there is no column {name!r}{hint} The columns are {', '.join(known)}."


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def python_values(array: pa.Array) -> list[Any]:
    """As `to_pylist`, but many times as fast for the types that matter most."""
    kind = array.type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
        return _list_of(array.to_numpy(zero_copy_only=False))
    if types.is_timestamp(kind) and kind.tz == "UTC" and kind.unit != "ns":
        # numpy makes plain timedeltas; a sum is by far the cheapest way to a datetime with a zone.
        since_epoch = _list_of(array.view(pa.duration(kind.unit)).to_numpy(zero_copy_only=False))
        if array.null_count:
            return [None if passed is None else _EPOCH + passed for passed in since_epoch]
        return [_EPOCH + passed for passed in since_epoch]
    if array.null_count == 0 and (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        return _list_of(array.to_numpy(zero_copy_only=False))
    return _list_of(array)


def _list_of(values: Any) -> list[Any]:
    result: list[Any] = values.tolist()
    return result
