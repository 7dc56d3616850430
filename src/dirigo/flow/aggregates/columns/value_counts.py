"""Owns partial results that say how often each value occurs in a group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dirigo.flow.aggregates.base import Listing, Parts
from dirigo.flow.aggregates.columns.groups import Codes
from dirigo.flow.aggregates.columns.plain import take
from dirigo.flow.aggregates.count import add_counts
from dirigo.flow.rows.grouping import Grouping


class ValueCounts(Listing):
    """Partial rows of value and count; equal values of a group become one row."""

    def __init__(self, value_type: pa.DataType) -> None:
        self.part_fields = (("value", value_type), ("count", pa.int64()))

    def reduce(self, values: pa.Array, codes: Codes) -> tuple[Codes, Parts]:
        return self.combine([values, pa.array(np.ones(len(values), np.int64))], codes)

    def combine(self, parts: Sequence[pa.Array], codes: Codes) -> tuple[Codes, Parts]:
        values, counts = parts
        grouping = Grouping.of([pa.array(codes), values], len(values))
        if grouping.count == len(values):
            return codes, [values, counts]
        totals = add_counts(counts.to_numpy(), grouping.codes, grouping.count)
        return codes[grouping.firsts], [take(values, grouping.firsts), pa.array(totals)]
