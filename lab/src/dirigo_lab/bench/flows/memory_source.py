"""Rows that lie in memory before the clock starts, so that a benchmark of a flow measures the flow and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from dirigo.flow.sources.source import Source, SourceBatch, Split
from dirigo.nexmark.generator import Generator
from dirigo.nexmark.sources import TIME_COLUMN

BATCH_ROWS = 4_096
_EVENTS_AT_ONCE = 100_000


class MemorySource(Source):
    """Batches in their order, given out as they are by a single split."""

    def __init__(self, batches: Sequence[pa.RecordBatch], name: str = "bids") -> None:
        super().__init__(batches[0].schema, name=name, is_bounded=True, time=TIME_COLUMN)
        self.batches = batches

    def splits(self, wanted: int) -> Sequence[Split]:  # noqa: ARG002 - one reader is all that a benchmark needs
        return [_MemorySplit(self.batches)]


class _MemorySplit(Split):
    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches
        self._given = 0
        self.ended = not batches

    def read(self, rows_max: int) -> SourceBatch | None:
        """The next batch; all of them have been cut to a size that is read at once."""
        if self.ended:
            return None
        batch = self._batches[self._given]
        if batch.num_rows > rows_max:
            raise ValueError(f"a batch of {batch.num_rows} rows lies in memory, but {rows_max} at most are read at once")
        self._given += 1
        self.ended = self._given == len(self._batches)
        return SourceBatch(batch)

    def close(self) -> None:
        self.ended = True


@dataclass(frozen=True)
class MemoryTables:
    """The bids among the first `events` of Nexmark's events; a query's other streams are not measured."""

    events: int
    batch_rows: int = BATCH_ROWS

    def bids(self, *columns: str) -> Source:
        return MemorySource(bid_batches(self.events, columns, self.batch_rows))

    def persons(self, *columns: str) -> Source:
        raise NotImplementedError("the benchmark's tables have bids only")

    def auctions(self, *columns: str) -> Source:
        raise NotImplementedError("the benchmark's tables have bids only")


@lru_cache(maxsize=1)  # one query is measured some times in a row; the rows of the one before are let go
def bid_batches(events: int, columns: tuple[str, ...], batch_rows: int = BATCH_ROWS) -> tuple[pa.RecordBatch, ...]:
    """All bids among the first `events` events, in batches of one size."""
    generator = Generator()
    made = [
        generator.bids(first, min(first + _EVENTS_AT_ONCE, events), columns).select(list(columns))
        for first in range(0, events, _EVENTS_AT_ONCE)
    ]
    return cut(pa.Table.from_batches(made), batch_rows)


def cut(table: pa.Table, batch_rows: int = BATCH_ROWS) -> tuple[pa.RecordBatch, ...]:
    """A table as batches of so many rows, the last one perhaps smaller."""
    return tuple(table.combine_chunks().to_batches(max_chunksize=batch_rows))
