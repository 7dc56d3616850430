"""The process that `keyed_state` starts: the same running count by somebody else, figures on standard output.

Bytewax has its `stateful_map`, over rows that lie in memory as Python objects, as its functions want them. Spark has
`transformWithState`, by row and by pandas frame, over files on two local threads, with RocksDB, which it demands; it is
measured on the wall, because its work is shared by Java and Python, after a run that warms it up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo_lab.bench.flows.keyed_state import KeyedStateCost
from dirigo_lab.bench.flows.keys import key_batches
from dirigo_lab.bench.flows.memory_source import BATCH_ROWS
from dirigo_lab.nexmark.oracles.spark_oracle import local_session

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.driver.memory": "2g",
}
_FILES = 2  # and as many batches: few, for each takes Spark a second or so, however small


def bytewax_costs(keys: int, events: int, repeats: int) -> KeyedStateCost:
    """The rows of the benchmark through `stateful_map`."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    rows = [(str(bidder), 1) for batch in key_batches(events, keys) for bidder in batch.column("bidder").to_pylist()]

    def add(before: int | None, one: int) -> tuple[int, int]:
        after = (before or 0) + one
        return after, after

    found = []
    for _ in range(repeats):
        out: list[tuple[str, int]] = []
        flow = Dataflow("bench")
        counted = op.stateful_map("count", op.input("in", flow, TestingSource(rows, batch_size=BATCH_ROWS)), add)
        op.output("out", counted, TestingSink(out))
        begin = time.process_time()
        run_main(flow)
        found.append((time.process_time() - begin, sum(number for _, number in out)))
    return KeyedStateCost("bytewax stateful_map", keys, events, *min(found))


def spark_costs(keys: int, events: int, repeats: int) -> Iterator[KeyedStateCost]:
    """The rows of the benchmark, as files, through `transformWithState`."""
    table = pa.Table.from_batches(key_batches(events, keys)).select(["bidder"])
    with TemporaryDirectory(prefix="dirigo-keyed-") as folder, local_session(_SETTINGS) as spark:
        part = -(-events // _FILES)
        for number in range(_FILES):
            pq.write_table(table.slice(number * part, part), Path(folder) / f"part-{number}.parquet")
        for form, transform in (("spark transformWithState", _by_row), ("spark transformWithStateInPandas", _by_frame)):
            runs = [_run_spark(spark, folder, transform) for _ in range(1 + repeats)]
            yield KeyedStateCost(form, keys, events, *min(runs[1:]))


def _by_row(grouped: Any) -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._bids = handle.getValueState("bids", "bids long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803, ARG002
            bids = self._bids.get()[0] if self._bids.exists() else 0
            for _ in rows:
                bids += 1
                yield Row(bidder=key[0], bids=bids)
            self._bids.update((bids,))

    return grouped.transformWithState(Count(), "bidder long, bids long", "append", "none")


def _by_frame(grouped: Any) -> Any:
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self._bids = handle.getValueState("bids", "bids long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803, ARG002
            import pandas

            bids = self._bids.get()[0] if self._bids.exists() else 0
            for frame in rows:
                yield pandas.DataFrame({"bidder": key[0], "bids": range(bids + 1, bids + len(frame) + 1)})
                bids += len(frame)
            self._bids.update((bids,))

    return grouped.transformWithStateInPandas(Count(), "bidder long, bids long", "append", "none")


_names = count()


def _run_spark(spark: Any, folder: str, transform: Callable[[Any], Any]) -> tuple[float, int]:
    rows = spark.readStream.schema("bidder long").option("maxFilesPerTrigger", 1).parquet(folder)
    result = transform(rows.groupBy("bidder"))
    totals: list[int] = []

    def look(batch: Any, _: int) -> None:
        totals.append(batch.groupBy().sum("bids").collect()[0][0] or 0)

    writer = result.writeStream.foreachBatch(look).outputMode("append").trigger(availableNow=True)
    with TemporaryDirectory(prefix="dirigo-keyed-") as checkpoint:
        begin = time.perf_counter()
        writer.option("checkpointLocation", checkpoint).queryName(f"count_{next(_names)}").start().awaitTermination()
        return time.perf_counter() - begin, sum(totals)


def main() -> None:
    peer, *numbers = sys.argv[1:]
    keys, events, repeats = map(int, numbers)
    found = [bytewax_costs(keys, events, repeats)] if peer == "bytewax" else list(spark_costs(keys, events, repeats))
    sys.stdout.write(json.dumps([asdict(each) for each in found]))


if __name__ == "__main__":
    main()
