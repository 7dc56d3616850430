"""What plays a Spark query without Spark: it brings micro-batches to a job, and brings again what was not confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.client.client import Client
from dirigo.runtime.control import Access, AttemptRef
from dirigo.runtime.ingest.pusher import Arrival
from dirigo.runtime.transport.keys import WRITER
from dirigo.spark.input.bringing import Bringing, places_of
from runtime.clusters import PATIENCE_S

SPLITS = 3
ROWS = 40  # of a micro-batch


def pushed_flow(folder: Path, name: str = "pushed") -> dg.Dataflow:
    """All rows go to files, and counts per key and window into the results log."""
    flow = dg.Dataflow(name, partitions=2)
    source = flow.source(PushedSource({"n": "int64", "ts": "int64"}, time="ts"), splits=SPLITS)
    source.sink(dg.to_parquet(folder / "rows"))
    keyed = source.with_columns(key=dg.col("n") % 5).key_by("key")
    keyed.window(dg.Tumbling("100ms")).aggregate(rows=dg.count(), total=dg.sum("n")).sink(dg.to_spark(name="windows"))
    return flow


def no_hook(batch: int) -> None:
    """Nothing happens."""


class Outsider:
    """A query with a checkpoint: ``confirmed`` is how many micro-batches it would not bring again."""

    def __init__(self, access: Access, job: str, seed: int, *, confirmed: int = 0, query: str = "query") -> None:
        self._access = access.lowered(WRITER)
        self._job = job
        self._query = query
        self._random = Random(seed)
        self._connect: Callable[[], Client] = partial(Client, self._access)
        self.confirmed = confirmed
        self.staged: Callable[[int], None] = no_hook

    def bring_next(self) -> None:
        batch = self.confirmed
        refs = self.stage(batch)
        self.staged(batch)
        self.commit(batch, refs)
        self.confirmed += 1

    def stage(self, batch: int) -> list[AttemptRef]:
        """The rows of a micro-batch, cut into tasks in some way."""
        bringing = Bringing(places_of(self._connect, self._job, None), self._access.keys, self._connect)
        numbers = list(range(batch * ROWS, (batch + 1) * ROWS))
        self._random.shuffle(numbers)
        cut = self._random.randrange(1, ROWS)
        tasks = [numbers[:cut], numbers[cut:]]
        refs = [bringing.bring(self._random.randrange(SPLITS), [rows_of(numbers)]).ref for numbers in tasks]
        return refs + [bringing.bring(split, (), max(numbers), Arrival(0)).ref for split in range(SPLITS)]

    def stage_at(self, split: int, numbers: list[int]) -> AttemptRef:
        bringing = Bringing(places_of(self._connect, self._job, None), self._access.keys, self._connect)
        return bringing.bring(split, [rows_of(numbers)]).ref

    def commit(self, batch: int, refs: list[AttemptRef]) -> bool:
        client = self._connect()
        try:
            return client.release(self._job.partition("~")[0], "pushed", self._query, batch, refs, PATIENCE_S)
        finally:
            client.close()


def rows_of(numbers: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "ts": pa.array(numbers, pa.int64())})


def assert_rows_once(folder: Path, results: list[dict[str, Any]], batches: int) -> None:
    """What has come of so many micro-batches."""
    wanted = range(batches * ROWS)
    found = pq.read_table(folder / "rows")["n"].to_pylist()
    missing, surplus = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert not missing, sorted(missing)[:10]
    assert not surplus, sorted(surplus)[:10]
    counts: Counter[tuple[int, int]] = Counter((n % 5, n // 100 * 100) for n in wanted)
    totals: Counter[tuple[int, int]] = Counter()
    for n in wanted:
        totals[n % 5, n // 100 * 100] += n
    rows = [(row["key"], row["window_start"], row["rows"], row["total"]) for row in results]
    assert sorted(rows) == sorted((*place, counts[place], totals[place]) for place in counts)
