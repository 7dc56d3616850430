"""Owns first and last: the value at the earliest or latest time.

Among rows of one time the value itself decides (the smallest for first, the largest for last), so that the order of arrival
never does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, GroupSummary, Parts, orderable_type
from dirigo.flow.aggregates.columns.groups import Groups
from dirigo.flow.aggregates.columns.order_keys import Ordering
from dirigo.flow.aggregates.columns.plain import take
from dirigo.flow.aggregates.min_and_max import extreme_ranks
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression


class _Pick(Aggregate):
    _latest: bool

    def __init__(self, argument: Argument, by: Argument | None, where: Expression | None) -> None:
        super().__init__(argument, where)
        self.by = by

    def _options(self) -> list[str]:
        return [] if self.by is None else [f"by={self.by}"]

    def arguments(self, time: str | None) -> list[Argument]:
        order = time if self.by is None else self.by
        assert self.argument is not None
        assert order is not None
        return [order, self.argument]

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        order = time if self.by is None else self.by
        if order is None:
            raise FlowError(f"{what}: {self} needs an order, as the stream has no time column; name one with by='column'.")
        order_type = orderable_type(order, self.function, schema, what)
        return _Picking(order_type, self._orderable_type(schema, what), latest=self._latest)


class First(_Pick):
    """The value of the earliest row where neither it nor the time is null."""

    function = "first"
    _latest = False


class Last(_Pick):
    """The value of the latest row where neither it nor the time is null."""

    function = "last"
    _latest = True


class _Picking(GroupSummary):
    def __init__(self, order_type: pa.DataType, kind: pa.DataType, *, latest: bool) -> None:
        self.part_fields = (("by", order_type), ("value", kind))
        self.output_type = kind
        self._latest = latest

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        order, values = inputs
        if order.null_count:
            valid = order.is_valid()
            order, values = order.filter(valid), values.filter(valid)
            groups = groups.keep(valid.to_numpy(zero_copy_only=False))
        if values.null_count:
            order = order.filter(values.is_valid())
            values, groups = groups.without_nulls(values)
        missing = groups.missing()
        ordering = Ordering(order)
        best = extreme_ranks(ordering.ranks, groups.codes, groups.count, self._latest)
        candidates = (ordering.ranks == best[groups.codes]).nonzero()[0]
        choice = Ordering(take(values, candidates))
        chosen = extreme_ranks(choice.ranks, groups.codes[candidates], groups.count, self._latest)
        return [ordering.decode(best, missing), choice.decode(chosen, missing)]

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        return self.reduce(parts, groups)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        return parts[1]


def first(argument: Argument, *, by: Argument | None = None, where: Expression | None = None) -> Aggregate:
    """The value of the earliest row, by event time or by the column that `by` names; null of nothing."""
    return First(argument, by, where)


def last(argument: Argument, *, by: Argument | None = None, where: Expression | None = None) -> Aggregate:
    """The value of the latest row, by event time or by the column that `by` names; null of nothing."""
    return Last(argument, by, where)
