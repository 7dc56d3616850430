"""Owns distinct: the exact number of different values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.base import Aggregate, Argument, Listing, Parts
from dirigo.flow.aggregates.columns.groups import Codes, Groups
from dirigo.flow.aggregates.columns.plain import take
from dirigo.flow.expressions.expression import Expression
from dirigo.flow.rows.grouping import Grouping


class Distinct(Aggregate):
    """The number of different values that are not null."""

    function = "distinct"

    def bind(self, schema: pa.Schema, time: str | None, what: str) -> Listing:
        del time
        return _Differing(self._argument_type(schema, what))


class _Differing(Listing):
    output_type = pa.int64()

    def __init__(self, kind: pa.DataType) -> None:
        self.part_fields = (("value", kind),)

    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        rows = Grouping.of([pa.array(codes), values], len(values)).firsts
        if len(rows) == len(values):
            return codes, [values]
        return codes[rows], [take(values, rows)]

    def combine(self, parts: Sequence[pa.Array], codes: Codes) -> tuple[Codes, Parts]:
        return self.reduce(parts[0], codes)

    def finish(self, parts: Sequence[pa.Array], groups: Groups) -> pa.Array:
        codes, _ = self.reduce(parts[0], groups.codes)
        return pa.array(np.bincount(codes, minlength=groups.count))


def distinct(argument: Argument, *, where: Expression | None = None) -> Aggregate:
    """The exact number of different values; 0 when there are none."""
    return Distinct(argument, where)
