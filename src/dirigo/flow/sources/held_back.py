"""Rows that are held back until they are due: what sources with a pace of their own have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.sources.pushed import PushedSource
from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.state import copied

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

    @abstractmethod
    def position(self, waiting: int) -> Any:
        """What decides when the next rows are due, as plain data: behind all it was asked for but the last ``waiting``."""

    @abstractmethod
    def seek(self, position: Any) -> None:
        """Go on from there."""


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
    def is_replayable(self) -> bool:
        return self.source.is_replayable

    @property
    def position_form(self) -> str:
        return f"{super().position_form} of {self.source.position_form}"

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
    """Holds what was read from another split until it is due: one read_batch of it at a time.

    The position is that of the other split before the read_batch that is held, how much of that was given, and when the
    first read was. So after a seek rows are due when they would have been: what was due meanwhile is due at once.
    """

    def __init__(self, inner: Split, schedule: Schedule) -> None:
        self._inner = inner
        self._schedule = schedule
        self._began_s: float | None = None
        self._held: SourceBatch | None = None  # never without a row
        self._due: Seconds = np.empty(0)  # of the rows that are held, by the clock
        self._latest_s = -inf  # when the last row before the next read_batch was due
        self._given_due_s = -inf  # when the last row that was given was due
        self._is_amid = False  # the read_batch before said that more rows of its age follow
        self._before_held: Any | None = None  # position of the other split before what is held was read
        self._given = self._again = (0, 0)  # bad rows and good ones: given since then, and to come again and not be given

    def read(self, rows_max: int) -> SourceBatch | None:
        now_s = self.clock()
        if self._began_s is None:
            self._began_s = self._latest_s = self._given_due_s = now_s
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

    def position(self) -> list[Any] | None:
        inner = self._inner.position() if self._before_held is None else self._before_held
        if inner is None:
            return None
        schedule = self._schedule.position(0 if self._held is None else len(self._due))
        begun = None if self._began_s is None else [self._began_s, self._given_due_s]
        return [inner, *self._given, schedule, begun, self._is_amid]

    def seek(self, position: Sequence[Any]) -> None:
        inner, bad, good, schedule, begun, self._is_amid = position
        self._before_held = copied(inner) if bad or good else None
        self._inner.seek(inner)
        self._schedule.seek(schedule)
        self._given = self._again = bad, good
        if begun is not None:
            self._began_s, self._given_due_s = begun
            self._latest_s = self._given_due_s

    def _read_ahead(self, began_s: float, rows_max: int) -> bool:
        """Whether anything came."""
        inner = self._inner
        inner.clock, inner.read_for_s = self.clock, self.read_for_s
        if inner.ended:
            return False
        before = copied(inner.position()) if self._before_held is None else self._before_held
        held = inner.read(rows_max)
        if held is None:
            return False
        self._held, self._before_held = self._not_yet_given(held), before
        due = began_s + self._schedule.due(len(self._held.bad), self._held.rows)
        if len(due):
            np.maximum(due, self._latest_s, out=due)
            self._due = np.maximum.accumulate(due)
            self._latest_s = float(self._due[-1])
        else:
            self._due = due
        return True

    def _not_yet_given(self, held: SourceBatch) -> SourceBatch:
        """After a seek, without those rows that were given before it."""
        if self._again == (0, 0):
            return held
        bad, good = min(self._again[0], len(held.bad)), min(self._again[1], held.rows.num_rows)
        self._again = self._again[0] - bad, self._again[1] - good
        return replace(held, rows=held.rows.slice(good), bad=held.bad[bad:])

    def _take_due(self, now_s: float, rows_max: int) -> SourceBatch | None:
        """The rows up to the first one that is not due."""
        held, due = self._held, self._due
        if held is None:
            return None
        count = min(int(np.searchsorted(due, now_s, side="right")), rows_max)
        if count == len(due):
            self._held, self._is_amid = None, held.holds_time
            self._note_given(len(held.bad), held.rows.num_rows, due)
            return replace(held, due_s=float(due[0])) if count else held
        if count == 0:
            return None
        bad = held.bad[:count]
        good = count - len(bad)
        self._held = replace(held, rows=held.rows.slice(good), bad=held.bad[count:])
        self._due = due[count:]
        self._note_given(len(bad), good, due[:count])
        # What the read_batch says of time holds behind its last row.
        holds_time = held.holds_time or self._is_amid
        return SourceBatch(held.rows.slice(0, good), bad, holds_time=holds_time, due_s=float(due[0]))

    def _note_given(self, bad: int, good: int, due: Seconds) -> None:
        self._given = self._given[0] + bad, self._given[1] + good
        if len(due):
            self._given_due_s = float(due[-1])
        if self._held is None and self._again == (0, 0):
            self._before_held, self._given = None, (0, 0)
