"""What a source of rows is: the classes that every source of a dataflow derives from.

A source describes rows: their columns, which of them is the event time, and how far out of order they may come. It is cut
into splits, which are read independently of each other, batch by batch. A row that does not fit the
columns is no reason to stop: it comes out beside the good rows of its batch, with the reason.
"""

from __future__ import annotations

import time as system_clock
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dirigo.flow.api.duration import Duration, milliseconds, positive_milliseconds
from dirigo.flow.errors import FlowError
from dirigo.flow.event_time.time_column import TimeColumn
from dirigo.flow.rows.schema import SchemaLike, as_schema


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit its source's columns."""

    row: str
    """The row as text, complete where the memory for it is bounded anyway."""
    error: str
    """One sentence that says where the row stood and what is wrong with it."""


@dataclass(frozen=True)
class SourceBatch:
    """What one read of a split gives."""

    rows: pa.RecordBatch
    bad: Sequence[BadRow] = ()
    holds_time: bool = False
    """More rows of this age follow, in any order of time: event time stands still until a batch that does not say so."""
    reached_ms: int | None = None
    """How far the source as a whole is in event time, where the split knows it from elsewhere than its own rows."""
    due_s: float | None = None
    """When the oldest row should have been given, or came, where that is known: latencies count from then."""


class Split(ABC):
    """One reader of a source. It is read by one thread at a time, and opens nothing before it is first read.

    Splits are made wherever a job is planned, to see how many there are, and again at the worker that reads them.
    """

    read_for_s: float = 0.005
    """How long a read may go on collecting rows. A simulation waits as long as it takes, or it would not repeat itself."""
    clock: Callable[[], float] = system_clock.time
    """What time of day it is, in seconds, for a split that minds; whoever reads it puts a clock here that has no jumps."""
    next_due_s: float | None = None
    """By the clock: when to read again, for a split that holds rows back until they are due; None if it does not."""
    ended: bool = False
    """Whether no more will ever come."""

    @abstractmethod
    def read(self, rows_max: int) -> SourceBatch | None:
        """At most `rows_max` rows, good and bad together; None when there is nothing at the moment.

        It takes a few milliseconds at most. A batch without rows says that it takes longer, but that there is something: a
        split on its way to where it was sent is not idle.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. A split may be closed at any time, also twice; it is not read afterwards."""

    def position(self) -> Any | None:
        """Where the next read goes on, as plain data; None if this split cannot be read again from a position.

        It is asked for between two reads, or before the first one. It takes microseconds, reads nothing and changes nothing.
        Plain data is what msgpack holds: numbers, text, bytes, bool and None, and lists, tuples and dicts of them.
        """
        return None

    def seek(self, position: Any) -> None:  # noqa: ARG002  # it is for those that have positions
        """Go on behind all rows and bad rows that a split like this one had given when it was asked for this position.

        It is called once at most, before the first read, and opens nothing. Tuples of the position may have become lists.
        """
        raise FlowError(f"a {type(self).__name__} cannot be read from a position: it has no seek().")


class Source(ABC):
    """What a user hands to a dataflow as the place where rows come from."""

    default_name: str = ""
    """The name of a source that was given none. A name that the user gave is kept, and others give way to it."""
    rows_per_message: int = 1 << 30  # at most; a source for which each row is a message of its own says 1

    def __init__(
        self,
        schema: SchemaLike,
        *,
        name: str,
        is_bounded: bool,
        time: str | None = None,
        out_of_orderness: Duration = "0ms",
        idle_after: Duration | None = None,
    ) -> None:
        """Describe the rows. The source travels to the workers, so files and connections are opened by its splits.

        `is_bounded` says whether the rows end. `time` names the column of the event time; `out_of_orderness` is how much
        older than the newest seen a row may be; a split that gives no rows for `idle_after` no longer holds the watermark
        back.
        """
        if not name:
            raise FlowError("A source needs a name that is not empty: leave name= out for the default.")
        self.schema = as_schema(schema, name)
        self.name = name
        self.is_bounded = is_bounded
        self.time = time
        self.out_of_orderness_ms = milliseconds(out_of_orderness, f"{name}: out_of_orderness")
        self.idle_after_ms = None if idle_after is None else positive_milliseconds(idle_after, f"{name}: idle_after")
        if time is not None:
            TimeColumn.of(self.schema, time, name)

    @property
    def is_replayable(self) -> bool:
        """Whether its splits have positions, so that a job can read on after a loss where a snapshot was taken.

        It is known without opening anything.
        """
        return False

    @property
    def position_form(self) -> str:
        """What its positions mean, for people too: a job goes on from a savepoint only where this is what it was."""
        return type(self).__name__

    @property
    def places(self) -> Sequence[Path]:
        """The files that are read, if there are any: no sink of the job may write over them."""
        return ()

    @abstractmethod
    def splits(self, wanted: int) -> Sequence[Split]:
        """Readers that together give every row exactly once: at least one and at most `wanted`, always as many."""

    def batch_of(self, rows: Sequence[Any], first_number: int = 1) -> SourceBatch:
        """Python rows (dicts, tuples, dataclass instances) as a batch; those that do not fit the columns are bad rows of it.

        Errors count the rows from `first_number`.
        """
        from dirigo.flow.sources.fit import fit_rows  # which makes source batches

        return fit_rows(rows, self.schema, self.name, first_number)


def require_wanted(wanted: int, what: str) -> None:
    """Refuse a number of splits that makes no sense."""
    if wanted < 1:
        raise FlowError(f"{what}: {wanted} splits are wanted, but there is always at least one; ask for 1 or more.")


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """These batches as one, without a copy where there is only one."""
    if not batches:
        return empty_batch(schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
