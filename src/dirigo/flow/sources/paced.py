"""A source played back in real time: each row is given when its event time says so, and not before."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import numpy as np
import pyarrow as pa

from dirigo.flow.errors import FlowError
from dirigo.flow.sources.source import BadRow, Piece, Source, Split, empty_batch
from dirigo.flow.time_column import TimeColumn


def paced(source: Source, *, speed: float = 1.0, begins_ms: int | None = None) -> PacedSource:
    """Play a source with event times back as if it happened now, `speed` times as fast.

    `begins_ms`: the event time, in milliseconds since the epoch, at which playing begins; by default that of the first row
    of each split. Latencies count from the moment at which a row was due, however late it was read.
    """
    return PacedSource(source, speed, begins_ms)


class PacedSource(Source):
    """Another source, held back to the pace of its event time."""

    def __init__(self, source: Source, speed: float, begins_ms: int | None) -> None:
        if source.time is None:
            raise FlowError(f"{source.name}: it has no event time to keep pace with; name its column with time=.")
        if not 0 < speed < inf:
            raise FlowError(f"{source.name}: a speed of {speed} cannot be kept; give a number above 0.")
        super().__init__(
            source.schema,
            name=source.name,
            is_bounded=source.is_bounded,
            time=source.time,
            out_of_orderness=f"{source.out_of_orderness_ms}ms",
            idle_after=None if source.idle_after_ms is None else f"{source.idle_after_ms}ms",
        )
        self.source = source
        self._speed = speed
        self._begins_ms = begins_ms

    @property
    def places(self) -> Sequence[Path]:
        return self.source.places

    def splits(self, wanted: int) -> Sequence[Split]:
        assert self.time is not None
        column = TimeColumn.of(self.schema, self.time, self.name)
        return [PacedSplit(split, column, self._speed, self._begins_ms) for split in self.source.splits(wanted)]


class PacedSplit(Split):
    """Holds what was read from another split until it is due."""

    def __init__(
        self,
        inner: Split,
        column: TimeColumn,
        speed: float,
        begins_ms: int | None,
        now: Callable[[], float] = clock.time,
    ) -> None:
        self._inner = inner
        self._column = column
        self._per_s = 1000.0 * speed
        self._begins_ms = begins_ms
        self._now = now
        self._began_s: float | None = None
        self._rest: pa.RecordBatch | None = None
        self._bad: Sequence[BadRow] = ()

    def read(self, rows_max: int) -> Piece | None:
        if self._began_s is None:
            self._began_s = self._now()
        if self._rest is None and not self._bad and not self._read_ahead(rows_max):
            self.ended = self._inner.ended
            return None
        bad, self._bad = self._bad, ()
        rows, due_s = self._take_due(rows_max)
        self.ended = self._rest is None and self._inner.ended
        if rows is None:
            return Piece(empty_batch(self._schema), bad) if bad else None
        return Piece(rows, bad, due_s=due_s)

    def _read_ahead(self, rows_max: int) -> bool:
        piece = self._inner.read(rows_max)
        if piece is None:
            return False
        self._schema = piece.rows.schema
        self._rest = piece.rows if piece.rows.num_rows else None
        self._bad = piece.bad
        return True

    def _take_due(self, rows_max: int) -> tuple[pa.RecordBatch | None, float]:
        """The rows up to the first one that is not due, and when the first of them was."""
        rest = self._rest
        if rest is None:
            return None, 0.0
        times = self._column.read(rest)
        if self._begins_ms is None:
            self._begins_ms = int(times[0])
        assert self._began_s is not None
        reached_ms = self._begins_ms + (self._now() - self._began_s) * self._per_s
        early = times > reached_ms
        count = min(int(np.argmax(early)) if early.any() else len(times), rows_max)
        if count == 0:
            return None, 0.0
        self._rest = rest.slice(count) if count < len(times) else None
        due_s = self._began_s + (int(times[0]) - self._begins_ms) / self._per_s
        return rest.slice(0, count), due_s

    def close(self) -> None:
        self.ended = True
        self._rest = None
        self._bad = ()
        self._inner.close()
