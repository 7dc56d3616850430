"""A job that began with a savepoint loses a worker, or its service, before it has a snapshot of its own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dirigo as dg
from runtime.clusters import SCHEMA, LocalCluster, until
from runtime.savepoints.flows_to_stop import slowly

ROWS = 6_000
NEVER_S = 1_000.0


def copied(folder: Path, *, sink: Any = None) -> dg.Dataflow:
    flow = dg.Dataflow("copied")
    source = flow.source(dg.from_generator(slowly, SCHEMA, ROWS, block=50, time="ts", name="numbers"), splits=2)
    source.deduplicate("n", name="once").sink(sink or dg.to_parquet(folder))
    return flow


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The savepoint of a job that was stopped, and the rows that it has written."""
    folder = tmp_path_factory.mktemp("first")
    with LocalCluster(folder / "logs", 2, folder / "snapshots", every_s=NEVER_S) as cluster:
        job = cluster.submit(copied(folder / "rows"))
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        job.stop(savepoint=folder / "savepoint")
    return folder / "savepoint", rows_in(folder / "rows")


@pytest.fixture
def savepoint(first: tuple[Path, list[int]], tmp_path: Path) -> Path:
    shutil.copytree(first[0], tmp_path / "savepoint")
    return tmp_path / "savepoint"


def rows_in(folder: Path) -> list[int]:
    return pq.read_table(folder)["n"].to_pylist()  # type: ignore[no-any-return]


def test_it_goes_on_from_the_savepoint_after_a_loss(tmp_path: Path, savepoint: Path, first: Any) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=NEVER_S) as cluster:
        job = cluster.submit(copied(tmp_path / "two"), savepoint=savepoint)
        until(lambda: job.status().metrics.rows_in > 100, "it has read for a while")
        assert job.status().snapshot is None
        cluster.kill(1)
        status = job.wait(60)
        assert (status.state, status.recoveries) == ("finished", 1)
        assert status.began_with == str(savepoint)
    second = rows_in(tmp_path / "two")
    assert first[1]
    assert second
    assert sorted(first[1] + second) == list(range(ROWS))


def test_it_goes_on_from_the_savepoint_in_the_next_service(tmp_path: Path, savepoint: Path, first: Any) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=NEVER_S) as cluster:
        job = cluster.submit(copied(tmp_path / "two"), savepoint=savepoint)
        until(lambda: job.status().metrics.rows_in > 100, "it has read for a while")
        cluster.controller.mark_failed("the test says so")
        until(lambda: job.status().state == "failed", "the job has failed here")
    with LocalCluster(tmp_path / "logs", 1, tmp_path / "snapshots", every_s=NEVER_S) as cluster:
        again = cluster.client.job("copied")
        assert again.wait(60).began_with == str(savepoint)
    assert sorted(first[1] + rows_in(tmp_path / "two")) == list(range(ROWS))


def test_a_savepoint_that_is_gone_by_then_is_named(tmp_path: Path, savepoint: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=NEVER_S) as cluster:
        job = cluster.submit(copied(tmp_path / "two"), savepoint=savepoint)
        until(lambda: job.status().metrics.rows_in > 100, "it has read for a while")
        shutil.rmtree(savepoint)
        cluster.kill(1)
        until(lambda: job.status().state == "failed", "it cannot go on")
        assert f"'{savepoint}' holds no finished savepoint" in (job.status().error or "")


def test_with_a_snapshot_of_its_own_it_needs_the_savepoint_no_more(tmp_path: Path, savepoint: Path, first: Any) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=0.2) as cluster:
        job = cluster.submit(copied(tmp_path / "two"), savepoint=savepoint)
        until(lambda: job.status().snapshot is not None, "it has a snapshot of its own")
        shutil.rmtree(savepoint)
        cluster.kill(1)
        status = job.wait(60)
        assert (status.state, status.recoveries) == ("finished", 1)
        assert status.restored_from > 0
    assert sorted(first[1] + rows_in(tmp_path / "two")) == list(range(ROWS))


def test_nothing_behind_the_savepoint_is_seen(tmp_path: Path) -> None:
    """Not even what a sink shows at once: sources stop at the cut."""
    seen = dg.to_spark(name="seen")
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=0.2) as cluster:
        job = cluster.submit(copied(tmp_path, sink=seen))
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        job.stop(savepoint=tmp_path / "savepoint")
        rows = [row["n"] for row in job.results(follow=True)]
        assert rows
        assert len(rows) == job.metrics().rows_in
        again = cluster.submit(copied(tmp_path, sink=dg.to_spark(name="seen")), savepoint=tmp_path / "savepoint")
        again.wait(60)
        assert sorted([*rows, *(row["n"] for row in again.results())]) == list(range(ROWS))
        assert not (tmp_path / "snapshots" / job.id).exists()
