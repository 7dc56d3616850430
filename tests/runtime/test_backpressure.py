"""A job that cannot keep up: its sources wait, nothing is lost, and other jobs do not notice."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.runtime.errors import JobFailed
from dirigo.runtime.results.log.errors import LogError
from dirigo.runtime.results.log.store import ResultLog
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, numbers, sorted_rows, until

BUDGET = 256 << 10
BLOCK_BYTES = 1_000 * 24


def flooding(name: str, rows: int | None = None) -> tuple[dg.Dataflow, Any]:
    """Sources that are far quicker than what follows them, at another worker for some of the keys."""
    flow = dg.Dataflow(name)
    out = dg.to_memory()
    source = flow.source(dg.from_generator(numbers, SCHEMA, rows, block=1_000, time="ts", name="numbers"), splits=2)
    slow = source.key_by("key").process(Slow, schema=SCHEMA, time="ts")
    slow.key_by("n").window(dg.Tumbling("1s")).aggregate(count=dg.count()).sink(out)
    return flow, out


class Slow(dg.Function):
    """Takes its time with each batch."""

    def on_batch(self, context: Any, batch: pa.RecordBatch) -> None:
        time.sleep(0.02)
        context.emit_batch(batch)


def test_what_waits_is_bounded_and_nothing_is_lost(cluster: LocalCluster) -> None:
    flow, out = flooding("flooding")
    handle = cluster.submit(flow, budget_bytes=BUDGET)
    beside_flow, beside_out = counting("beside", rows=None)
    beside = cluster.submit(beside_flow)
    until(lambda: beside_out.rows, "the first rows of the other job")
    samples = []
    was_paused = False
    end = time.monotonic() + 5.0
    while time.monotonic() < end or not was_paused:
        metrics = handle.metrics()
        samples.append(metrics.queued_bytes)
        was_paused |= metrics.sources_paused
        time.sleep(0.05)
        assert time.monotonic() < end + PATIENCE_S, "its sources never wait"
    # What each source may give before it hears of the others, on top of the budget.
    assert max(samples) <= 2 * BUDGET + 8 * BLOCK_BYTES
    before = beside.metrics().rows_in
    until(lambda: beside.metrics().rows_in > before, "the other job goes on")
    assert not beside.metrics().sources_paused
    for each in (handle, beside):
        each.drain()
    assert handle.wait(PATIENCE_S).metrics.rows_in == sum(row["count"] for row in out.rows) > 0
    assert beside.wait(PATIENCE_S).metrics.rows_in == sum(row["count"] for row in beside_out.rows)


def test_a_flow_that_waits_all_the_time_comes_to_its_end(cluster: LocalCluster) -> None:
    flow, out = flooding("waiting", rows=20_000)
    cluster.run(flow, budget_bytes=20_000)
    assert sum(row["count"] for row in out.rows) == 20_000


def long_ago(first: int, count: int) -> pa.RecordBatch:
    """All rows in one second, so that nothing leaves a window before the end."""
    rows = numbers(first, count)
    return rows.set_column(2, "ts", pa.array([n % 1_000 for n in range(first, first + count)], pa.int64()))


def test_states_larger_than_the_budget_stop_nobody_for_ever(cluster: LocalCluster) -> None:
    """One source has ended early, at another worker; nothing that it could do frees the states of the other one."""
    flow = dg.Dataflow("hoarding")
    out = dg.to_memory()
    short = flow.source(dg.from_generator(long_ago, SCHEMA, 1_000, block=1_000, time="ts", name="short"), splits=1)
    long = flow.source(dg.from_generator(numbers, SCHEMA, 60_000, block=1_000, time="ts", name="long"), splits=2)
    windows = short.union(long).key_by("n").window(dg.Tumbling("10m"))
    windows.aggregate(count=dg.count()).sink(out)
    cluster.run(flow, budget_bytes=64 << 10)
    assert sum(row["count"] for row in out.rows) == 61_000


def test_a_slow_side_of_a_join_holds_up_the_quick_one_and_not_for_ever(cluster: LocalCluster) -> None:
    def haltingly(first: int, count: int) -> pa.RecordBatch:
        time.sleep(0.02)
        return numbers(first, count)

    flow = dg.Dataflow("joining")
    out = dg.to_memory()
    quick = flow.source(dg.from_generator(numbers, SCHEMA, 50_000, block=1_000, time="ts", name="quick"), splits=1)
    slow = flow.source(dg.from_generator(haltingly, SCHEMA, 50_000, block=1_000, time="ts", name="slow"), splits=1)
    quick.join(slow.rename(key="other", ts="then"), on="n", window=dg.Tumbling("1s")).sink(out)
    cluster.run(flow, budget_bytes=BUDGET)
    assert sorted(row["n"] for row in out.rows) == list(range(50_000))


def test_a_reader_that_is_slow_does_not_make_the_job_grow(cluster: LocalCluster) -> None:
    """Results wait on disk, not in memory: the job goes on at its own pace."""
    seen: list[int] = []

    def take(batch: pa.RecordBatch) -> None:
        time.sleep(0.005)
        seen.append(batch.num_rows)

    flow = dg.Dataflow("slow-reader")
    source = flow.source(dg.from_generator(numbers, SCHEMA, 200_000, block=1_000, name="numbers"), splits=2)
    source.sink(dg.to_callback(take, batches=True))
    status = cluster.submit(flow, budget_bytes=BUDGET).wait(PATIENCE_S)
    assert status.metrics.rows_out == sum(seen) == 200_000


@pytest.mark.parametrize("what", [LogError("The disk is full."), OSError(28, "No space left on device")])
def test_a_log_that_cannot_be_written_fails_its_job_alone(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, what: Exception
) -> None:
    append = ResultLog.append

    def refusing(log: ResultLog, frame: Any, rows: int) -> int:
        if "full" in str(log.folder) and log.next >= 2:
            raise what
        return append(log, frame, rows)

    monkeypatch.setattr(ResultLog, "append", refusing)
    handle = cluster.submit(counting("full", rows=None)[0])
    with pytest.raises(JobFailed, match=r"disk is full|No space left"):
        handle.wait(PATIENCE_S)
    flow, out = counting("fine")
    cluster.run(flow)
    assert sorted_rows(out.rows) == sorted_rows(dg.testing.run(flow).rows())
