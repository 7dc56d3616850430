"""Rows out of any Python iterable: a list, a generator, or a function that makes one."""

from __future__ import annotations

import dataclasses
import itertools
import time as clock
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import pyarrow as pa

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import SchemaLike, as_schema, require_unique_names
from dirigo.flow.sources.fit import fit_batch, fit_rows
from dirigo.flow.sources.source import Source, SourceBatch, Split, empty_batch, require_wanted

_PEEKED_ROWS: Final = 100
_NO_ITEM: Final = object()


def from_iterable(
    rows: Iterable[Any] | Callable[[], Iterable[Any]] | pa.RecordBatch | pa.Table,
    schema: SchemaLike | None = None,
    *,
    time: str | None = None,
    out_of_orderness: Duration = "0ms",
    idle_after: Duration | None = None,
    name: str = "rows",
) -> IterableSource:
    """Rows that are dicts, NamedTuples, dataclass instances, tuples in the order of `schema`, or Arrow batches and tables.

    One Arrow batch or table will do too.

    Without `schema`, the columns are worked out from the first rows. A list, or a function that returns a new iterable each
    time, can be read again and again; a generator only once. A row that is long in coming holds up the thread that reads it.
    """
    return IterableSource(rows, schema, time=time, out_of_orderness=out_of_orderness, idle_after=idle_after, name=name)


class IterableSource(Source):
    """Rows out of a Python iterable. It cannot be split."""

    default_name = "rows"

    def __init__(
        self,
        rows: Iterable[Any] | Callable[[], Iterable[Any]] | pa.RecordBatch | pa.Table,
        schema: SchemaLike | None,
        *,
        time: str | None,
        out_of_orderness: Duration,
        idle_after: Duration | None,
        name: str,
    ) -> None:
        rows = _listed(rows, name)
        if isinstance(rows, (str, bytes, Mapping)) or not (callable(rows) or isinstance(rows, Iterable)):
            raise FlowError(
                f"{name}: {type(rows).__name__} is no collection of rows; give a list, a generator or a function."
            )
        self._rows = rows
        self._is_spent = False
        if schema is None:
            found = self._peeked_schema(name)
        else:
            found = as_schema(schema, name)
        super().__init__(
            found, name=name, is_bounded=True, time=time, out_of_orderness=out_of_orderness, idle_after=idle_after
        )

    @property
    def is_replayable(self) -> bool:
        """A generator is gone once it was read, and a set has another order in each process."""
        return not isinstance(self._rows, (Iterator, Set))

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        if isinstance(self._rows, Iterator):
            if self._is_spent:
                raise FlowError(
                    f"{self.name}: its rows come from a generator, which can be read only once; give a list, or a function"
                    " that returns a new generator."
                )
            self._is_spent = True
        return [IterableSplit(self._new_iterator, self.schema, self.name, is_replayable=self.is_replayable)]

    def _new_iterator(self) -> Iterator[Any]:
        rows = _listed(self._rows(), self.name) if callable(self._rows) else self._rows
        if not isinstance(rows, Iterable):
            raise FlowError(
                f"{self.name}: the function returns {type(rows).__name__}, not rows; return a list or a generator."
            )
        return iter(rows)

    def _peeked_schema(self, name: str) -> pa.Schema:
        self.name = name  # errors speak of it before the rest is known
        iterator = self._new_iterator()
        peeked = list(itertools.islice(iterator, _PEEKED_ROWS))
        if isinstance(self._rows, Iterator):
            self._rows = itertools.chain(peeked, iterator)  # what was peeked at is not lost
        return _schema_of_rows(peeked, name)


class IterableSplit(Split):
    """The one reader of an iterable, which is begun with the first read. What takes long to come is given as it comes.

    The position is how many items were given, how many rows of the next one if it is a table, and the number of the next
    row. After a seek, the items up to there are taken again, a few milliseconds at a time.
    """

    def __init__(self, begin: Callable[[], Iterator[Any]], schema: pa.Schema, what: str, *, is_replayable: bool) -> None:
        self._begin = begin
        self._rows: Iterator[Any] | None = None
        self._schema = schema
        self._what = what
        self._is_replayable = is_replayable
        self._batches: deque[pa.RecordBatch] = deque()  # rest of the whole batches among the items
        self._of_table = 0  # rows of the table at hand that were given
        self._items = 0  # that were taken
        self._skipped = 0  # items that a seek goes past
        self._number = 1  # of the next row

    def read(self, rows_max: int) -> SourceBatch | None:
        if self._batches:
            return self._read_batch(rows_max)
        if self.ended:
            return None
        if self._rows is None:
            self._rows = self._begin()
        until = clock.monotonic() + self.read_for_s
        if self._items < self._skipped and not self._skip(self._rows, until):
            return SourceBatch(empty_batch(self._schema))
        rows: list[Any] = []
        for row in self._rows:
            self._items += 1
            if isinstance(row, (pa.RecordBatch, pa.Table)):
                self._take_table(row)
                break
            if self._of_table:
                raise self._changed()
            rows.append(row)
            if len(rows) >= rows_max or clock.monotonic() >= until:
                break
        else:
            if self._of_table:
                raise self._changed()
            self.ended = True
        if not rows:
            return self._read_batch(rows_max) if self._batches else None
        read_batch = fit_rows(rows, self._schema, self._what, self._number)
        self._number += len(rows)
        return read_batch

    def close(self) -> None:
        self.ended = True
        self._batches.clear()
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()  # a generator frees what it holds

    def position(self) -> list[int] | None:
        if not self._is_replayable:
            return None
        given = self._items - bool(self._batches)  # a table with rows left is not given yet
        return [max(given, self._skipped), self._of_table, self._number]

    def seek(self, position: list[int]) -> None:
        self._skipped, self._of_table, self._number = position

    def _skip(self, rows: Iterator[Any], until: float) -> bool:
        """Take the items that were given before the position; whether that is done, or time is over."""
        while self._items < self._skipped:
            if next(rows, _NO_ITEM) is _NO_ITEM:
                raise self._changed()
            self._items += 1
            if clock.monotonic() >= until:
                return self._items == self._skipped
        return True

    def _take_table(self, table: pa.RecordBatch | pa.Table) -> None:
        if table.num_rows < self._of_table:
            raise self._changed()
        self._batches.extend([table] if isinstance(table, pa.RecordBatch) else table.to_batches())
        skipped = self._of_table
        while skipped:
            batch = self._batches.popleft()
            if batch.num_rows > skipped:
                self._batches.appendleft(batch.slice(skipped))
            skipped -= min(skipped, batch.num_rows)

    def _read_batch(self, rows_max: int) -> SourceBatch:
        batch = self._batches.popleft()
        if batch.num_rows > rows_max:
            self._batches.appendleft(batch.slice(rows_max))
            batch = batch.slice(0, rows_max)
        read_batch = fit_batch(batch, self._schema, self._what, self._number)
        self._number += batch.num_rows
        self._of_table = self._of_table + batch.num_rows if self._batches else 0
        return read_batch

    def _changed(self) -> FlowError:
        return FlowError(
            f"{self._what}: it has fewer rows now than were read before row {self._number}; give the same rows each time."
        )


def _listed(rows: Any, what: str) -> Any:
    """One table or batch as a list of it; whatever else it is, as it is."""
    if not isinstance(rows, (pa.RecordBatch, pa.Table)):
        return rows
    require_unique_names(rows.schema, what)
    return [rows]


def _schema_of_rows(rows: Sequence[Any], what: str) -> pa.Schema:
    if not rows:
        raise FlowError(f"{what}: there are no rows to work the columns out from; give schema=.")
    first = rows[0]
    if isinstance(first, (pa.RecordBatch, pa.Table)):
        require_unique_names(first.schema, what)
        return first.schema.remove_metadata()
    if isinstance(first, Mapping):
        return _schema_of_mappings([row for row in rows if isinstance(row, Mapping)], what)
    if dataclasses.is_dataclass(first) or hasattr(first, "_fields"):
        return as_schema(type(first), what)
    raise FlowError(
        f"{what}: a row that is a {type(first).__name__} does not say what its columns are called; give schema=."
    )


def _schema_of_mappings(rows: Sequence[Mapping[str, Any]], what: str) -> pa.Schema:
    """All names that occur, in the order in which they first do; a column without any value is taken for text."""
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        raise FlowError(f"{what}: the first rows have no columns; give schema=.")
    for name in names:
        if not isinstance(name, str):
            raise FlowError(f"{what}: the column name {name!r} is not text; use a str.")
    return pa.schema([(name, _type_of_values([row.get(name) for row in rows], name, what)) for name in names])


def _type_of_values(values: Sequence[Any], name: str, what: str) -> pa.DataType:
    values = [value for value in values if value is not None]
    if not values:
        return pa.string()
    for sample in (values, values[:1]):  # where one row differs from the others, the first one counts
        try:
            return pa.array(sample).type
        except (pa.ArrowException, TypeError, OverflowError):
            continue
    kind = type(values[0]).__name__
    raise FlowError(f"{what}: the column '{name}' holds a {kind}, which has no column type; give schema=.")
