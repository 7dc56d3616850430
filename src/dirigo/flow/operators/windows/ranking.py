"""Owns summaries that are whole rows: all rows of each key, or the n best of them, in the form of an Aggregation.

Which rows are best never depends on which of them arrived first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.base import is_positive_int, orderable_type, plain
from dirigo.flow.aggregates.columns.groups import Mask
from dirigo.flow.aggregates.columns.lists import order_within_groups, places_within_groups
from dirigo.flow.aggregates.columns.order_keys import Ordering, Ranks, is_orderable
from dirigo.flow.aggregates.columns.panes import PANE_FIELD, Panes, empty_batch, pane_column, refuse_pane, single_pane
from dirigo.flow.aggregates.columns.plain import take
from dirigo.flow.aggregates.min_and_max import extreme_ranks
from dirigo.flow.errors import FlowError
from dirigo.flow.rows.grouping import Grouping
from dirigo.flow.rows.schema import require_columns

RowNumbers = npt.NDArray[np.intp]

_FEW_ROWS = 4


class Rows:
    """All rows of each key, kept as they are until the window is complete."""

    is_holistic = True
    slots = 1

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        require_columns(schema, keys, "rows by key")
        refuse_pane(schema)
        self.output_schema: pa.Schema = schema
        self.rows_schema: pa.Schema = schema  # a subclass may make something else of the rows
        self._partial_schema = pa.schema([PANE_FIELD, *schema])

    def partial_schema(self, slot: int) -> pa.Schema:
        """The columns of the only partial table: __pane, and those of the input."""
        del slot
        return self._partial_schema

    def partial(self, batch: pa.RecordBatch, panes: Panes) -> list[pa.RecordBatch]:
        """The rows of a batch with their panes."""
        return [batch.add_column(0, PANE_FIELD, pane_column(panes, batch.num_rows))]

    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch itself: all rows are needed."""
        del slot
        return batch

    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """All rows without their panes."""
        whole = partials[0] if len(partials) == 1 else pa.concat_batches(partials)
        return pa.RecordBatch.from_arrays(whole.columns[1:], schema=self.rows_schema)


class Ranking:
    """The n best rows of each key, computed pane by pane in the form of an Aggregation.

    by: the columns that decide, most important first, each with whether larger is better. Nulls are worst either way, and
    NaN is larger than every number. Rows equal in all of them are told apart by the other columns in the order of the schema
    (smaller first); with `ties`, all rows equal to the n-th in the columns of `by` are kept too. rank: the name of a column
    to add, with the row's number in the order, from 1.
    """

    is_holistic = False
    slots = 1

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        n: int,
        by: Sequence[tuple[str, bool]],
        ties: bool = False,
        rank: str | None = None,
    ) -> None:
        require_columns(schema, keys, "top rows: keys")
        if not is_positive_int(n):
            raise FlowError(f"top rows: the number of rows to keep must be 1 or more, not {n!r}.")
        if not by:
            raise FlowError("top rows: name the columns that decide which rows are best.")
        for column, _ in by:
            orderable_type(column, "the order", schema, "top rows")
        refuse_pane(schema)
        if rank is not None and rank in schema.names:
            raise FlowError(f"top rows: there is a column '{rank}' already; choose another name for the rank.")
        self.output_schema: pa.Schema = schema if rank is None else schema.append(pa.field(rank, pa.int64()))
        self._rank = rank
        self._n = n
        self._ties = ties
        order = ", ".join(f"{'-' if descending else ''}{column}" for column, descending in by)
        self.keeps = f"the top {n} by {order}{' with ties' if ties else ''}"  # in a line, for savepoints
        self._keys = [schema.get_field_index(key) for key in keys]
        self._by = [(schema.get_field_index(column), descending) for column, descending in by]
        decided = {*self._keys, *(position for position, _ in self._by)}
        self._tie_breakers = [position for position in range(len(schema)) if position not in decided]
        self._partial_schema = pa.schema([PANE_FIELD, *schema])

    def partial_schema(self, slot: int) -> pa.Schema:
        """The columns of the only partial table: __pane, and those of the input."""
        del slot
        return self._partial_schema

    def partial(self, batch: pa.RecordBatch, panes: Panes) -> list[pa.RecordBatch]:
        """The best rows of each pane and key."""
        if batch.num_rows == 0:
            return [empty_batch(self._partial_schema)]
        pane = single_pane(panes)
        if pane is not None:
            panes = pane
        rows = self._best(batch, None if isinstance(panes, int) else pane_column(panes, batch.num_rows), 0)
        if len(rows) < batch.num_rows:
            batch = _take(batch, rows)
            panes = panes if isinstance(panes, int) else panes[rows]
        return [batch.add_column(0, PANE_FIELD, pane_column(panes, batch.num_rows))]

    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The best rows of each pane and key."""
        del slot
        rows = self._best(batch, batch.column(0), 1)
        return batch if len(rows) == batch.num_rows else _take(batch, rows)

    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The best rows of each key. Panes are put together."""
        whole = partials[0] if len(partials) == 1 else pa.concat_batches(partials)
        if whole.num_rows == 0:
            return empty_batch(self.output_schema)
        if self._rank is None:
            best = _take(whole, self._best(whole, None, 1))
            return pa.RecordBatch.from_arrays(best.columns[1:], schema=self.output_schema)
        grouping = self._grouping(whole, None, 1)
        order, tied = self._sorted(whole, grouping, 1, to_the_end=True)
        places = places_within_groups(grouping.codes[order], grouping.count)
        kept = self._kept(places, tied)
        best = _take(whole, order[kept])
        return pa.RecordBatch.from_arrays([*best.columns[1:], pa.array(places[kept] + 1)], schema=self.output_schema)

    # Below, `first` is the position in the batch of the first column of the input: partial tables have the pane before it.

    def _grouping(self, batch: pa.RecordBatch, panes: pa.Array | None, first: int) -> Grouping:
        keys = [batch.column(first + position) for position in self._keys]
        return Grouping.of(keys if panes is None else [panes, *keys], batch.num_rows)

    def _best(self, batch: pa.RecordBatch, panes: pa.Array | None, first: int) -> RowNumbers:
        """The numbers of the rows to keep."""
        rows = batch.num_rows
        if rows and self._n == 1 and self._ties and not self._keys and panes is None and len(self._by) == 1:
            position, descending = self._by[0]
            preference = _preference(batch.column(first + position), descending)
            best: RowNumbers = (preference == preference.max()).nonzero()[0]
            return best
        grouping = self._grouping(batch, panes, first)
        if grouping.count == rows:
            return grouping.firsts
        if self._n == 1:
            return self._single_best(batch, grouping, first)
        order, tied = self._sorted(batch, grouping, first, to_the_end=not self._ties)
        return order[self._kept(places_within_groups(grouping.codes[order], grouping.count), tied)]

    def _single_best(self, batch: pa.RecordBatch, grouping: Grouping, first: int) -> RowNumbers:
        """Without sorting: column by column, only the rows that are best so far remain; mostly one column is enough."""
        candidates: RowNumbers = np.arange(len(grouping.codes))
        codes = grouping.codes
        for position, descending in self._deciding():
            column = batch.column(first + position)
            if len(candidates) < len(column):
                column = take(column, candidates)
            preference = _preference(column, descending)
            best = extreme_ranks(preference, codes, grouping.count, largest=True)
            chosen = (preference == best[codes]).nonzero()[0]
            candidates, codes = candidates[chosen], codes[chosen]
            if len(candidates) == grouping.count:
                return candidates
        # What remains of a group without `ties` are rows equal in every column: any one of them will do.
        return candidates if self._ties else candidates[Grouping.of([pa.array(codes)], len(codes)).firsts]

    def _deciding(self) -> list[tuple[int, bool]]:
        return self._by if self._ties else [*self._by, *((position, False) for position in self._tie_breakers)]

    def _sorted(self, batch: pa.RecordBatch, grouping: Grouping, first: int, to_the_end: bool) -> tuple[RowNumbers, Mask]:
        """The rows by group and best first, and whether each equals the one before it in all columns of `by`.

        Only these are compared by all other columns too, and only if `to_the_end`.
        """
        codes = grouping.codes
        costs = [~_preference(batch.column(first + position), descending) for position, descending in self._by]
        order = order_within_groups(codes, costs, grouping.count)
        tied = np.zeros(len(order), np.bool_)
        if len(order):
            tied[1:] = True
            for numbers in (codes, *costs):
                sorted_numbers = numbers[order]
                tied[1:] &= sorted_numbers[1:] == sorted_numbers[:-1]
        if to_the_end and tied.any():
            in_run = tied.copy()
            in_run[:-1] |= tied[1:]
            places = in_run.nonzero()[0]
            rows = order[places]
            taken = pa.array(rows)
            costs = [~_preference(batch.column(first + position).take(taken), False) for position in self._tie_breakers]
            order[places] = rows[order_within_groups(np.cumsum(~tied)[places], costs, len(order) + 1)]
        return order, tied

    def _kept(self, places: npt.NDArray[np.int64], tied: Mask) -> Mask:
        if not self._ties:
            return places < self._n
        # A row is kept if the first of those equal to it is.
        starts = (~tied).nonzero()[0]
        kept: Mask = places[starts][np.cumsum(~tied) - 1] < self._n
        return kept


def _take(batch: pa.RecordBatch, rows: RowNumbers) -> pa.RecordBatch:
    if 0 < len(rows) <= _FEW_ROWS:
        # Twice as quick as take, which finds out anew for every column how to take.
        return pa.concat_batches([batch.slice(int(row), 1) for row in rows])
    return batch.take(pa.array(rows))


def _preference(column: pa.Array, descending: bool) -> Ranks:
    """Numbers that are larger for better values."""
    column = plain(column)
    if not is_orderable(column.type):
        # Only tie-breakers come here: lists and the like, in the order of their Python text.
        column = pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    # The complement is in the opposite order, and unlike the negative it always exists.
    ranks = Ordering(column.drop_null() if column.null_count else column).ranks
    preference = ranks if descending else ~ranks
    if not column.null_count:
        return preference
    # Numbered from 1, so that nulls can be below all of them.
    _, numbers = np.unique(preference, return_inverse=True)
    with_nulls = np.zeros(len(column), np.int64)
    with_nulls[column.is_valid().to_numpy(zero_copy_only=False)] = numbers + 1
    return with_nulls
