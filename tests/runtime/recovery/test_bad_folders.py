"""The folder of snapshots breaks while a job runs: the job goes on, says so, and takes snapshots again when it is back."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

import dirigo as dg
from runtime.clusters import SCHEMA, LocalCluster, numbers, until


def trickle(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.02)
    return numbers(first, count)


def test_a_folder_that_is_gone_for_a_while(tmp_path: Path) -> None:
    flow, out = dg.Dataflow("going_on"), dg.to_memory()
    source = flow.source(dg.from_generator(trickle, SCHEMA, None, block=20, time="ts", name="numbers"), splits=1)
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(rows=dg.count()).sink(out)
    root, aside = tmp_path / "snapshots", tmp_path / "aside"
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=root, every_s=0.2) as cluster:
        job = cluster.submit(flow)
        until(lambda: job.status().snapshot is not None, "a snapshot is there")
        root.rename(aside)
        root.write_text("a file is here")
        problem = until(lambda: job.status().snapshot_problem, "the status says what is wrong")
        assert problem is not None
        assert "could not be taken: " in problem
        last, rows = job.status().snapshot, job.status().metrics.rows_in
        assert last is not None
        until(lambda: job.status().metrics.rows_in > rows, "the job goes on")
        assert job.status().state == "running"
        root.unlink()
        aside.rename(root)
        until(lambda: (now := job.status().snapshot) is not None and now.number > last.number, "snapshots go on")
        until(lambda: job.status().snapshot_problem is None, "nothing is wrong any more")
        job.cancel()
