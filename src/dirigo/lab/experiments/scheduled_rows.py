"""A source for measurements on real workers: single rows, and points in time between them, each when a schedule says so.

A row is a message of its own. Event time stands still while rows come and moves on where the schedule says so, which makes a
barrier at all functions behind the source that care for time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from dirigo.flow.sources.source import Piece, Source, Split, empty_batch

SCHEMA = pa.schema([("value", pa.int64()), ("due_s", pa.float64()), ("at", pa.timestamp("ms"))])
_WARM_UP_S = 1.0  # from the first read to the beginning of the schedule: all workers know the job by then


class Entry(NamedTuple):
    """What is due, so many seconds after the beginning: a row with a value, or a watermark if there is none."""

    due_s: float
    value: int | None


class ScheduledRows(Source):
    """Rows and watermarks of one schedule per split; each is in the order of time and can be pickled.

    Event time begins with the schedules, at 0 for all of them, however far apart the splits are read first.
    """

    def __init__(self, *schedules: Callable[[], Iterator[Entry]]) -> None:
        super().__init__(SCHEMA, name="rows", is_bounded=True, time="at")
        self.schedules = schedules

    def splits(self, wanted: int) -> Sequence[Split]:
        assert wanted >= len(self.schedules), "a schedule cannot be divided; give the flow as many splits as schedules"
        return [_ScheduledSplit(schedule()) for schedule in self.schedules]


class _ScheduledSplit(Split):
    """All of it."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._next = next(entries, None)
        self._began_s: float | None = None
        self.ended = self._next is None

    def read(self, rows_max: int) -> Piece | None:  # noqa: ARG002
        now_s = self.clock()
        if self._began_s is None:
            self._began_s = now_s + _WARM_UP_S
        if self._next is None:
            return None
        value, due_s = self._next.value, self._began_s + self._next.due_s
        time_ms = round(self._next.due_s * 1000)
        if due_s > now_s:
            self.next_due_s = due_s
            return None
        self._next = next(self._entries, None)
        self.ended = self._next is None
        self.next_due_s = now_s if self._next is None else self._began_s + self._next.due_s
        if value is None:
            return Piece(empty_batch(SCHEMA), reached_ms=time_ms, due_s=due_s)
        row = [pa.array([value]), pa.array([due_s]), pa.array([time_ms]).cast(pa.timestamp("ms"))]
        return Piece(pa.RecordBatch.from_arrays(row, schema=SCHEMA), holds_time=True, due_s=due_s)

    def close(self) -> None:
        self.ended = True
