"""Owns min and max, of anything that has an order. NaN counts as larger than every number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, GroupSummary, Parts
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.order_keys import Ordering, Ranks
from dirigo.flow.expressions.expression import Expression

_LIMITS = np.iinfo(np.int64)


class Smallest(Aggregate):
    """The smallest value that is not null."""

    function = "min"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        return _Extreme(self._orderable_type(schema, what), largest=False)


class Largest(Aggregate):
    """The largest value that is not null."""

    function = "max"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        return _Extreme(self._orderable_type(schema, what), largest=True)


class _Extreme(GroupSummary):
    def __init__(self, kind: pa.DataType, *, largest: bool) -> None:
        self.part_fields = (("max" if largest else "min", kind),)
        self.output_type = kind
        self._largest = largest

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        values, groups = groups.without_nulls(inputs[0])
        ordering = Ordering(values)
        return [ordering.decode(extreme_ranks(ordering.ranks, groups.codes, groups.count, self._largest), groups.missing())]

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        return self.reduce(parts, groups)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        return parts[0]


def extreme_ranks(ranks: Ranks, codes: Codes, groups: int, largest: bool) -> Ranks:
    """The largest or smallest rank of each group; that of a group without rows means nothing."""
    if largest:
        best = np.full(groups, _LIMITS.min)
        np.maximum.at(best, codes, ranks)
    else:
        best = np.full(groups, _LIMITS.max)
        np.minimum.at(best, codes, ranks)
    return best


def min_(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The smallest value; null of nothing."""
    return Smallest(argument, where)


def max_(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The largest value; null of nothing."""
    return Largest(argument, where)
