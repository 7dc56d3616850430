"""How rows get from an output to the partitions of an operator: onward, by key, or by key and time.

This half of an operator runs where its input is produced. It checks rows and chooses partitions; windows also summarise rows
here, so that a hot key crosses the network once per batch. The sender is where a row is found to be late: it is measured
against the watermark of its own channel, which does not depend on what other channels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.errors import failure_of, note_place
from dirigo.flow.event_time.time_column import LATEST_MS, TimeColumn, Times
from dirigo.flow.exchange.emitter import Branch, Emitter
from dirigo.flow.exchange.partitions import partition_of, split
from dirigo.flow.rows.bad_rows import rows_at, without
from dirigo.kernel import Address


def timed(batch: pa.RecordBatch, time: TimeColumn, operator: str, emitter: Emitter) -> tuple[pa.RecordBatch, Times]:
    """The rows that have a time, and their times; the others are bad."""
    times = time.read(batch)
    if times.min(initial=0) >= 0 and times.max(initial=0) <= LATEST_MS:
        return batch, times
    missing = batch.column(time.name).is_null().to_numpy(zero_copy_only=False)
    early, distant = (times < 0) & ~missing, (times > LATEST_MS) & ~missing
    emitter.bad(rows_at(batch, missing, f"its time '{time.name}' is null"), operator)
    emitter.bad(rows_at(batch, early, f"its time '{time.name}' lies before 1970"), operator)
    emitter.bad(rows_at(batch, distant, f"its time '{time.name}' lies after the year 9999"), operator)
    is_bad = missing | early | distant
    return without(batch, is_bad), times[~is_bad]


class Exchange(Protocol):
    """How batches get from one output to the partitions of an operator."""

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None: ...


class Edge:
    """One connection of the graph, as a branch of the sender's tree."""

    __slots__ = ("_places", "exchange", "late", "operator", "port", "targets")

    def __init__(
        self, exchange: Exchange, operator: str, places: tuple[str, ...], port: int, late: Sequence[Branch]
    ) -> None:
        self.exchange = exchange
        self.operator = operator  # that receives
        self._places = places  # of the receiver's actors, within any job
        self.targets: tuple[Address, ...] = ()  # their addresses, once the plan belongs to a job
        self.port = port
        self.late = late  # where rows go that are too late for the receiving operator

    def bind(self, job: str) -> None:
        self.targets = tuple(f"{job}/{place}" for place in self._places)

    def push(self, batch: pa.RecordBatch, emitter: Emitter) -> None:
        try:
            self.exchange.send(batch, self, emitter)
        except DirigoError:
            raise
        except Exception as error:  # it is the receiver's half that failed, though it runs here
            raise failure_of(self.operator, error) from error
        except BaseException as error:
            note_place(error, self.operator)
            raise

    def push_late(self, batch: pa.RecordBatch, emitter: Emitter) -> None:
        emitter.late(batch, self.operator, self.late)


class Onward:
    """The n-th partition sends to the n-th: for whatever needs no keys."""

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None:
        emitter.send(edge.targets[emitter.partition % len(edge.targets)], edge.port, batch)


class ByKey:
    """Rows with the same key go to the same partition; a row without a key is a bad one."""

    def __init__(self, operator: str, keys: tuple[str, ...]) -> None:
        self.operator = operator
        self.keys = keys

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None:
        batch = self.with_keys(batch, emitter)
        if batch.num_rows:
            self.spread(batch, edge, edge.port, emitter)

    def with_keys(self, batch: pa.RecordBatch, emitter: Emitter) -> pa.RecordBatch:
        for key in self.keys:
            column = batch.column(key)
            if column.null_count:
                mask = column.is_null().to_numpy(zero_copy_only=False)
                emitter.bad(rows_at(batch, mask, f"the key '{key}' is null"), self.operator)
                batch = without(batch, mask)
        return batch

    def spread(self, batch: pa.RecordBatch, edge: Edge, port: int, emitter: Emitter) -> None:
        targets = edge.targets
        if len(targets) == 1:
            emitter.send(targets[0], port, batch)
            return
        numbers = partition_of([batch.column(key) for key in self.keys], len(targets))
        for partition, part in split(batch, numbers, len(targets)):
            emitter.send(targets[partition], port, part)


class ByTime(ByKey):
    """Rows with a key and a time; those older than the watermark are late."""

    def __init__(self, operator: str, keys: tuple[str, ...], time: TimeColumn) -> None:
        super().__init__(operator, keys)
        self.time = time

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None:
        batch, times = timed(self.with_keys(batch, emitter), self.time, self.operator, emitter)
        batch, times = self.in_time(batch, times, times < emitter.watermark, edge, emitter)
        if batch.num_rows:
            self.spread(batch, edge, edge.port, emitter)

    def in_time(
        self, batch: pa.RecordBatch, times: Times, late: npt.NDArray[np.bool_], edge: Edge, emitter: Emitter
    ) -> tuple[pa.RecordBatch, Times]:
        """The rows that are not late; the others go where late rows go."""
        if late.any():
            edge.push_late(batch.filter(pa.array(late)), emitter)
            return batch.filter(pa.array(~late)), times[~late]
        return batch, times
