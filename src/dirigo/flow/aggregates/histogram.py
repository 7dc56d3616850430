"""Owns histogram: how many values lie in each interval. An interval includes its lower edge and not its upper one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, Listing, Parts, is_finite_number
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.lists import list_column, order_within_groups
from dirigo.flow.aggregates.columns.value_counts import ValueCounts
from dirigo.flow.aggregates.count import add_counts
from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression

_BIN = pa.struct([("low", pa.float64()), ("high", pa.float64()), ("count", pa.int64())])


class Histogram(Aggregate):
    """Counts of values by interval, with given edges or of equal width."""

    function = "histogram"

    def __init__(
        self, argument: Argument, bins: Sequence[float] | None, width: float | None, where: Expression | None
    ) -> None:
        super().__init__(argument, where)
        if (bins is None) == (width is None):
            raise FlowError("histogram: give either bins=[edges] or width=number.")
        if width is not None and not (is_finite_number(width) and width > 0):
            raise FlowError(f"histogram: width must be a number above 0, not {width!r}.")
        if bins is not None:
            edges = list(bins)
            if len(edges) < 2 or not all(map(is_finite_number, edges)) or edges != sorted(set(edges)):
                raise FlowError(f"histogram: bins must be two or more rising numbers, such as [0, 10, 100], not {bins!r}.")
        self.bins = None if bins is None else tuple(map(float, bins))
        self.width = None if width is None else float(width)

    def _options(self) -> list[str]:
        return [f"width={self.width:g}"] if self.bins is None else [f"bins=[{', '.join(f'{edge:g}' for edge in self.bins)}]"]

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> Listing:
        del time
        self._number_type(schema, what)
        if self.bins is not None:
            return _Edges(np.array(self.bins))
        assert self.width is not None
        return _Widths(self.width)


class _Edges(ValueCounts):
    """All intervals are listed, also the empty ones; values outside the edges, and NaN, are in none."""

    bounded = True
    output_type = pa.list_(_BIN)

    def __init__(self, edges: npt.NDArray[np.float64]) -> None:
        super().__init__(pa.int64())
        self._edges = edges

    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        numbers = np.searchsorted(self._edges, values.cast(pa.float64(), safe=False).to_numpy(), side="right") - 1
        inside = (numbers >= 0) & (numbers < len(self._edges) - 1)
        return super().reduce(pa.array(numbers[inside]), codes[inside])

    def finish(self, parts: Sequence[pa.Array], groups: Groups) -> pa.Array:
        bins = len(self._edges) - 1
        cells = groups.codes * bins + parts[0].to_numpy()
        counts = add_counts(parts[1].to_numpy(), cells, groups.count * bins)
        cell_groups = np.repeat(np.arange(groups.count), bins)
        lows, highs = np.tile(self._edges[:-1], groups.count), np.tile(self._edges[1:], groups.count)
        return list_column(_bins(lows, highs, counts), cell_groups, groups.count)


class _Widths(ValueCounts):
    """Only intervals with values are listed, in their order; NaN and infinities are in none."""

    output_type = pa.list_(_BIN)

    def __init__(self, width: float) -> None:
        super().__init__(pa.float64())
        self._width = width

    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        numbers = np.floor(values.cast(pa.float64(), safe=False).to_numpy() / self._width)
        inside = np.isfinite(numbers)
        return super().reduce(pa.array(numbers[inside]), codes[inside])

    def finish(self, parts: Sequence[pa.Array], groups: Groups) -> pa.Array:
        codes, (values, totals) = self.combine(parts, groups.codes)
        numbers = values.to_numpy()
        # Numbers of intervals are whole, so a dense rank of them orders as they do.
        _, ranks = np.unique(numbers, return_inverse=True)
        order = order_within_groups(codes, [ranks.astype(np.int64, copy=False)], groups.count)
        numbers = numbers[order]
        entries = _bins(numbers * self._width, (numbers + 1.0) * self._width, totals.to_numpy()[order])
        return list_column(entries, codes[order], groups.count)


def _bins(lows: npt.NDArray[np.float64], highs: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(lows), pa.array(highs), pa.array(counts)], fields=list(_BIN))


def histogram(
    argument: Argument,
    *,
    bins: Sequence[float] | None = None,
    width: float | None = None,
    where: Expression | None = None,
) -> Aggregate:
    """A list of (low, high, count): for every interval between the edges `bins`, or for the intervals of one width, counted
    from zero, that have values."""
    return Histogram(argument, bins, width, where)
