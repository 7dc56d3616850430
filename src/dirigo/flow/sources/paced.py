"""A source played back in real time: each row is given when its event time says so, and not before."""

from __future__ import annotations

from math import inf

import numpy as np
import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import LATEST_MS, TimeColumn
from dirigo.flow.sources.held_back import HeldBackSource, Schedule, Seconds
from dirigo.flow.sources.source import Source


def paced(source: Source, *, speed: float = 1.0, begins_ms: int | None = None) -> PacedSource:
    """Play a source with event times back as if it happened now, `speed` times as fast.

    `begins_ms`: the event time, in milliseconds since the epoch, at which playing begins; by default that of the first row
    of each split. Latencies count from the moment at which a row was due, however late it was read.
    """
    return PacedSource(source, speed, begins_ms)


class PacedSource(HeldBackSource):
    """Another source, held back to the pace of its event time."""

    def __init__(self, source: Source, speed: float, begins_ms: int | None) -> None:
        if source.time is None:
            raise FlowError(f"{source.name}: it has no event time to keep pace with; name its column with time=.")
        if not 0 < speed < inf:
            raise FlowError(f"{source.name}: a speed of {speed} cannot be kept; give a number above 0.")
        super().__init__(source, is_bounded=source.is_bounded)
        self._column = TimeColumn.of(source.schema, source.time, source.name)
        self._speed = speed
        self._begins_ms = begins_ms

    def schedule(self, number: int, count: int) -> Schedule:  # noqa: ARG002  # all splits are on one timeline
        return EventTimeSchedule(self._column, self._speed, self._begins_ms)


class EventTimeSchedule(Schedule):
    """Rows are due when their event time has come; those without a valid one as soon as the row in front of them."""

    def __init__(self, column: TimeColumn, speed: float, begins_ms: int | None) -> None:
        self._column = column
        self._per_s = 1000.0 * speed
        self._begins_ms = begins_ms

    def due(self, bad: int, rows: pa.RecordBatch) -> Seconds:
        due = np.zeros(bad + rows.num_rows)
        times = self._column.read(rows)
        is_valid = (times >= 0) & (times <= LATEST_MS)
        if self._begins_ms is None and is_valid.any():
            self._begins_ms = int(times[np.argmax(is_valid)])
        if self._begins_ms is not None:
            np.divide(times - self._begins_ms, self._per_s, out=due[bad:], where=is_valid)
        return due

    def position(self, waiting: int) -> int | None:  # noqa: ARG002  # rows that wait change nothing
        return self._begins_ms

    def seek(self, position: int | None) -> None:
        self._begins_ms = position
