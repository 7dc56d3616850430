"""The flows that the service is measured with: q7 and q12_event over files and over bids in real time, and one hop."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dirigo import Dataflow, Function, FunctionContext, Sink, Stream, Tumbling, count, from_generator
from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.nexmark.schemas import BID
from dirigo_lab.bench.service.paced_bids import PacedBids
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import ParquetTables

COLUMNS = {"q7": ("auction", "bidder", "price", "date_time"), "q12_event": ("bidder", "date_time")}


def over_files(query: str, events: Path, sink: Sink, *, splits: int, partitions: int = 4) -> Dataflow:
    """A query over the bids in EVENTS/bid."""
    flow = Dataflow(query, splits=splits, partitions=partitions)
    QUERIES[query].function(flow, ParquetTables(events)).sink(sink)
    return flow


def over_source(query: str, source: Source, sink: Sink, window: str, *, splits: int = 1) -> Dataflow:
    """The same query over bids from anywhere, in windows of another length."""
    flow = Dataflow(query, splits=splits)
    result_of(query, flow.source(source), window).sink(sink)
    return flow


def result_of(query: str, bids: Stream, window: str) -> Stream:
    """What a query makes of bids."""
    if query == "q7":
        return bids.window(Tumbling(window)).top(1, by="-price", ties=True)
    return bids.key_by("bidder").window(Tumbling(window)).aggregate(bid_count=count())


class BidsInRealTime(Source):
    """Bids that fall due at a steady rate, from a moment in the near future on."""

    def __init__(self, query: str, rate_per_s: int, start_ms: int, seconds: float) -> None:
        self.columns = COLUMNS[query]
        schema = pa.schema([BID.field(name) for name in self.columns])
        super().__init__(schema, name="bids", is_bounded=True, time="date_time")
        self.bids = PacedBids(rate_per_s, start_ms)
        self.total = int(rate_per_s * seconds)

    @property
    def is_replayable(self) -> bool:
        return True

    def splits(self, wanted: int) -> Sequence[Split]:  # noqa: ARG002
        return [_BidsSplit(self)]


class _BidsSplit(Split):
    """All of them: what has fallen due since the last read."""

    def __init__(self, source: BidsInRealTime) -> None:
        self._source = source
        self._next = 0

    def read(self, rows_max: int) -> SourceBatch | None:
        source = self._source
        due = min(source.bids.due(time.time() * 1000), source.total, self._next + rows_max)
        if due <= self._next:
            return None
        first, self._next = self._next, due
        self.ended = due >= source.total
        rows = source.bids.rows(first, due, source.columns)
        return SourceBatch(rows, due_s=source.bids.start_ms / 1000 + first / source.bids.rate_per_s)

    def position(self) -> int:
        return self._next

    def seek(self, position: int) -> None:
        self._next = position
        self.ended = position >= self._source.total

    def close(self) -> None:
        self.ended = True


# --- one hop -----------------------------------------------------------------------------------------------------------


_SENT = pa.schema([("number", pa.int64()), ("sent_s", pa.float64())])
_ARRIVED = pa.schema([("number", pa.int64()), ("hop_us", pa.float64())])


class Arrive(Function):
    """Writes down how long a message was under way."""

    def on_batch(self, context: FunctionContext, batch: pa.RecordBatch) -> None:
        hop_us = (time.time() - batch.column(1)[0].as_py()) * 1e6
        context.emit_batch(_batch(_ARRIVED, batch.column(0), hop_us))


def hops(rows: int, per_s: int | None, sink: Sink) -> Dataflow:
    """Messages of one row that go from an actor to another one, on another worker: at a rate, or as fast as possible."""
    flow = Dataflow("hops", partitions=1)
    everything = pa.array(np.arange(rows))  # the measurement should cost little itself
    began: list[float] = []

    def numbers(first: int, count: int) -> pa.RecordBatch:
        if per_s is not None:
            if not began:
                began.append(time.time() - first / per_s)
            time.sleep(max(0.0, began[0] + first / per_s - time.time()))
        return _batch(_SENT, everything.slice(first, count), 0.0)

    def stamp(batch: pa.RecordBatch) -> pa.RecordBatch:
        return _batch(_SENT, batch.column(0), time.time())

    stamped = flow.source(from_generator(numbers, _SENT, rows, block=1)).map_batches(stamp, schema=_SENT)
    stamped.key_by("number").process(Arrive, schema=_ARRIVED).sink(sink)
    return flow


def _batch(schema: pa.Schema, numbers: pa.Array, value: float) -> pa.RecordBatch:
    values = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(struct.pack("d", value))])
    return pa.RecordBatch.from_arrays([numbers, values], schema=schema)
