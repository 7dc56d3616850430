"""Owns the aggregation of a keyed stream in parts: batches become partial tables, which merge in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.base import (
    Aggregate,
    Argument,
    GroupSummary,
    Listing,
    evaluate_argument,
    plain,
    plain_type,
)
from dirigo.flow.aggregates.columns.groups import Codes, Groups, Mask
from dirigo.flow.aggregates.columns.panes import PANE_FIELD, Panes, empty_batch, group_by_pane, pane_column, refuse_pane
from dirigo.flow.aggregates.columns.plain import take
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression
from dirigo.flow.operators.windows.ranking import Rows
from dirigo.flow.rows.grouping import Grouping, mostly_distinct
from dirigo.flow.rows.schema import require_columns

__all__ = ["Aggregation", "Rows"]

_Worker = TypeVar("_Worker", bound=GroupSummary | Listing)


class Aggregation:
    """Aggregates of the rows of each key, computed pane by pane.

    A pane is the piece of time that windows are put together from. Slot 0 is the table of partial results with one row per
    pane and key. Each aggregate that needs several rows per group has a further slot. The merging of partial tables is
    associative and commutative (floating-point sums up to their last digits), so any worker may do any part of it.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], aggregates: Mapping[str, Aggregate], time: str | None = None
    ) -> None:
        _check_names(schema, keys, aggregates)
        self._key_positions = [schema.get_field_index(key) for key in keys]
        key_fields = [pa.field(key, plain_type(schema.field(key).type)) for key in keys]
        self._summaries: list[_Bound[GroupSummary]] = []
        self._listings: list[_Bound[Listing]] = []
        self._results: list[tuple[bool, int]] = []  # for each aggregate: whether it is a summary, and which one
        output_fields = list(key_fields)
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise FlowError(
                    f"aggregate '{name}': takes an aggregate such as count() or sum('price'), not {aggregate!r}."
                )
            what = f"aggregate '{name}'"
            aggregate.check_where(schema, what)
            worker = aggregate.bind(schema, time, what)
            output_fields.append(pa.field(name, worker.output_type))
            if isinstance(worker, GroupSummary):
                self._results.append((True, len(self._summaries)))
                self._summaries.append(_Bound(name, aggregate, time, worker))
            else:
                self._results.append((False, len(self._listings)))
                self._listings.append(_Bound(name, aggregate, time, worker))
        self.output_schema: pa.Schema = pa.schema(output_fields)
        summary_fields = [field for bound in self._summaries for field in bound.part_fields]
        self._schemas = [pa.schema([PANE_FIELD, *key_fields, *summary_fields])]
        self._schemas += [pa.schema([PANE_FIELD, *key_fields, *bound.part_fields]) for bound in self._listings]

    @property
    def is_holistic(self) -> bool:
        """Whether partial results may grow with the number of rows, as those of distinct and median do."""
        return any(not bound.worker.bounded for bound in self._listings)

    @property
    def slots(self) -> int:
        """The number of partial tables."""
        return len(self._schemas)

    def partial_schema(self, slot: int) -> pa.Schema:
        """The columns of one partial table: __pane, the keys, and the parts of the aggregates."""
        return self._schemas[slot]

    def partial(self, batch: pa.RecordBatch, panes: Panes) -> list[pa.RecordBatch]:
        """One table per slot for the rows of a batch. `panes` is the pane of each row, or one for all rows."""
        if batch.num_rows == 0:
            return [empty_batch(schema) for schema in self._schemas]
        key_columns = [plain(batch.column(position)) for position in self._key_positions]
        if mostly_distinct(key_columns, batch.num_rows):
            # Grouping would cost more than the few rows that it saves; it is done when many batches have come together.
            grouping, group_panes = Grouping.all_apart(batch.num_rows), pane_column(panes, batch.num_rows)
            heading = [group_panes, *key_columns]
        else:
            grouping, group_panes = group_by_pane(panes, key_columns, batch.num_rows)
            heading = [group_panes, *(take(column, grouping.firsts) for column in key_columns)]
        inputs = _Inputs(batch, Groups(grouping.codes, grouping.count, True))
        columns = list(heading)
        for summary in self._summaries:
            values, groups = inputs.of(summary.arguments, summary.where)
            columns += summary.worker.reduce(values, groups)
        tables = [pa.RecordBatch.from_arrays(columns, schema=self._schemas[0])]
        for slot, listing in enumerate(self._listings, 1):
            (value,), groups = inputs.of(listing.arguments, listing.where)
            value, groups = groups.without_nulls(value)
            codes, parts = listing.worker.reduce(value, groups.codes)
            tables.append(_table(heading, codes, parts, self._schemas[slot]))
        return tables

    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A partial table with the same meaning and as few rows as possible."""
        heading = 1 + len(self._key_positions)
        columns = batch.columns
        grouping = Grouping.of(columns[:heading], batch.num_rows)
        if slot == 0:
            if grouping.count == batch.num_rows:
                return batch
            merged = [take(column, grouping.firsts) for column in columns[:heading]]
            groups = Groups(grouping.codes, grouping.count, True)
            for parts, summary in self._parts(columns[heading:]):
                merged += summary.worker.combine(parts, groups)
            return pa.RecordBatch.from_arrays(merged, schema=self._schemas[0])
        codes, listed = self._listings[slot - 1].worker.combine(columns[heading:], grouping.codes)
        if len(codes) == batch.num_rows:
            return batch
        return _table([take(column, grouping.firsts) for column in columns[:heading]], codes, listed, self._schemas[slot])

    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The result of each key, from all partial rows of each slot. Panes are put together."""
        first_table = partials[0]
        rows = first_table.num_rows
        if rows == 0:
            return empty_batch(self.output_schema)
        heading = 1 + len(self._key_positions)
        key_columns = [
            first_table.column(place)
            if len(partials) == 1
            else pa.concat_arrays([table.column(place) for table in partials])
            for place in range(1, heading)
        ]
        # All slots are grouped at once. Groups are numbered by first row, so those of slot 0 are the first ones.
        grouping = Grouping.of(key_columns, sum(table.num_rows for table in partials))
        firsts = grouping.firsts[: int(np.searchsorted(grouping.firsts, rows))]
        count = len(firsts)
        groups = Groups(grouping.codes[:rows], count, True)
        summaries: list[pa.Array] = []
        for parts, summary in self._parts(first_table.columns[heading:]):
            compact = parts if count == rows else summary.worker.combine(parts, groups)
            summaries.append(summary.worker.finish(compact))
        listings: list[pa.Array] = []
        start = rows
        for table, listing in zip(partials[1:], self._listings, strict=True):
            codes = grouping.codes[start : start + table.num_rows]
            start += table.num_rows
            listings.append(_finish_listing(listing.worker, table.columns[heading:], codes, count))
        columns = [take(column, firsts) for column in key_columns]
        columns += [(summaries if is_summary else listings)[place] for is_summary, place in self._results]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _parts(self, columns: Sequence[pa.Array]) -> list[tuple[Sequence[pa.Array], _Bound[GroupSummary]]]:
        taken = []
        start = 0
        for summary in self._summaries:
            end = start + len(summary.part_fields)
            taken.append((columns[start:end], summary))
            start = end
        return taken


class _Bound(Generic[_Worker]):
    """An aggregate with its name and what does its work."""

    def __init__(self, name: str, aggregate: Aggregate, time: str | None, worker: _Worker) -> None:
        self.arguments: list[Argument] = aggregate.arguments(time)
        self.where = aggregate.where
        self.worker = worker
        self.part_fields = [pa.field(f"{name}.{part}", kind) for part, kind in worker.part_fields]


class _Inputs:
    """What the aggregates need of one batch, each argument and each condition evaluated once."""

    def __init__(self, batch: pa.RecordBatch, groups: Groups) -> None:
        self._batch = batch
        self._groups = groups
        self._values: dict[str | int, pa.Array] = {}
        self._selections: dict[int, tuple[pa.Array, Groups]] = {}

    def of(self, arguments: Sequence[Argument], where: Expression | None) -> tuple[list[pa.Array], Groups]:
        """The argument columns of the rows that satisfy the condition, and the groups of these rows."""
        columns = [self._evaluate(argument) for argument in arguments]
        if where is None:
            return columns, self._groups
        selection = self._selections.get(id(where))
        if selection is None:
            condition = where.evaluate(self._batch).fill_null(False)
            mask: Mask = condition.to_numpy(zero_copy_only=False)
            selection = self._selections[id(where)] = (condition, self._groups.keep(mask))
        condition, groups = selection
        return [column.filter(condition) for column in columns], groups

    def _evaluate(self, argument: Argument) -> pa.Array:
        name = argument if isinstance(argument, str) else id(argument)
        values = self._values.get(name)
        if values is None:
            values = self._values[name] = evaluate_argument(argument, self._batch)
        return values


def _check_names(schema: pa.Schema, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
    require_columns(schema, keys, "group by")
    refuse_pane(schema)
    if not keys and not aggregates:
        raise FlowError("an aggregation needs a key or an aggregate; add one, such as bids=count().")
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise FlowError(f"group by: the key '{key}' is named twice; name it once.")
        if key in aggregates:
            raise FlowError(f"aggregate '{key}': a key has this name already; choose another one.")


def _table(heading: Sequence[pa.Array], codes: Codes, parts: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """A partial table whose rows repeat the pane and keys of their groups."""
    return pa.RecordBatch.from_arrays([*(take(column, codes) for column in heading), *parts], schema=schema)


def _finish_listing(listing: Listing, parts: Sequence[pa.Array], codes: Codes, count: int) -> pa.Array:
    if len(codes) and int(codes.max()) >= count:
        # Rows of keys that are not in slot 0 belong to no result.
        known = codes < count
        codes = codes[known]
        parts = [part.filter(pa.array(known)) for part in parts]
    return listing.finish(parts, Groups(codes, count, False))
