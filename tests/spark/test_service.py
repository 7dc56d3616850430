"""The service on local Spark, over Spark Connect and on a standalone cluster: right rows, and what breaks breaks alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.runtime.control import WorkerStatus
from dirigo.runtime.errors import ControlError
from dirigo.spark.hosting import GRACE_S
from dirigo.spark.session import SessionError
from dirigo_lab.nexmark.on_spark import run_on_cluster
from spark import query_rows
from spark.query_rows import EVENTS, QUERIES, RATE
from spark.standalone import kill, wait_for

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def expected(classic_session: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    return query_rows.answers(classic_session, tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="module")
def cluster(classic_session: Any) -> Iterator[dg.Cluster]:
    with dg.Cluster(2, spark=classic_session) as cluster:
        cluster.wait_ready()
        yield cluster
    assert classic_session.range(3).count() == 3  # a session that is not ours goes on


def counted(name: str, rows: int) -> tuple[dg.Dataflow, Any]:
    """A small job: rows per key."""
    flow = dg.Dataflow(name)
    out = dg.to_memory()
    numbers = flow.source(dg.from_generator(lambda first, n: [{"n": i} for i in range(first, first + n)], {"n": int}, rows))
    numbers.map(lambda row: {"k": row["n"] % 7}, schema={"k": int}).key_by("k").aggregate(rows=dg.count()).sink(out)
    return flow, out


def assert_works(cluster: dg.Cluster, name: str) -> None:
    flow, out = counted(name, 7_000)
    cluster.run(flow, timeout_s=60)
    assert sorted((row["k"], row["rows"]) for row in out.rows) == [(k, 1_000) for k in range(7)]


# --- rows ----------------------------------------------------------------------------------------------------------------


def test_ten_queries_at_once_give_spark_sqls_rows_on_local_spark(
    cluster: dg.Cluster, expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    told: list[int] = []
    reports = run_on_cluster(
        cluster, QUERIES, EVENTS, RATE, tmp_path, progress=lambda jobs: told.append(sum(done for done, _ in jobs.values()))
    )
    query_rows.assert_equal(tmp_path, expected)
    assert [report.query for report in reports] == list(QUERIES)
    assert all(report.rows == expected[report.query].num_rows for report in reports)
    assert told[-1] == EVENTS * len(QUERIES)


@pytest.mark.acceptance
def test_ten_queries_give_spark_sqls_rows_over_connect(
    connect_session: Any, expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    with dg.Cluster(2, spark=connect_session) as cluster:
        run_on_cluster(cluster, QUERIES, EVENTS, RATE, tmp_path)
    query_rows.assert_equal(tmp_path, expected)


@pytest.mark.acceptance
def test_ten_queries_give_spark_sqls_rows_on_a_standalone_cluster(
    standalone_master: str, expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    program = [sys.executable, str(TESTS / "spark" / "standalone_program.py"), standalone_master, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    query_rows.assert_equal(tmp_path, expected)
    told = json.loads(ended.stdout)
    assert told["rows"] == {query: table.num_rows for query, table in expected.items()}
    assert len(set(told["executors"])) == 2  # workers in both, which have exchanged messages: rows are cut by key


# --- failures ------------------------------------------------------------------------------------------------------------


def workers_by_id(cluster: dg.Cluster) -> dict[int, WorkerStatus]:
    return {worker.id: worker for worker in cluster.status().workers}


def test_a_killed_worker_comes_back_and_its_jobs_say_why_they_failed(cluster: dg.Cluster) -> None:
    before = workers_by_id(cluster)
    flow = dg.Dataflow("endless")
    flow.source(dg.from_generator(lambda first, n: [{"n": i} for i in range(first, first + n)], {"n": int})).sink(
        dg.to_nothing()
    )
    job = cluster.submit(flow)
    wait_for(lambda: job.metrics().rows_out > 0, "the first rows")
    kill(before[0].pid)
    with pytest.raises(
        dg.JobFailed, match=r"worker 0 (ended unexpectedly and was started again|could not be reached), and with it went"
    ):
        job.wait(60)
    wait_for(lambda: workers_by_id(cluster)[0].state == "ready", "the worker")
    after = workers_by_id(cluster)
    assert after[0].pid != before[0].pid
    assert after[0].incarnation > before[1].incarnation
    assert after[1].pid == before[1].pid
    assert_works(cluster, "after-the-kill")


def test_the_pool_grows_and_shrinks_while_a_job_runs(cluster: dg.Cluster) -> None:
    flow = dg.Dataflow("steady")
    flow.source(dg.from_generator(lambda first, n: [{"n": i} for i in range(first, first + n)], {"n": int})).sink(
        dg.to_nothing()
    )
    job = cluster.submit(flow)
    wait_for(lambda: job.status().state == "running", "the job")
    cluster.resize(3)
    wait_for(lambda: [each.state for each in cluster.status().workers] == ["ready"] * 3, "the third worker")
    assert_works(cluster, "on-three")
    cluster.resize(2)
    wait_for(lambda: len(cluster.status().workers) == 2, "the third worker's end")
    assert job.status().state == "running"
    job.drain()
    assert job.wait(60).state == "finished"


def test_what_cannot_be_hosted_is_refused(classic_session: Any, cluster: dg.Cluster) -> None:
    with pytest.raises(SessionError, match="give it more cores, or ask for fewer workers"):
        dg.Cluster(50, spark=classic_session)
    with pytest.raises(ControlError, match="give spark= or master=, not both"):
        dg.Cluster(1, spark=classic_session, master="local[2]")
    with pytest.raises(ControlError, match="ask for 1 or more"):
        dg.Cluster(0, spark=classic_session)


def test_a_cluster_ends_although_code_of_a_user_blocks(classic_session: Any, tmp_path: Path) -> None:
    """Not only after its worker has ended itself, which takes 5 s, and Spark has started that worker again."""
    mark = tmp_path / "mark"

    def block(row: Any) -> Any:
        mark.touch()
        time.sleep(1000)

    flow = dg.Dataflow("blocked")
    rows = flow.source(dg.from_generator(lambda first, n: [{"n": i} for i in range(first, first + n)], {"n": int}, 10))
    rows.map(block, schema={"n": int}).sink(dg.to_nothing())
    with dg.Cluster(1, spark=classic_session) as blocked:
        blocked.submit(flow)
        wait_for(mark.exists, "the function")
        began = time.monotonic()
    assert time.monotonic() - began < GRACE_S  # about 1 s


# --- DataFrames ------------------------------------------------------------------------------------------------------------


def test_a_round_trip_loses_and_doubles_nothing_although_a_task_fails(
    classic_session: Any, cluster: dg.Cluster, tmp_path: Path
) -> None:
    """files -> stream -> "dirigo" -> job -> "dirigo" -> stream -> Parquet; each partition fails once, half-way."""
    spark = classic_session
    spark.range(0, 20_000, 1, 4).write.parquet(str(tmp_path / "in"))
    marks = str(tmp_path / "marks")
    Path(marks).mkdir()

    def shaky(batches: Any) -> Any:
        import random

        from pyspark import TaskContext

        task = TaskContext.get()
        mark = Path(marks) / f"{task.partitionId()}"
        rows = list(batches)
        random.shuffle(rows)  # a retried task need not see its rows in the same order
        for number, batch in enumerate(rows):
            if number == 0 and not mark.exists():
                yield batch
                mark.touch()
                raise ValueError("this task fails once")
            yield batch

    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "in"))
    stream = stream.mapInArrow(shaky, "id long")
    flow = dg.Dataflow("trip", splits=2)
    rows = flow.source(dg.from_spark(stream, trigger="availableNow"))
    rows.map(lambda row: {"id": row["id"], "k": row["id"] % 3}, schema={"id": int, "k": int}).sink(dg.to_spark())
    job = cluster.submit(flow)
    out = str(tmp_path / "out")
    query = (
        spark.readStream.format("dirigo")
        .option("job", "trip")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start(out)
    )
    try:
        assert job.wait(120).metrics.rows_in == 20_000
        wait_for(lambda: spark.read.format("dirigo").option("job", "trip").load().count() == 20_000, "the log")
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(list(Path(marks).iterdir())) > 0
    found = spark.read.parquet(out).collect()
    assert sorted(row["id"] for row in found) == list(range(20_000))
    assert all(row["k"] == row["id"] % 3 for row in found)


def test_rates_go_through_a_job_until_it_is_drained(classic_session: Any, cluster: dg.Cluster) -> None:
    spark = classic_session
    stream = spark.readStream.format("rate").option("rowsPerSecond", 1_000).load()
    flow = dg.Dataflow("rates")
    rows = flow.source(dg.from_spark(stream, time="timestamp"))
    rows.window(dg.Tumbling("1s")).aggregate(n=dg.count(), lowest=dg.min("value"), highest=dg.max("value")).sink(
        dg.to_spark()
    )
    job = cluster.submit(flow)

    def how_it_is() -> list[Any]:
        queries = [(query.status, query.lastProgress) for query in spark.streams.active]
        return [job.status(), *cluster.status().workers, *queries]  # is a worker busy with something that does not end?

    wait_for(lambda: job.metrics().rows_out >= 2, "two windows", tell=how_it_is)
    job.drain()
    status = job.wait(60)
    windows = spark.read.format("dirigo").option("job", "rates").load().orderBy("window_start").collect()
    assert sum(row["n"] for row in windows) == status.metrics.rows_in
    lowest = 0
    for row in windows:  # nothing is missing and nothing is there twice
        assert (row["lowest"], row["highest"]) == (lowest, lowest + row["n"] - 1)
        lowest = row["highest"] + 1


def test_the_wait_for_the_micro_batch_is_part_of_the_latency(classic_session: Any, cluster: dg.Cluster) -> None:
    """Rows whose time is the clock wait for a trigger every two seconds: so does the result of a window."""
    stream = classic_session.readStream.format("rate").option("rowsPerSecond", 100).load()
    flow = dg.Dataflow("waiting", slo=dg.SLO(latency="500ms"))
    rows = flow.source(dg.from_spark(stream, time="timestamp", trigger="2s"))
    rows.window(dg.Tumbling("500ms")).aggregate(n=dg.count()).sink(dg.to_spark())
    job = cluster.submit(flow)
    wait_for(lambda: job.metrics().rows_out >= 24, "the windows of some micro-batches")  # the first has no look before it
    job.drain()
    metrics = job.wait(60).metrics
    assert metrics.latency_ms["p50"] > 1_000, metrics
    assert metrics.satisfaction.results is not None
    assert metrics.satisfaction.results < 0.5


def test_a_query_of_the_user_writes_to_a_source(classic_session: Any, cluster: dg.Cluster) -> None:
    frame = classic_session.range(1_000)
    flow = dg.Dataflow("open")
    out = dg.to_memory()
    flow.source(dg.from_spark(schema=frame.schema, name="numbers")).sink(out)
    job = cluster.submit(flow)
    wait_for(lambda: job.status().state == "running", "the job")
    frame.write.format("dirigo").option("job", "open").mode("append").save()
    frame.selectExpr("id + 1000 AS id").write.format("dirigo").option("job", "open").mode("append").save()
    job.drain()
    job.wait(60)
    assert sorted(row["id"] for row in out.rows) == list(range(2_000))


def test_a_query_that_fails_fails_its_job(classic_session: Any, cluster: dg.Cluster) -> None:
    frame = classic_session.range(10).selectExpr("raise_error('no such thing') AS x", "id")
    flow = dg.Dataflow("fed-badly")
    flow.source(dg.from_spark(frame.selectExpr("id", "x"))).sink(dg.to_nothing())
    with pytest.raises(dg.JobFailed, match=r"the query of source 'spark' failed: .*no such thing"):
        cluster.run(flow, timeout_s=120)
    assert_works(cluster, "after-the-query")
