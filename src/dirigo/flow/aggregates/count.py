"""Owns count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, GroupSummary, Parts, argument_type
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.plain import column_of
from dirigo.flow.expressions.expression import Expression


class Count(Aggregate):
    """The number of rows, or of rows where the argument is not null."""

    function = "count"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        if self.argument is not None:
            argument_type(self.argument, schema, what)
        return _Counting()


class _Counting(GroupSummary):
    part_fields = (("count", pa.int64()),)
    output_type = pa.int64()

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        for values in inputs:
            _, groups = groups.without_nulls(values)
        return [column_of(groups.sizes())]

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        return [column_of(add_counts(parts[0].to_numpy(), groups.codes, groups.count))]

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        return parts[0]


def add_counts(counts: npt.NDArray[Any], codes: Codes, groups: int) -> npt.NDArray[np.int64]:
    """The sum of counts of each group."""
    totals = np.zeros(groups, np.int64)
    np.add.at(totals, codes, counts)
    return totals


def count(argument: Argument | None = None, *, where: Expression | None = None) -> Aggregate:
    """The number of rows; count("x") leaves out rows where x is null. 0 when there are none."""
    return Count(argument, where)
