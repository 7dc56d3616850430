"""Jobs come back from their last snapshot after a worker was killed, and lose and repeat nothing."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.runtime.results.sync import LogSyncing
from runtime.clusters import SCHEMA, LocalCluster, numbers, until

ROWS = 4_000


def slowly(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.002)
    return numbers(first, count)


def flow_of(out: Any, folder: Path, rows: int = ROWS) -> dg.Dataflow:
    flow = dg.Dataflow("counting")
    source = flow.source(dg.from_generator(slowly, SCHEMA, rows, block=20, time="ts", name="numbers"), splits=2)
    source.sink(dg.to_parquet(folder / "all"))
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(rows=dg.count(), total=dg.sum("n")).sink(out)
    return flow


def expected(rows: int = ROWS) -> Counter[tuple[Any, ...]]:
    out = dg.to_memory()
    flow = dg.Dataflow("counting")
    source = flow.source(dg.from_generator(numbers, SCHEMA, rows, block=20, time="ts", name="numbers"), splits=2)
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(rows=dg.count(), total=dg.sum("n")).sink(out)
    dg.run(flow)
    return Counter(tuple(sorted(row.items())) for row in out.rows)


def test_a_job_goes_on_after_a_kill(tmp_path: Path) -> None:
    out, rows = dg.to_memory(), 10 * ROWS  # still running when its worker is killed
    with LocalCluster(tmp_path / "logs", workers=2, snapshots=tmp_path / "snapshots") as cluster:
        job = cluster.client.submit(flow_of(out, tmp_path, rows))
        until(lambda: job.status().snapshot is not None, "a snapshot is there")
        victim = cluster.worker(1)
        os.kill(victim.pid, signal.SIGKILL)
        until(lambda: job.status().recoveries == 1 and job.status().state == "running", "the job runs again")
        status = job.wait(60)
        assert status.state == "finished"
    assert Counter(tuple(sorted(row.items())) for row in out.rows) == expected(rows)
    written = pq.read_table(tmp_path / "all")["n"].to_pylist()
    assert sorted(written) == list(range(rows))


def test_a_job_goes_on_in_the_next_service_when_one_cannot_go_on(tmp_path: Path) -> None:
    flow = flow_of(dg.to_spark(name="counted"), tmp_path, 10 * ROWS)  # still running when it is made to fail
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots") as cluster:
        job = cluster.client.submit(flow)
        until(lambda: job.status().snapshot is not None, "a snapshot is there")
        cluster.controller.mark_failed("the test says so")
        until(lambda: job.status().state == "failed", "the job has failed here")
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots") as cluster:
        again = cluster.client.job("counting")
        assert again.id == job.id
        assert again.wait(60).state == "finished"
        rows = list(again.results())
    assert Counter(tuple(sorted(row.items())) for row in rows) == expected(10 * ROWS)
    assert sorted(pq.read_table(tmp_path / "all")["n"].to_pylist()) == list(range(10 * ROWS))


def test_who_waits_for_the_end_reads_all_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show = LogSyncing._show

    def slowly_shown(self: LogSyncing, shelf: Any, cut: Any) -> None:
        time.sleep(0.3)
        show(self, shelf, cut)

    monkeypatch.setattr(LogSyncing, "_show", slowly_shown)
    flow = dg.Dataflow("shown")
    flow.source(dg.from_iterable([{"n": n} for n in range(100)])).sink(dg.to_spark())
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=tmp_path / "snapshots", every_s=5) as cluster:
        job = cluster.run(flow)
        assert job.results().table.num_rows == 100
