"""A job that ends its worker's process again and again is given up, although it takes snapshots in between."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import dirigo as dg
from runtime.clusters import SCHEMA, LocalCluster, numbers

ROWS = 1_000


def slow_rows(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.01)
    return numbers(first, count)


class EndsProcess(dg.Function):
    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.n == ROWS - 1:
            os._exit(3)
        context.emit({"n": row.n})


def test_a_job_that_ends_its_workers_is_given_up(tmp_path: Path) -> None:
    flow = dg.Dataflow("bad")
    source = flow.source(dg.from_generator(slow_rows, SCHEMA, ROWS, block=20, time="ts"), splits=1)
    source.key_by("key").process(EndsProcess(), {"n": int}, name="poisoned").sink(dg.to_memory())
    neighbour, out = dg.Dataflow("good", partitions=1), dg.to_memory()
    neighbour.source(dg.from_generator(slow_rows, SCHEMA, ROWS, block=20, time="ts"), splits=1).sink(out)
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=tmp_path / "snapshots", every_s=0.1) as cluster:
        job = cluster.submit(flow)
        with pytest.raises(dg.JobFailed, match=r"4 times, each time soon after .*operator 'poisoned' was"):
            job.wait(60)
        assert job.status().recoveries == 3
        cluster.run(neighbour)
        assert sorted(row["n"] for row in out.rows) == list(range(ROWS))
