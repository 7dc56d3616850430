"""Owns sum and avg.

Sums of integers and decimals are exact; every partial sum has to fit its type. A sum of floats depends in its last digits
on the order of the additions, that is, on how the rows were spread over workers; cast to a decimal where that matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.aggregates.base import Aggregate, Argument, Parts, Summary
from dirigo.flow.aggregates.counting import add_counts
from dirigo.flow.aggregates.groups import Groups
from dirigo.flow.aggregates.sums import add_by_group, sum_type
from dirigo.flow.expression import Expression


class Sum(Aggregate):
    """The sum of the values that are not null."""

    function = "sum"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> Summary:
        del time
        return _Summing(sum_type(self._number_type(schema, what)), str(self))


class Average(Aggregate):
    """The mean of the values that are not null."""

    function = "avg"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> Summary:
        del time
        return _Averaging(sum_type(self._number_type(schema, what)), str(self))


class _Summing(Summary):
    def __init__(self, kind: pa.DataType, written: str) -> None:
        self.part_fields = (("sum", kind),)
        self.output_type = kind
        self._written = written

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        return [add_by_group(inputs[0], groups, self._written)]

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        return [add_by_group(parts[0], groups, self._written)]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        return parts[0]


class _Averaging(Summary):
    output_type = pa.float64()

    def __init__(self, kind: pa.DataType, written: str) -> None:
        self.part_fields = (("sum", kind), ("count", pa.int64()))
        self._written = written

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        values, groups = groups.without_nulls(inputs[0])
        return [add_by_group(values, groups, self._written), pa.array(groups.sizes())]

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        counts = add_counts(parts[1].to_numpy(), groups.codes, groups.count)
        return [add_by_group(parts[0], groups, self._written), pa.array(counts)]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        # A sum of nothing is null, and so is the quotient; the count then only must not be zero.
        counts = pa.array(np.maximum(parts[1].to_numpy(), 1)).cast(pa.float64())
        return pc.divide(parts[0].cast(pa.float64(), safe=False), counts)


def sum_(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The sum: int64 for integers (OverflowError beyond), float64 for floats, a decimal for decimals; null of nothing."""
    return Sum(argument, where)


def avg(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The mean as a float64; null of nothing."""
    return Average(argument, where)
