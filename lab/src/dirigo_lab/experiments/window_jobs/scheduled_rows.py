"""A source for measurements on real workers: single rows, and points in time between them, each when a schedule says so.

A row is a message of its own. Event time stands still while rows come and moves on where the schedule says so, which makes a
barrier at all functions behind the source that care for time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from dirigo.flow.sources.source import Source, SourceBatch, Split, empty_batch

SCHEMA = pa.schema([("value", pa.int64()), ("due_s", pa.float64()), ("at", pa.timestamp("ms"))])
_WARM_UP_S = 1.0  # from the first read to the beginning of the schedule: all workers know the job by then


class Entry(NamedTuple):
    """What is due, so many seconds after the beginning: a row with a value, or a watermark if there is none."""

    due_s: float
    value: int | None


class ScheduledRows(Source):
    """Rows and watermarks of one schedule per split; each is in the order of time and can be pickled.

    Event time begins with the schedules, at 0 for all of them, however far apart the splits are read first. ``begins_s``: by
    the clock, when all of them begin; otherwise each does a second after it was read first.
    """

    rows_per_message = 1

    def __init__(self, *schedules: Callable[[], Iterator[Entry]], begins_s: float | None = None) -> None:
        super().__init__(SCHEMA, name="rows", is_bounded=True, time="at")
        self.schedules = schedules
        self.begins_s = begins_s

    def splits(self, wanted: int) -> Sequence[Split]:
        assert wanted >= len(self.schedules), "a schedule cannot be divided; give the flow as many splits as schedules"
        return [_ScheduledSplit(schedule(), self.begins_s) for schedule in self.schedules]


class _ScheduledSplit(Split):
    """All of it."""

    def __init__(self, entries: Iterator[Entry], begins_s: float | None) -> None:
        self._entries = entries
        self._next = next(entries, None)
        self._began_s = begins_s
        self.ended = self._next is None

    def read(self, rows_max: int) -> SourceBatch | None:
        now_s = self.clock()
        if self._began_s is None:
            self._began_s = now_s + _WARM_UP_S
        first, began_s = self._next, self._began_s
        if first is None:
            return None
        if began_s + first.due_s > now_s:
            self.next_due_s = began_s + first.due_s
            return None
        due: list[Entry] = []  # rows that are due, or one watermark
        entry: Entry | None = first
        while entry is not None and began_s + entry.due_s <= now_s and len(due) < rows_max:
            if entry.value is None and due:
                break
            due.append(entry)
            entry = next(self._entries, None)
            if first.value is None:
                break
        self._next = entry
        self.ended = entry is None
        self.next_due_s = now_s if entry is None else began_s + entry.due_s
        if first.value is None:
            return SourceBatch(empty_batch(SCHEMA), reached_ms=_ms(first.due_s), due_s=began_s + first.due_s)
        columns = [
            pa.array([each.value for each in due]),
            pa.array([began_s + each.due_s for each in due]),
            pa.array([_ms(each.due_s) for each in due]).cast(pa.timestamp("ms")),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return SourceBatch(rows, holds_time=True, due_s=began_s + first.due_s)

    def close(self) -> None:
        self.ended = True


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
