"""Rows that are held back until they are due: what sources with a pace of their own have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.sources.pushed import PushedSource
from dirigo.flow.sources.source import Source, SourceBatch, Split

Seconds = npt.NDArray[np.float64]


class Schedule(ABC):
    """When the rows of one split are due, in seconds since it was first read. It is asked for every row once, in order."""

    @property
    def ends_s(self) -> float:
        """From then on the split has ended, whatever rows are left."""
        return inf

    @abstractmethod
    def due(self, bad: int, rows: pa.RecordBatch) -> Seconds:
        """When the next rows are due, first the bad ones, then the others; infinity for never.

        A row that is due before the one in front of it is given together with that one.
        """


class HeldBackSource(Source):
    """Another source whose rows have to wait."""

    def __init__(self, source: Source, *, is_bounded: bool) -> None:
        if isinstance(source, PushedSource):
            raise FlowError(f"{source.name}: its rows are pushed by others, who set the pace; take a source that is read.")
        super().__init__(
            source.schema,
            name=source.name,
            is_bounded=is_bounded,
            time=source.time,
            out_of_orderness=f"{source.out_of_orderness_ms}ms",
            idle_after=None if source.idle_after_ms is None else f"{source.idle_after_ms}ms",
        )
        self.default_name = source.default_name
        self.source = source

    @property
    def places(self) -> Sequence[Path]:
        return self.source.places

    @abstractmethod
    def schedule(self, number: int, count: int) -> Schedule:
        """When the rows of split `number` of `count` are due."""

    def splits(self, wanted: int) -> Sequence[Split]:
        inner = self.source.splits(wanted)
        return [HeldBackSplit(split, self.schedule(number, len(inner))) for number, split in enumerate(inner)]


class HeldBackSplit(Split):
    """Holds what was read from another split until it is due: one read_batch of it at a time."""

    def __init__(self, inner: Split, schedule: Schedule) -> None:
        self._inner = inner
        self._schedule = schedule
        self._began_s: float | None = None
        self._held: SourceBatch | None = None  # never without a row
        self._due: Seconds = np.empty(0)  # of the rows that are held, by the clock
        self._latest_s = -inf  # when the last row before the next read_batch was due
        self._is_amid = False  # the read_batch before said that more rows of its age follow

    def read(self, rows_max: int) -> SourceBatch | None:
        now_s = self.clock()
        if self._began_s is None:
            self._began_s = self._latest_s = now_s
        came = self._held is not None or self._read_ahead(self._began_s, rows_max)
        read_batch = self._take_due(now_s, rows_max)
        ends_s = self._began_s + self._schedule.ends_s
        if self._held is not None:
            next_s = float(self._due[0])
            self.next_due_s = min(next_s, ends_s)
            self.ended = next_s == inf and now_s >= ends_s
        else:
            self.next_due_s = now_s if came else self._inner.next_due_s
            self.ended = self._inner.ended or (not came and now_s >= ends_s)
        return read_batch

    def close(self) -> None:
        self.ended = True
        self._held = None
        self._inner.close()

    def _read_ahead(self, began_s: float, rows_max: int) -> bool:
        """Whether anything came."""
        inner = self._inner
        inner.clock, inner.read_for_s = self.clock, self.read_for_s
        if inner.ended:
            return False
        self._held = inner.read(rows_max)
        if self._held is None:
            return False
        due = began_s + self._schedule.due(len(self._held.bad), self._held.rows)
        if len(due):
            np.maximum(due, self._latest_s, out=due)
            self._due = np.maximum.accumulate(due)
            self._latest_s = float(self._due[-1])
        else:
            self._due = due
        return True

    def _take_due(self, now_s: float, rows_max: int) -> SourceBatch | None:
        """The rows up to the first one that is not due."""
        held, due = self._held, self._due
        if held is None:
            return None
        count = min(int(np.searchsorted(due, now_s, side="right")), rows_max)
        if count == len(due):
            self._held, self._is_amid = None, held.holds_time
            return replace(held, due_s=float(due[0])) if count else held
        if count == 0:
            return None
        bad = held.bad[:count]
        good = count - len(bad)
        self._held = replace(held, rows=held.rows.slice(good), bad=held.bad[count:])
        self._due = due[count:]
        # What the read_batch says of time holds behind its last row.
        holds_time = held.holds_time or self._is_amid
        return SourceBatch(held.rows.slice(0, good), bad, holds_time=holds_time, due_s=float(due[0]))
