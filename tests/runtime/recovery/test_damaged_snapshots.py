"""A job does not go back behind results that somebody may have seen, whatever happens to its last snapshot."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.sinks.sink import Sink, Writer
from dirigo.runtime.client.job import Job
from dirigo.runtime.client.shipment import manifest_of
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.controller.recovery import _shows_results
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, numbers, until


def slowly(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.01)
    return numbers(first, count)


def flow_to(sink: Sink) -> dg.Dataflow:
    flow = dg.Dataflow("slow")
    flow.source(dg.from_generator(slowly, SCHEMA, 20_000, block=20, time="ts", name="numbers"), splits=2).sink(sink)
    return flow


class Counting(Sink):
    """Rows are counted, at least once."""

    def open(self, schema: pa.Schema, partition: int) -> Writer:
        return Uncounted()


class Uncounted(Writer):
    def write(self, batch: pa.RecordBatch) -> None:
        """It goes at once."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


class Table(Counting):
    """With a place of its own, or one that many write to."""

    def __init__(self, place: str | None) -> None:
        super().__init__("table")
        self._place = place

    @property
    def place(self) -> str | None:
        return self._place


class OnceTable(Table):
    delivery = "exactly once"


@pytest.mark.parametrize("place", ["db:table", None])
@pytest.mark.parametrize("kind", [Table, OnceTable])
def test_it_is_the_promise_of_a_sink_that_counts_and_not_its_place(place: str | None, kind: type[Table]) -> None:
    manifest = manifest_of(BoundJob(flow_to(kind(place))))
    job = JobRecord("slow~1", "slow", manifest, b"", 1, b"", "", 0.0)
    assert _shows_results(job) is (kind is OnceTable)


def damage_the_last(cluster: LocalCluster, job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Flip a bit in the last manifest, after which there will be no other, and kill a worker of the job."""
    until(lambda: (found := job.status().snapshot) is not None and found.number >= 2, "a second snapshot is there")
    monkeypatch.setattr(cluster.controller.snapshots, "look", lambda _: None)
    time.sleep(1.0)  # for the one that may be under way
    last = job.status().snapshot
    assert last is not None
    manifest = folder / job.id / f"manifest-{last.number}.msgpack"
    content = bytearray(manifest.read_bytes())
    content[len(content) // 2] ^= 1
    manifest.write_bytes(content)
    os.kill(cluster.worker(job.status().workers[0]).pid, signal.SIGKILL)
    return last.number


def test_a_job_whose_results_were_seen_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "snapshots"
    with LocalCluster(tmp_path / "logs", 2, folder) as cluster:
        job = cluster.client.submit(flow_to(dg.to_parquet(tmp_path / "rows")))
        number = damage_the_last(cluster, job, folder, monkeypatch)
        sentence = rf"Snapshot {number} of job '{job.id}' cannot be used: .* Results up to it have been shown"
        with pytest.raises(dg.JobFailed, match=sentence):
            job.wait(PATIENCE_S)
    rows = pq.read_table(tmp_path / "rows")["n"].to_pylist()
    assert rows
    assert len(rows) == len(set(rows))


def test_a_job_that_promised_nothing_goes_on_from_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "snapshots"
    with LocalCluster(tmp_path / "logs", 2, folder) as cluster:
        job = cluster.client.submit(flow_to(Counting("counted")))
        number = damage_the_last(cluster, job, folder, monkeypatch)
        until(lambda: job.status().recoveries == 1 and job.status().state == "running", "the job runs again")
        assert 0 < job.status().restored_from < number
        job.cancel()
