"""Rows that somebody outside pushes into a running job, micro-batch by micro-batch: a Spark query, for one.

How the rows get to a worker is the host's business: a split reads from a queue that the host attaches to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from dirigo.flow.api.duration import Duration
from dirigo.flow.errors import FlowError
from dirigo.flow.rows.schema import SchemaLike, as_schema
from dirigo.flow.sources.source import Source, SourceBatch, Split, joined, require_wanted

PIECE_BYTES: Final = 1 << 20  # small batches are put together up to this size, so that a message is worth its cost


@dataclass(frozen=True)
class ReleasedRows:
    """What came to one split with one micro-batch; perhaps no rows at all, but the news of how far time is."""

    batches: Iterator[pa.RecordBatch]
    reached_ms: int | None = None
    """Event time of the newest row of the micro-batch, over all splits."""
    arrived_s: float | None = None
    """When its oldest row came to whoever pushes, as far as that can be told: latencies count from then."""
    number: int | None = None
    """Its place in the order of all that come to the split, from 1 on; None if it can be taken only once."""


class Queue(Protocol):
    """Where a split takes its rows from. It is asked by one thread at a time."""

    @property
    def ended(self) -> bool:
        """Whether there is nothing to take, now and for ever."""

    def take(self) -> ReleasedRows | None:
        """The next micro-batch; None when there is none at the moment."""

    @property
    def next_number(self) -> int | None:
        """The number of the next one; None if what was taken cannot be taken again."""

    def seek(self, number: int) -> None:
        """Begin with the micro-batch of this number."""


class PushedSource(Source):
    """Rows that are pushed from outside. The host ends it, when whoever pushes has ended."""

    default_name = "pushed"

    def __init__(
        self,
        schema: SchemaLike,
        *,
        name: str = "pushed",
        is_bounded: bool = False,
        time: str | None = None,
        out_of_orderness: Duration = "0ms",
        idle_after: Duration | None = None,
    ) -> None:
        columns = as_schema(schema, name)
        super().__init__(
            columns,
            name=name,
            is_bounded=is_bounded,
            time=time,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
        )
        for field in columns:
            if _has_dictionary(field.type):
                raise FlowError(
                    f"{name}: the column '{field.name}' has type {field.type}, which cannot be pushed batch by batch;"
                    " declare it with the type of its values."
                )

    @property
    def is_replayable(self) -> bool:
        """Hosts that take snapshots keep what was pushed; those that cannot take none."""
        return True

    def splits(self, wanted: int) -> Sequence[Split]:
        require_wanted(wanted, self.name)
        return [PushedSplit(self.schema, number) for number in range(wanted)]


class PushedSplit(Split):
    """The rows that come to one place. Time stands still until the last row of a micro-batch: its rows have any order."""

    def __init__(self, schema: pa.Schema, number: int) -> None:
        self.number = number
        self._schema = schema
        self._queue: Queue | None = None
        self._current: ReleasedRows | None = None
        self._rest: pa.RecordBatch | None = None  # of the micro-batch at hand: what comes next
        self._given = 0  # rows of the micro-batch at hand
        self._sought: tuple[int, int] | None = None  # where to begin: the number of a micro-batch, and rows of it

    def attach(self, queue: Queue) -> None:
        """Read from this queue from now on; before, nothing comes."""
        self._queue = queue
        if self._sought is not None:
            queue.seek(self._sought[0])

    def position(self) -> Any | None:
        """The number of the micro-batch that is read next, and how many of its rows were given."""
        if self._queue is None or self._queue.next_number is None:
            return None
        if self._current is not None:
            return [self._current.number, self._given]
        return [self._queue.next_number, 0] if self._sought is None else list(self._sought)

    def seek(self, position: Any) -> None:
        number, given = position
        self._sought = (number, given)
        if self._queue is not None:
            self._queue.seek(number)

    def read(self, rows_max: int) -> SourceBatch | None:
        if self._queue is None or self.ended:
            return None
        if self._current is None:
            self._current = self._queue.take()
            if self._current is None:
                self.ended = self._queue.ended
                return None
            self._given = 0
            self._rest = self._next_batch(self._current)
            self._skip(self._current)
        return self._read_current(self._current, self._queue, rows_max)

    def close(self) -> None:
        self.ended = True
        self._queue = None
        self._current = None
        self._rest = None

    def _read_current(self, current: ReleasedRows, queue: Queue, rows_max: int) -> SourceBatch:
        taken: list[pa.RecordBatch] = []
        room, size = rows_max, 0
        while self._rest is not None and room > 0 and size < PIECE_BYTES:
            part = self._rest.slice(0, room)
            taken.append(part)
            self._given += part.num_rows
            room -= part.num_rows
            size += part.nbytes
            if part.num_rows < self._rest.num_rows:
                self._rest = self._rest.slice(part.num_rows)
            else:
                self._rest = self._next_batch(current)
        rows = joined(taken, self._schema)
        if self._rest is not None:
            return SourceBatch(rows, holds_time=True, due_s=current.arrived_s)
        self._current = None
        self.ended = queue.ended
        return SourceBatch(rows, reached_ms=current.reached_ms, due_s=current.arrived_s)

    def _skip(self, current: ReleasedRows) -> None:
        """Leave out what was given before the position where this split began."""
        left = 0 if self._sought is None else self._sought[1]
        self._sought = None
        self._given = left
        while left and self._rest is not None:
            if left < self._rest.num_rows:
                self._rest = self._rest.slice(left)
                break
            left -= self._rest.num_rows
            self._rest = self._next_batch(current)

    def _next_batch(self, current: ReleasedRows) -> pa.RecordBatch | None:
        """One ahead of what is given out, to know which rows are the last ones."""
        return next((batch for batch in current.batches if batch.num_rows), None)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(number).type) for number in range(kind.num_fields))
