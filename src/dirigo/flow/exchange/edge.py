"""The half of an operator that runs where its input is produced: it checks rows, summarises them and chooses partitions.

Doing this at the sender means that a hot key crosses the network once per batch, not once per row; a flow can have rows
summarised at the receiver instead (``combines_early=False``). The sender always is where a row is found to be late: it is
measured against the watermark of its own channel, which does not depend on what other channels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.errors import QUITS, failure_of, note_place
from dirigo.flow.event_time.time_column import LATEST_MS, TimeColumn, Times
from dirigo.flow.event_time.windows import PaneWindows
from dirigo.flow.exchange.emitter import Branch, Emitter
from dirigo.flow.exchange.partitions import partition_of, split
from dirigo.flow.rows.bad_rows import rows_at, try_each_part, without
from dirigo.kernel import Address, DirigoError

ALL_SLOTS = -1  # the port on which several tables of a summary come together, as (slot, table)
RAW_ROWS = -2  # the port on which rows come that their sender has not summarised


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

    __slots__ = ("exchange", "late", "operator", "port", "targets")

    def __init__(
        self, exchange: Exchange, operator: str, targets: tuple[Address, ...], port: int, late: Sequence[Branch]
    ) -> None:
        self.exchange = exchange
        self.operator = operator  # that receives
        self.targets = targets
        self.port = port
        self.late = late  # where rows go that are too late for the receiving operator

    def push(self, batch: pa.RecordBatch, emitter: Emitter) -> None:
        try:
            self.exchange.send(batch, self, emitter)
        except DirigoError:
            raise
        except Exception as error:  # it is the receiver's half that failed, though it runs here
            raise failure_of(self.operator, error) from error
        except QUITS as error:
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

    def spread_slots(self, partials: Sequence[pa.RecordBatch], edge: Edge, emitter: Emitter) -> None:
        """Send all tables of a summary, those for one partition in one message: they mean something only together."""
        if len(partials) == 1:
            self.spread(partials[0], edge, 0, emitter)
            return
        targets = edge.targets
        by_target: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        for slot, partial in enumerate(partials):
            if len(targets) == 1:
                by_target.setdefault(0, []).append((slot, partial))
            elif partial.num_rows:
                numbers = partition_of([partial.column(key) for key in self.keys], len(targets))
                for partition, part in split(partial, numbers, len(targets)):
                    by_target.setdefault(partition, []).append((slot, part))
        for partition, parts in by_target.items():
            emitter.send(targets[partition], ALL_SLOTS, [part for part in parts if part[1].num_rows])


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


class Summary(Protocol):
    """What a window keeps of its rows: partial tables that can be put together in any order, and their outcome."""

    output_schema: pa.Schema

    @property
    def slots(self) -> int: ...

    def partial_schema(self, slot: int) -> pa.Schema: ...

    def partial(self, batch: pa.RecordBatch, panes: Times | int) -> list[pa.RecordBatch]: ...

    def merge(self, slot: int, batch: pa.RecordBatch) -> pa.RecordBatch: ...

    def finish(self, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch: ...


def summable(batch: pa.RecordBatch, summary: Summary, operator: str, cause: Exception, emitter: Emitter) -> pa.RecordBatch:
    """The rows of a batch that can be summarised, where the whole batch could not; the others are bad."""

    def tried(part: pa.RecordBatch) -> pa.RecordBatch:
        summary.partial(part, 0)
        return part

    good, bad = try_each_part(tried, batch, cause)
    if not bad:
        raise cause  # no row is to blame
    emitter.bad(bad, operator)
    return pa.concat_batches(good) if good else batch.slice(0, 0)


class IntoWindows(ByTime):
    """Rows summarised per pane and key before they leave, unless the receiver is to do that."""

    def __init__(
        self,
        operator: str,
        keys: tuple[str, ...],
        time: TimeColumn | None,
        windows: PaneWindows,
        lateness_ms: int,
        summary: Summary,
        combines_early: bool = True,
    ) -> None:
        ByKey.__init__(self, operator, keys)
        self.column = time if windows.time == "event" else None  # None: the receiver's clock decides
        self.windows = windows
        self.lateness_ms = lateness_ms
        self.summary = summary
        self.combines_early = combines_early

    def send(self, batch: pa.RecordBatch, edge: Edge, emitter: Emitter) -> None:
        batch = self.with_keys(batch, emitter)
        if not batch.num_rows:
            return
        panes: Times | int = 0
        if self.column is not None:
            batch, times = timed(batch, self.column, self.operator, emitter)
            if batch.num_rows:
                batch, panes = self._in_panes(batch, times, edge, emitter)
            if not batch.num_rows:
                return
        if not self.combines_early:
            self.spread(batch, edge, RAW_ROWS, emitter)
            return
        try:
            partials = self.summary.partial(batch, panes)
        except Exception as error:  # an expression inside an aggregate may fail on any value
            self.send(summable(batch, self.summary, self.operator, error, emitter), edge, emitter)
            return
        self.spread_slots(partials, edge, emitter)

    def _in_panes(
        self, batch: pa.RecordBatch, times: Times, edge: Edge, emitter: Emitter
    ) -> tuple[pa.RecordBatch, Times | int]:
        windows = self.windows
        closed = emitter.watermark - self.lateness_ms
        panes = windows.panes(times)
        if isinstance(panes, int):
            if windows.last_end(panes) > closed:
                return batch, panes
            edge.push_late(batch, emitter)
            return batch.slice(0, 0), panes
        return self.in_time(batch, panes, windows.last_ends(panes) <= closed, edge, emitter)
