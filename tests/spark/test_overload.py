"""A minute of ten times more input than the pool can take: memory stays flat, nothing is lost, and latency recovers."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import dirigo as dg

RATE = 100_000  # rows due per second
CAPACITY = 10_000  # rows per second that the slow function takes at first
OVERLOAD_S = 60
AFTERWARDS_S = 20
BUDGET_BYTES = 16 << 20
SCHEMA = pa.schema([("number", pa.int64()), ("at", pa.timestamp("ms"))])


def numbers(first: int, count: int) -> pa.RecordBatch:
    made = np.arange(first, first + count)
    times = pa.array(1_700_000_000_000 + made * 1000 // RATE).cast(pa.timestamp("ms"))
    return pa.RecordBatch.from_arrays([pa.array(made), times], schema=SCHEMA)


@pytest.mark.acceptance
def test_ten_times_too_much_for_a_minute() -> None:
    total = RATE * (OVERLOAD_S + AFTERWARDS_S)
    arrived: list[tuple[float, int]] = []  # when, and how many rows the window had
    with dg.Cluster(workers=2) as cluster:
        cluster.wait_ready()
        until = time.time() + OVERLOAD_S

        def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
            if time.time() < until:
                time.sleep(batch.num_rows / CAPACITY)
            return batch

        flow = dg.Dataflow("flood")
        rows = flow.source(dg.paced(dg.from_generator(numbers, SCHEMA, total, block=1_000, time="at")))
        windows = rows.map_batches(slow, schema=SCHEMA).window(dg.Tumbling("1s")).aggregate(rows=dg.count())
        windows.sink(dg.to_callback(lambda row: arrived.append((time.time(), row["rows"]))))
        began = time.time()
        job = cluster.submit(flow, budget_bytes=BUDGET_BYTES)
        resident, queued, taken = [], [], []
        while time.time() < until:
            time.sleep(1)
            status = cluster.status()
            resident.append(sum(worker.rss_bytes for worker in status.workers))
            metrics = job.metrics()
            queued.append(metrics.queued_bytes)
            taken.append(metrics.rows_in)
        assert cluster.run(_small(), timeout_s=60).metrics.rows_out == 10  # another job does not notice
        ended = job.wait(180)
    assert taken[-1] < RATE * OVERLOAD_S / 4, "the source was not held back"
    assert max(queued) <= 2 * BUDGET_BYTES
    assert max(resident[10:]) <= resident[10] + (64 << 20), "memory grew"
    assert ended.metrics.rows_in == total
    assert sum(count for _, count in arrived) == total  # nothing lost, nothing twice
    late = [when - began - (number + 1) for number, (when, _) in enumerate(arrived)]
    assert late[5] > 5, "there was no overload"
    assert max(late[-5:]) < 2, "latency did not recover"


def _small() -> dg.Dataflow:
    flow = dg.Dataflow("small")
    flow.source(dg.from_iterable([{"n": n} for n in range(10)])).sink(dg.to_nothing())
    return flow
