"""States of every kind count: they are shown, and a source that is ahead waits when they have grown too large."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from runtime.clusters import SCHEMA, LocalCluster, until

BUDGET_BYTES = 4 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("logs"), workers=1) as cluster:
        yield cluster


def rows(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.001)
    values = pa.array(range(first, first + count), pa.int64())
    return pa.record_batch([values, values, values], schema=SCHEMA)


def few_rows(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.02)
    return rows(first, count)


def source(flow: dg.Dataflow, name: str, of: Any = rows, block: int = 200) -> Any:
    return flow.source(dg.from_generator(of, SCHEMA, block=block, time="ts", name=name))


def latest(_: Any, row: Any) -> Any:
    return row


class Keeping(dg.Function):
    scope = "partition"
    ordered = True
    seen = dg.MapState(int, int)

    def on_message(self, context: Any, row: Any) -> None:
        self.seen[row.n] = row.n


KEEPING: dict[str, Callable[[dg.Dataflow], Any]] = {
    "deduplicate": lambda flow: source(flow, "rows").deduplicate("n"),
    "scan": lambda flow: source(flow, "rows").key_by("n").scan(latest),
    "join": lambda flow: source(flow, "left").join(source(flow, "right"), on="n"),
    "process": lambda flow: source(flow, "rows").key_by("n").process(Keeping, {"n": int}),
}


@pytest.mark.parametrize("kind", KEEPING)
def test_the_state_of_a_running_job_is_shown(cluster: LocalCluster, kind: str) -> None:
    flow = dg.Dataflow(kind.replace(" ", "-"))
    KEEPING[kind](flow).sink(dg.to_nothing())
    job = cluster.submit(flow)
    until(lambda: job.metrics().state_bytes > 1 << 20, "its state has grown, and counts")
    job.cancel()


@pytest.mark.acceptance
def test_a_source_that_is_ahead_waits_when_the_state_of_a_join_is_too_large(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("ahead")
    slow = source(flow, "slow", few_rows, block=1)
    source(flow, "quick").join(slow, on="n").sink(dg.to_nothing())
    job = cluster.submit(flow, budget_bytes=BUDGET_BYTES)
    until(lambda: job.metrics().state_bytes > BUDGET_BYTES, "the state is too large")
    time.sleep(1.0)  # for all to hear of it
    before = job.metrics().rows_in
    until(lambda: job.metrics().rows_in > before, "the slow source goes on")
    time.sleep(1.0)
    assert job.metrics().rows_in < before + 1_000  # the quick one would have given 100,000
    job.cancel()
