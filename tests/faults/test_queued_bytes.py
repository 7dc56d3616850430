"""What waits for a slow function is counted with what it holds, however many actors its rows are spread over."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import dirigo as dg
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, until

ROWS = 20_000
PARTITIONS = 200
ROW_BYTES = 24


def spread(first: int, count: int) -> pa.RecordBatch:
    values = pa.array(range(first, first + count), pa.int64())
    return pa.record_batch([values, values, values], schema=SCHEMA)


class Slow(dg.Function):
    """Takes its time for each message."""

    def on_batch(self, context: Any, batch: pa.RecordBatch) -> None:
        time.sleep(0.003)
        context.emit_batch(batch.select(["n"]))


def test_rows_that_are_spread_over_many_actors_count_once(tmp_path: Path) -> None:
    flow = dg.Dataflow("spread", partitions=PARTITIONS)
    source = flow.source(dg.from_generator(spread, SCHEMA, ROWS, block=5_000, time="ts", name="numbers"))
    source.key_by("key").process(Slow, {"n": int}, name="slow").sink(dg.to_nothing())
    seen = []
    with LocalCluster(tmp_path / "logs", workers=1) as cluster:
        job = cluster.submit(flow, budget_bytes=4 * ROWS * ROW_BYTES)

        def is_over() -> bool:
            status = job.status()
            seen.append(status.metrics)
            return status.state == "finished"

        until(is_over, "it ends")
        assert job.wait(PATIENCE_S).metrics.rows_in == ROWS
    assert 0 < max(metrics.queued_bytes for metrics in seen) < 2 * ROWS * ROW_BYTES
    assert not any(metrics.sources_paused for metrics in seen)
