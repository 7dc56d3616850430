"""The state of a job as a DataFrame: while it runs, and from folders without a cluster."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.runtime.snapshots.savepoint import copy_to
from dirigo.runtime.snapshots.store import SnapshotStore
from dirigo.spark.data_source import dirigo_format
from dirigo.spark.sessions import Reach
from runtime.clusters import until

SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.int64()), ("ts", pa.timestamp("ms", "UTC"))])


def flow_of() -> dg.Dataflow:
    """Inside, so that it is sent whole: Spark's processes cannot import tests."""

    class Counted(dg.Function):
        rows = dg.ValueState(int, default=0)
        rests = dg.MapState(str, int)
        last = dg.ListState(float)
        ordered = True

        def on_message(self, context: Any, row: Any) -> None:
            self.rows.set(self.rows.get() + 1)
            self.rests[str(row.n % 2)] = row.n
            self.last.clear()
            self.last.append(row.n / 2)

    def trickle(first: int, count: int) -> list[dict[str, Any]]:
        time.sleep(0.02)
        return [{"n": n, "key": n % 13, "ts": n} for n in range(first, first + count)]

    flow = dg.Dataflow("read", partitions=3)
    schema = {"n": int, "key": int, "ts": int}
    source = flow.source(dg.from_generator(trickle, schema, None, block=50, time="ts", name="numbers"), splits=1)
    source.key_by("key").process(Counted, {"n": int}, name="counts").sink(dg.to_nothing())
    source.key_by("key").window(dg.Tumbling("1h")).aggregate(rows=dg.count()).sink(dg.to_nothing())
    return flow


def check(rows: list[Any]) -> int:
    """All keys of a prefix of the input."""
    counts = {row["key"]: row["rows"] for row in rows}
    total: int = sum(counts.values())
    assert counts == {key: len(range(key, total, 13)) for key in range(13)}
    for row in rows:
        last = row["key"] + 13 * (row["rows"] - 1)
        assert row["last"] == [last / 2]
        assert row["rests"][str(last % 2)] == last
    return total


def rows_by_key(reader: Any) -> dict[int, int]:
    return {row["key"]: row["rows"] for row in reader.load().collect()}


@pytest.mark.acceptance
def test_a_state_is_a_dataframe(classic_session: Any, tmp_path: Path) -> None:
    spark, root = classic_session, tmp_path / "snapshots"
    copied, savepoint = str(tmp_path / "copied"), str(tmp_path / "savepoint")
    with dg.Cluster(workers=2, spark=spark, snapshots=str(root), every="500ms") as cluster:
        job = cluster.submit(flow_of())
        until(lambda: job.metrics().rows_in > 1_000, "the job runs")
        until(lambda: job.status().snapshot is not None, "a snapshot is there")
        read = spark.read.format("dirigo").option("job", "read").option("state", "counts")
        known = job.metrics().rows_in
        frame = read.option("fresh", "true").load()
        assert frame.rdd.getNumPartitions() == 3
        fresh = check(frame.collect())
        assert fresh >= known
        number = cluster.client.find_snapshot("read").number
        windows = spark.read.format("dirigo").option("job", job.id).option("state", "aggregate").option("snapshot", number)
        of_one = spark.read.format("dirigo").option("job", "read").option("state", "counts").option("snapshot", number)
        assert rows_by_key(windows) == rows_by_key(of_one)
        assert windows.load().columns == ["key", "rows", "window_start", "window_end"]
        with pytest.raises(PySparkException, match="those with a state are counts, aggregate"):
            spark.read.format("dirigo").option("job", "read").option("state", "else").load()
        store = SnapshotStore(str(root), job.id)
        copy_to(store, store.manifest(cluster.client.find_snapshot("read").number), savepoint)
        until(lambda: copied_whole(root, Path(copied), job.id), "a copy is whole")
        job.cancel()
    dg.register(spark)
    state = spark.read.format("dirigo").option("state", "counts")
    assert check(state.option("savepoint", savepoint).load().collect()) >= fresh
    state = spark.read.format("dirigo").option("state", "counts").option("job", "read")
    assert check(state.option("snapshots", copied).load().collect()) >= fresh


def copied_whole(root: Path, copied: Path, job: str) -> bool:
    """The job goes on meanwhile, so files may go."""
    shutil.rmtree(copied, ignore_errors=True)
    try:
        shutil.copytree(root, copied)
        return SnapshotStore(str(copied), job).newest([]) is not None
    except shutil.Error:
        return False


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "Say whose state to read"),
        ({"savepoint": "/a", "snapshots": "/b"}, "give one of the two options"),
        ({"job": "read", "fresh": "yes"}, "fresh is 'yes'; it is either true or false"),
        ({"job": "read", "snapshot": "last"}, "snapshot is 'last'; it is the number of one"),
        ({"savepoint": "/a", "fresh": "true"}, "fresh=true takes a snapshot, which a folder cannot"),
        ({"savepoint": "/a", "snapshot": "3"}, "A savepoint is one snapshot"),
        ({"job": "read"}, "This Spark session knows no service"),
        ({"job": "read", "snapshots": "/nowhere"}, "is not there on this machine"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(DirigoError, match=sentence):
        dirigo_format(Reach())({"state": "counts", **options}).schema()


def test_a_state_is_no_stream() -> None:
    source = dirigo_format(Reach())({"state": "counts", "savepoint": "/a"})
    with pytest.raises(DirigoError, match=r"read it with spark\.read"):
        source.streamReader(StructType())
