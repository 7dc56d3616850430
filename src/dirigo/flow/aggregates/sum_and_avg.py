"""Owns sum and avg.

Sums of integers and decimals are exact, partial ones too, so only the total of a group has to fit its type. A sum of floats
depends in its last digits on the order of the additions, that is, on how the rows were spread over workers; cast to a
decimal where that matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, GroupSummary, Parts
from dirigo.flow.aggregates.columns.groups import Groups
from dirigo.flow.aggregates.columns.plain import column_of
from dirigo.flow.aggregates.columns.sums import add_sums, add_values, means, sum_fields, sum_type, totals
from dirigo.flow.aggregates.count import add_counts
from dirigo.flow.expressions.expression import Expression


class Sum(Aggregate):
    """The sum of the values that are not null."""

    function = "sum"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        return _Summing(sum_type(self._number_type(schema, what)), str(self))


class Average(Aggregate):
    """The mean of the values that are not null."""

    function = "avg"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        return _Averaging(sum_type(self._number_type(schema, what)))


class _Summing(GroupSummary):
    def __init__(self, kind: pa.DataType, written: str) -> None:
        self.part_fields = sum_fields(kind)
        self.output_type = kind
        self._written = written

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        return add_values(inputs[0], groups)

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        return add_sums(parts, groups)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        return totals(parts, self._written)


class _Averaging(GroupSummary):
    output_type = pa.float64()

    def __init__(self, kind: pa.DataType) -> None:
        self.part_fields = (*sum_fields(kind), ("count", pa.int64()))

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        values, groups = groups.without_nulls(inputs[0])
        return [*add_values(values, groups), column_of(groups.sizes())]

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        *sums, counts = parts
        return [*add_sums(sums, groups), column_of(add_counts(counts.to_numpy(), groups.codes, groups.count))]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        *sums, counts = parts
        return means(sums, counts.to_numpy())


def sum_(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The sum: int64 for integers, float64 for floats, a decimal for decimals; null of nothing. OverflowError beyond."""
    return Sum(argument, where)


def avg(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The mean as a float64; null of nothing. Of integers and decimals, it is the float nearest to the exact mean."""
    return Average(argument, where)
