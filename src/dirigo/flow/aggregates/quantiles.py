"""Owns median and quantile: exact, with linear interpolation between the two nearest values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, Listing, Parts, is_finite_number
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.lists import order_within_groups
from dirigo.flow.aggregates.columns.order_keys import Ordering
from dirigo.flow.aggregates.columns.value_counts import ValueCounts
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression


class Quantile(Aggregate):
    """The value below which a share q of the values lies."""

    function = "quantile"

    def __init__(self, argument: Argument, q: float, where: Expression | None) -> None:
        super().__init__(argument, where)
        if not is_finite_number(q) or not 0 <= q <= 1:
            raise FlowError(f"{self.function}: q must be a number from 0 to 1, such as 0.99, not {q!r}.")
        self.q = float(q)

    def _options(self) -> list[str]:
        return [f"{self.q:g}"]

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> Listing:
        del time
        kind = self._number_type(schema, what)
        return _Quantile(pa.float64() if pa.types.is_decimal(kind) else kind, self.q)


class Median(Quantile):
    """The value in the middle."""

    function = "median"

    def __init__(self, argument: Argument, where: Expression | None) -> None:
        super().__init__(argument, 0.5, where)

    def _options(self) -> list[str]:
        return []


class _Quantile(ValueCounts):
    output_type = pa.float64()

    def __init__(self, kind: pa.DataType, q: float) -> None:
        super().__init__(kind)
        self._kind = kind
        self._q = q

    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        return super().reduce(values.cast(self._kind), codes)

    def finish(self, parts: Sequence[pa.Array], groups: Groups) -> pa.Array:
        values, counts = parts
        if len(values) == 0:
            return pa.nulls(groups.count, pa.float64())
        order = order_within_groups(groups.codes, [Ordering(values).ranks], groups.count)
        numbers = values.cast(pa.float64(), safe=False).to_numpy()[order]
        # Rows stand for as many values as they count: `ends` is where, among all values of all groups, those of a row end.
        ends = np.cumsum(counts.to_numpy()[order])
        sizes = np.zeros(groups.count, np.int64)
        np.add.at(sizes, groups.codes, counts.to_numpy())
        starts = np.cumsum(sizes) - sizes
        exact = self._q * np.maximum(sizes - 1, 0)
        below = np.floor(exact).astype(np.int64)
        lower = numbers[_row_at(ends, starts + below)]
        upper = numbers[_row_at(ends, starts + np.minimum(below + 1, np.maximum(sizes - 1, 0)))]
        share = exact - below
        with np.errstate(invalid="ignore"):
            # Between equal values (infinities too) there is nothing to interpolate.
            results = np.where((lower == upper) | (share == 0.0), lower, lower + (upper - lower) * share)
        return pa.array(results, mask=sizes == 0)


def _row_at(ends: np.ndarray[tuple[int], np.dtype[np.int64]], positions: Codes) -> Codes:
    # Groups without values point past the end; what they find is masked.
    return np.minimum(np.searchsorted(ends, positions, side="right"), len(ends) - 1)


def median(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The exact median as a float64; null of nothing."""
    return Median(argument, where)


def quantile(argument: Argument, q: float, *, where: Expression | None = None) -> Aggregate:
    """The exact quantile, q from 0 to 1, linearly interpolated, as a float64; null of nothing."""
    return Quantile(argument, q, where)
