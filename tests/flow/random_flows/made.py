"""A stream of a random flow, together with the rows that plain Python says are in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pyarrow as pa

import dirigo as dg
from flow.flows import Rows
from flow.random_flows.reference import Row

KEYS = ("key", "group")


@dataclass(frozen=True)
class Made:
    """A stream and its rows. Times are milliseconds in the rows, whatever unit the stream has."""

    stream: dg.Stream
    rows: Rows
    described: str  # how it was made
    time: str | None = None
    offset_ms: int = 0  # a window's result happens just before the end of its window

    @property
    def columns(self) -> list[str]:
        return list(self.stream.schema.names)

    @property
    def keys(self) -> list[str]:
        return [name for name in KEYS if name in self.columns]

    @property
    def numbers(self) -> list[str]:
        """The columns to reckon with; sums of times would overflow."""
        return [
            field.name
            for field in self.stream.schema
            if pa.types.is_int64(field.type) and "time" not in field.name and "window" not in field.name
        ]

    def time_of(self, row: Row) -> int:
        assert self.time is not None
        milliseconds: int = row[self.time] + self.offset_ms
        return milliseconds

    def then(self, stream: dg.Stream, rows: Rows, described: str) -> Made:
        """What a step has made of this stream that leaves the time as it is."""
        return Made(stream, rows, described, self.time, self.offset_ms)

    def with_keys(self, keys: Sequence[str]) -> Made:
        """The rows that have all of these keys; where a key is needed, a row without one is a bad row."""
        rows = [row for row in self.rows if all(row[key] is not None for key in keys)]
        if len(rows) == len(self.rows):
            return self
        stream = self.stream.filter(lambda row: all(row[key] is not None for key in keys))
        return self.then(stream, rows, f"those of {self.described} with {', '.join(keys)}")


@dataclass(frozen=True)
class Drawing:
    """What an operator is drawn from: chance, the streams so far, and a number for names that are to be its own."""

    rng: Random
    pool: Sequence[Made]
    number: int

    def number_of(self, made: Made) -> int:
        return next(number for number, each in enumerate(self.pool) if each is made)


def window_result(stream: dg.Stream, rows: Rows, described: str) -> Made:
    """What windows make: rows that happen just before the end of their window."""
    return Made(stream, rows, described, time="window_end", offset_ms=-1)
