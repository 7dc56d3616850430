"""Owns variance and stddev: of a sample, as VAR_SAMP and STDDEV_SAMP in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, GroupSummary, Parts
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.expressions.expression import Expression

Floats = npt.NDArray[np.float64]


class Variance(Aggregate):
    """The sample variance of the values that are not null."""

    function = "variance"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        self._number_type(schema, what)
        return _Spread(root=False)


class StandardDeviation(Aggregate):
    """The square root of the sample variance."""

    function = "stddev"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> GroupSummary:
        del time
        self._number_type(schema, what)
        return _Spread(root=True)


class _Spread(GroupSummary):
    """Keeps the mean and the squared distances from it, which stay accurate where a sum of squares would cancel out."""

    part_fields = (("count", pa.int64()), ("mean", pa.float64()), ("squares", pa.float64()))
    output_type = pa.float64()

    def __init__(self, *, root: bool) -> None:
        self._root = root

    def reduce(self, inputs: Sequence[pa.Array], groups: Groups) -> Parts:
        values, groups = groups.without_nulls(inputs[0])
        numbers = values.cast(pa.float64(), safe=False).to_numpy()
        return _moments(np.ones(len(numbers)), numbers, np.zeros(len(numbers)), groups)

    def combine(self, parts: Sequence[pa.Array], groups: Groups) -> Parts:
        counts, means, squares = (part.to_numpy() for part in parts)
        return _moments(counts.astype(np.float64), means, squares, groups)

    def finish(self, parts: Sequence[pa.Array]) -> pa.Array:
        counts, squares = parts[0].to_numpy(), parts[2].to_numpy()
        variances = squares / np.maximum(counts - 1, 1)
        return pa.array(np.sqrt(variances) if self._root else variances, mask=counts < 2)


def _moments(counts: Floats, means: Floats, squares: Floats, groups: Groups) -> Parts:
    codes = groups.codes
    totals = _add(counts, codes, groups.count)
    centres = _add(counts * means, codes, groups.count) / np.maximum(totals, 1.0)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities have no spread: the result is NaN
        distances = squares + counts * (means - centres[codes]) ** 2
    return [pa.array(totals.astype(np.int64)), pa.array(centres), pa.array(_add(distances, codes, groups.count))]


def _add(numbers: npt.NDArray[Any], codes: Codes, groups: int) -> Floats:
    return np.bincount(codes, numbers, groups).astype(np.float64, copy=False)


def variance(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The sample variance as a float64; null of fewer than two values."""
    return Variance(argument, where)


def stddev(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The sample standard deviation as a float64; null of fewer than two values."""
    return StandardDeviation(argument, where)
