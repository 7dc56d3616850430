"""Summaries made of plain Python: a function applied to all rows of a group, and rows folded two by two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.columns.panes import PANE
from dirigo.flow.event_time.time_column import Times
from dirigo.flow.event_time.watermark import END
from dirigo.flow.event_time.windows import Span
from dirigo.flow.operators.windows.aggregation import Rows
from dirigo.flow.rows.bad_rows import Bad, described
from dirigo.flow.rows.grouping import Grouping
from dirigo.flow.rows.row import BadRowError, Row, batch_of, rows_of, told
from dirigo.flow.rows.unreadable import rows_told


@dataclass(frozen=True)
class Group:
    """All rows of one key in one window, as ``apply`` hands them to a function. They come in no particular order."""

    key: Mapping[str, Any]
    start_ms: int | None
    end_ms: int | None
    batch: pa.RecordBatch

    @cached_property
    def rows(self) -> list[Row]:
        return list(rows_of(self.batch))

    def __len__(self) -> int:
        return int(self.batch.num_rows)


GroupFunction = Callable[[Group], Any]


class Applied(Rows):
    """A function of all rows of a group. Nothing can be said of them before the window closes, so all are kept."""

    def __init__(
        self, name: str, schema: pa.Schema, keys: Sequence[str], function: GroupFunction, output: pa.Schema
    ) -> None:
        super().__init__(schema, keys)
        self.name = name
        self.keys = tuple(keys)
        self.output_schema = output
        self._function = function

    def finish_window(self, partials: Sequence[pa.RecordBatch], span: Span | None, bad: list[Bad]) -> pa.RecordBatch:
        """The results of all groups; the rows of a group on which the function fails are added to ``bad``."""
        rows = Rows.finish(self, partials)
        grouping = Grouping.of([rows.column(key) for key in self.keys], rows.num_rows)
        order = np.argsort(grouping.codes, kind="stable")
        ordered = rows.take(pa.array(order))
        start_ms, end_ms = (None, None) if span is None or span.end_ms >= END else (span.start_ms, span.end_ms)
        keys = rows.select(list(self.keys)).take(pa.array(grouping.firsts)).to_pylist() if self.keys else [{}]
        results = []
        start = 0
        for key, count in zip(keys, np.bincount(grouping.codes).tolist(), strict=True):
            group = Group(key, start_ms, end_ms, ordered.slice(start, count))
            start += count
            try:
                results.append(self._apply(group))
            except Exception as error:  # user code may raise anything
                message = f"the function failed on {_shown_group(group)}: {described(error)}"
                bad += [Bad(row, message) for row in rows_told(group.batch)]
        return pa.concat_batches(results) if results else batch_of([], self.output_schema)

    def _apply(self, group: Group) -> pa.RecordBatch:
        result = self._function(group)
        if isinstance(result, pa.RecordBatch):
            return _columns_of(result, self.output_schema)
        if result is None:
            return batch_of([], self.output_schema)
        if isinstance(result, Mapping | str) or not isinstance(result, Iterable):
            raise TypeError(f"it returned a value of type {type(result).__name__}, not a list of rows")
        try:
            return batch_of(list(result), self.output_schema)
        except BadRowError as error:
            raise ValueError(f"its {error}") from None


def _columns_of(result: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema from a batch that a function made, which may have them in any order."""
    for name in schema.names:
        if name not in result.schema.names:
            raise ValueError(f"it returned a batch without the column {name!r}")
    return pa.RecordBatch.from_arrays([result.column(field.name).cast(field.type) for field in schema], schema=schema)


def _shown_group(group: Group) -> str:
    key = ", ".join(f"{name}={value!r}" for name, value in group.key.items())
    rows = "1 row" if len(group) == 1 else f"{len(group):,} rows"
    return f"the group {key} of {rows}" if key else f"the group of {rows}"


class Combined(dict[str, Any]):
    """A row that a function made, readable like the rows that it is combined with."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no column '{name}'") from None


def combined(result: Any, checked_for: pa.Schema | None = None) -> Any:
    """What a function made of two rows, fit to be handed to it again; checked for a schema if that is asked for."""
    if checked_for is not None:
        try:
            batch_of([result], checked_for)
        except BadRowError as error:
            raise ValueError(f"the result {result!r} does not fit: {error.message}") from None
    return Combined(result) if isinstance(result, Mapping) else result


class Folded:
    """Rows of one key combined two by two with a function that is associative and commutative.

    Two rows that the function fails on stay apart until their window closes; only then is one of them a bad row.
    """

    slots = 1

    def __init__(self, name: str, schema: pa.Schema, keys: Sequence[str], function: Callable[[Row, Row], Any]) -> None:
        self.name = name
        self.keys = tuple(keys)
        self.output_schema = schema
        self._function = function
        self._partial_schema = pa.schema([pa.field(PANE, pa.int64()), *schema])

    def partial_schema(self, slot: int) -> pa.Schema:
        del slot
        return self._partial_schema

    def partial(self, batch: pa.RecordBatch, panes: Times | int) -> list[pa.RecordBatch]:
        numbers = np.full(batch.num_rows, panes) if isinstance(panes, int) else panes
        return [self.merge(0, pa.RecordBatch.from_arrays([pa.array(numbers), *batch.columns], schema=self._partial_schema))]

    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        del slot
        folded, _ = self._fold(batch, (PANE, *self.keys), self._partial_schema)
        return folded

    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        folded, _ = self._fold(partials[0], self.keys, self.output_schema)
        return folded

    def finish_window(self, partials: Sequence[pa.RecordBatch], span: Span | None, bad: list[Bad]) -> pa.RecordBatch:
        """One row per key; rows that could not be combined with the others of their key are added to ``bad``."""
        del span
        folded, failures = self._fold(partials[0], self.keys, self.output_schema)
        if not failures:
            return folded
        bad += [Bad(row, error) for row, error in failures]
        grouping = Grouping.of([folded.column(name) for name in self.keys], folded.num_rows)
        return folded.take(pa.array(grouping.firsts))

    def _fold(
        self, batch: pa.RecordBatch, by: tuple[str, ...], schema: pa.Schema, check_each: bool = False
    ) -> tuple[pa.RecordBatch, list[tuple[dict[str, Any], Exception]]]:
        """The rows of each group as one, followed by those that could not be combined, and the latter with the reason."""
        grouping = Grouping.of([batch.column(name) for name in by], batch.num_rows)
        if grouping.count == batch.num_rows:
            return batch.select(schema.names), []
        fixed = [name for name in by if name in schema.names]
        plain = batch.select(self.output_schema.names)
        folded: list[Any] = [None] * grouping.count
        apart: list[int] = []
        failures: list[tuple[dict[str, Any], Exception]] = []
        for position, (row, code) in enumerate(zip(rows_of(plain), grouping.codes.tolist(), strict=True)):
            so_far = folded[code]
            try:
                folded[code] = row if so_far is None else self._combine(so_far, row, check_each)
            except Exception as error:  # user code may raise anything
                apart.append(position)
                failures.append((told(row), error))
        try:
            out = batch_of(folded, self.output_schema)
        except BadRowError:
            return self._fold(batch, by, schema, check_each=True)
        firsts = batch.select(fixed).take(pa.array(grouping.firsts))
        columns = [(firsts if name in fixed else out).column(name) for name in schema.names]
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        if apart:
            whole = pa.concat_batches([whole, batch.select(schema.names).take(pa.array(apart))])
        return whole, failures

    def _combine(self, one: Row, other: Row, check: bool) -> Any:
        return combined(self._function(one, other), self.output_schema if check else None)
