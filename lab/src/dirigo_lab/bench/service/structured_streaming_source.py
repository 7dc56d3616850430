"""A source for Structured Streaming that offers `PacedBids` as they fall due, to the millisecond.

Spark's own `rate` source deals out whole seconds only, up to a second after a row was due. This one is exact, but each batch
has to go through Python processes; what that adds to a batch has not been measured against files that appear at their time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from dirigo_lab.bench.service.paced_bids import PacedBids

NAME = "dirigo_paced_bids"
_BIDS_AT_ONCE = 10_000
_TYPES = {"date_time": "timestamp", "extra": "string"}  # all others are numbers
_PARTITIONS = 2
_SPARK_TIME = pa.timestamp("us", tz="UTC")


@dataclass
class _Range(InputPartition):  # type: ignore[misc]  # PySpark has no types here
    first: int
    last: int


class PacedBidsSource(DataSource):  # type: ignore[misc]
    """Options: `rate_per_s`, `start_ms`, and `columns` with commas in between."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ", ".join(f"{name} {_TYPES.get(name, 'bigint')}" for name in self.options["columns"].split(","))

    def streamReader(self, schema: Any) -> _Reader:  # noqa: ARG002, N802 - Spark's name
        bids = PacedBids(int(self.options["rate_per_s"]), int(self.options["start_ms"]))
        return _Reader(bids, self.options["columns"].split(","))


class _Reader(DataSourceStreamReader):  # type: ignore[misc]
    """An offset is the number of bids before it."""

    def __init__(self, bids: PacedBids, columns: Sequence[str]) -> None:
        self._bids = bids
        self._columns = columns

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"bids": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: ARG002, N802
        return {"bids": max(start["bids"], self._bids.due(time.time() * 1000))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[_Range]:
        first, count = start["bids"], end["bids"] - start["bids"]
        cuts = [first + count * part // _PARTITIONS for part in range(_PARTITIONS + 1)]
        return [_Range(low, high) for low, high in pairwise(cuts) if low < high]

    def read(self, partition: _Range) -> Iterator[pa.RecordBatch]:
        for first in range(partition.first, partition.last, _BIDS_AT_ONCE):
            rows = self._bids.rows(first, min(first + _BIDS_AT_ONCE, partition.last), self._columns)
            place = rows.schema.get_field_index("date_time")
            yield rows.set_column(place, "date_time", rows.column(place).cast(_SPARK_TIME))
