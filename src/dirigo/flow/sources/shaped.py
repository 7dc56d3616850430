"""A source whose rows are released at the times of a load: so many per second, whatever they say of event time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dirigo.flow.api.rate import is_number
from dirigo.flow.errors import FlowError
from dirigo.flow.sources.held_back import HeldBackSource, Schedule, Seconds
from dirigo.flow.sources.load_shapes import Load
from dirigo.flow.sources.source import Source

_SKEW_MOST = 10


def shaped(source: Source, load: Load, *, skew: float = 0.0) -> ShapedSource:
    """Release the rows of a source at the times of a load, such as `dg.loads.constant("10k/s")`.

    The load is that of all splits together. With `skew` 0 each has the same share; otherwise shares follow Zipf's law:
    split k (from 0) has a share in proportion to 1 / (k + 1) ** skew. The source ends when it has no more rows, or when the
    load is over (a trace that is not repeated); rows that are left then are not released. Latencies count from the moment at
    which a row was due, however late it was read.
    """
    return ShapedSource(source, load, skew)


class ShapedSource(HeldBackSource):
    """Another source, held back to a load."""

    def __init__(self, source: Source, load: Load, skew: float) -> None:
        if not isinstance(load, Load):
            raise FlowError(f"{source.name}: {load!r} is no load; take one of dg.loads, such as dg.loads.constant('1k/s').")
        if not is_number(skew) or not 0 <= skew <= _SKEW_MOST:
            raise FlowError(f"{source.name}: a skew of {skew!r} makes no sense; give a number from 0 to {_SKEW_MOST}.")
        super().__init__(source, is_bounded=source.is_bounded or not load.is_endless)
        self.load = load
        self.skew = skew

    def schedule(self, number: int, count: int) -> Schedule:
        return LoadSchedule(self.load, number, count, self.skew)


class LoadSchedule(Schedule):
    """A split's share of a load: every so manyth row of it.

    Splits begin at different rows, so that with equal shares they take turns, and together are exactly the load.
    """

    def __init__(self, load: Load, number: int, count: int, skew: float) -> None:
        weights = np.arange(1, count + 1, dtype=np.float64) ** -skew
        self._load = load
        self._stride = float(weights.sum() / weights[number])  # rows of the load from one row of the split to the next
        self._first = number * self._stride / count
        self._given = 0

    @property
    def ends_s(self) -> float:
        return self._load.duration_s

    def due(self, bad: int, rows: pa.RecordBatch) -> Seconds:
        count = bad + rows.num_rows
        numbers = np.arange(self._given, self._given + count, dtype=np.float64)
        self._given += count
        return self._load.due(numbers * self._stride + self._first)

    def position(self, waiting: int) -> int:
        return self._given - waiting

    def seek(self, position: int) -> None:
        self._given = position
