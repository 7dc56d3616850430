"""Owns top: the n largest values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, Listing, Parts, is_positive_int
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.lists import list_column, order_within_groups, places_within_groups
from dirigo.flow.aggregates.columns.order_keys import Ordering
from dirigo.flow.aggregates.columns.plain import take
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression


class Top(Aggregate):
    """The n largest values that are not null, largest first; a value that occurs twice is listed twice."""

    function = "top"

    def __init__(self, n: int, argument: Argument, where: Expression | None) -> None:
        super().__init__(argument, where)
        if not is_positive_int(n):
            raise FlowError(
                f"top: takes how many values to keep and then of what, such as top(3, 'price'), not top({n!r}, ...)."
            )
        self.n = n

    def _options(self) -> list[str]:
        return [f"n={self.n}"]

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> Listing:
        del time
        return _Largest(self.n, self._orderable_type(schema, what))


class _Largest(Listing):
    bounded = True

    def __init__(self, n: int, kind: pa.DataType) -> None:
        self.part_fields = (("value", kind),)
        self.output_type = pa.list_(kind)
        self._n = n

    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        if len(values) == 0:
            return codes, [values]
        groups = int(codes.max()) + 1
        # The complement of a rank is in the opposite order, and unlike the negative it always exists.
        order = order_within_groups(codes, [~Ordering(values).ranks], groups)
        sorted_codes = codes[order]
        kept = places_within_groups(sorted_codes, groups) < self._n
        return sorted_codes[kept], [take(values, order[kept])]

    def combine(self, parts: Sequence[pa.Array], codes: Codes) -> tuple[Codes, Parts]:
        if len(codes) == 0 or int(np.bincount(codes).max()) <= self._n:
            return codes, list(parts)
        return self.reduce(parts[0], codes)

    def finish(self, parts: Sequence[pa.Array], groups: Groups) -> pa.Array:
        codes, (values,) = self.reduce(parts[0], groups.codes)
        return list_column(values, codes, groups.count)


def top(n: int, argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The list of the n largest values, largest first; empty when there are none."""
    return Top(n, argument, where)
