"""A service that runs in the background, from Python: ``dg.connect``, and any Spark session after ``dg.register``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dirigo as dg
from cli.commands import home_of_clusters, run
from dirigo.spark.service import file as service_file
from runtime.clusters import PATIENCE_S, until, wait_for_file

NUMBERS = {"n": int}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where two services run, each in a process of its own."""
    with home_of_clusters(tmp_path_factory.mktemp("home")) as place:
        run("cluster", "start", "--workers", "2")
        run("cluster", "start", "--workers", "1", "--name", "second")
        yield place


@pytest.fixture
def service(home: Path) -> Iterator[dg.Service]:
    with dg.connect() as service:
        yield service
        for job in service.jobs():
            if job.ended_s is None:
                with suppress(dg.ControlError):  # it is over already, but for its last figures
                    service.job(job.id).cancel()
                service.job(job.id).wait(PATIENCE_S)


def counting(name: str, sink: Any, rows: int | None = 100) -> dg.Dataflow:
    flow = dg.Dataflow(name)
    numbers = dg.from_generator(lambda first, n: [{"n": i} for i in range(first, first + n)], NUMBERS, rows, block=10)
    flow.source(numbers, splits=1).sink(sink)
    return flow


def numbers_of(rows: Any) -> list[int]:
    return sorted(row["n"] for row in rows)


# --- who is there --------------------------------------------------------------------------------------------------------


def test_a_service_that_does_not_run_is_said_with_how_to_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRIGO_HOME", str(tmp_path))
    with pytest.raises(dg.ControlError) as told:
        dg.connect()
    assert str(told.value) == "no cluster 'dirigo' runs; start one with 'dirigo cluster start'."


def test_a_wrong_name_is_told_those_that_run(home: Path) -> None:
    with pytest.raises(dg.DirigoError) as told:
        dg.connect("thrid")
    assert str(told.value) == (
        "no cluster 'thrid' runs; start one with 'dirigo cluster start --name thrid', "
        "or connect to one that runs: dirigo, second."
    )


def test_a_service_is_found_by_its_name(home: Path) -> None:
    with dg.connect("second") as second, dg.connect() as first:
        assert [len(each.status().workers) for each in (second, first)] == [1, 2]
        assert repr(second) == "Service('second')"


def test_a_connection_that_was_closed_says_so(home: Path) -> None:
    service = dg.connect()
    service.close()
    with pytest.raises(dg.ControlError, match="the connection to the cluster is closed"):
        service.status()


def test_a_cluster_is_a_service_with_the_same_calls() -> None:
    assert issubclass(dg.Cluster, dg.Service)
    own = {name for name in vars(dg.Cluster) if not name.startswith("_")}
    assert own == {"stop", "close", "is_running", "failure"}  # the rest is the service's
    assert inspect.signature(dg.Cluster.submit) == inspect.signature(dg.Service.submit)


# --- jobs ----------------------------------------------------------------------------------------------------------------


def test_rows_come_to_the_process_that_submits(service: dg.Service) -> None:
    out = dg.to_memory()
    status = service.run(counting("collected", out), timeout_s=PATIENCE_S)
    assert status.state == "finished"
    assert numbers_of(out.rows) == list(range(100))
    assert "collected" in [job.name for job in service.jobs()]


def test_a_job_goes_on_without_the_connection_and_is_found_by_another(home: Path) -> None:
    with dg.connect() as service:
        job = service.submit(counting("left", dg.to_spark(), rows=None))
        assert isinstance(job, dg.Job)
        until(lambda: job.metrics().rows_out, "the first rows")
    with dg.connect() as service:
        job = service.job("left")
        assert isinstance(job, dg.Job)
        assert job.status().state == "running"
        job.drain()
        status = job.wait(PATIENCE_S)
        assert status.state == "finished"
        assert numbers_of(job.results()) == list(range(status.metrics.rows_out))


def test_who_waits_in_vain_is_told_by_an_error_of_ours(service: dg.Service) -> None:
    job = service.submit(counting("endless", dg.to_nothing(), rows=None))
    with pytest.raises(dg.StillRunning, match=r"job 'endless' is (starting|running) after 0\.1 s; it goes on"):
        job.wait(0.1)
    job.cancel()
    assert job.wait(PATIENCE_S).state == "cancelled"


def test_a_service_grows(home: Path) -> None:
    with dg.connect("second") as second:
        second.resize(2)
        until(lambda: len(second.status().workers) == 2, "the second worker is awaited")
        second.wait_ready()
        assert [worker.state for worker in second.status().workers] == ["ready", "ready"]


# --- results -------------------------------------------------------------------------------------------------------------


def test_results_as_rows_batches_and_a_table(service: dg.Service) -> None:
    job = service.submit(counting("kept", dg.to_spark(name="out")))
    job.wait(PATIENCE_S)
    results = service.job("kept").results("out")
    assert numbers_of(results) == numbers_of(results) == list(range(100))  # each loop begins anew
    assert results.schema.names == ["n"]
    assert results.table.num_rows == sum(batch.num_rows for batch in results.batches()) == 100


def test_results_are_followed_to_the_end_of_the_job(service: dg.Service, tmp_path: Path) -> None:
    go_on = str(tmp_path / "go on")

    def patient(row: Any) -> Any:
        if row.n == 50:
            wait_for_file(go_on)
        return {"n": row.n}

    flow = dg.Dataflow("followed")
    flow.source(dg.from_iterable([{"n": n} for n in range(100)])).map(patient, schema=NUMBERS).sink(dg.to_spark())
    job = service.submit(flow)
    results = iter(job.results(follow=True))
    Path(go_on).touch()
    assert numbers_of(results) == list(range(100))
    assert job.status().state in ("running", "finished")  # its results are complete a moment before it is over


def test_what_is_there_is_not_waited_for(service: dg.Service) -> None:
    job = service.submit(counting("going", dg.to_spark(), rows=None))
    until(lambda: job.metrics().rows_out, "the first rows")
    until(lambda: job.results().table.num_rows, "some of them are in the log")
    assert job.status().state == "running"


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_results_that_will_never_be_complete_end_with_an_error(service: dg.Service, end: str) -> None:
    job = service.submit(counting(end, dg.to_spark(), rows=None))
    until(lambda: job.metrics().rows_out, "the first rows")
    results = iter(job.results(follow=True))
    assert "n" in next(results)
    if end == "cancelled":
        job.cancel()
    else:
        service.client.fail(job.id, "the test says so")
    reason = {"cancelled": "it was cancelled", "failed": "the test says so"}[end]
    with pytest.raises(dg.JobFailed, match=rf"the results of job '{end}' are not complete: {reason}"):
        for _ in results:
            pass


def test_a_sink_that_cannot_be_read_is_said(service: dg.Service) -> None:
    service.run(counting("unkept", dg.to_nothing()), timeout_s=PATIENCE_S)
    with pytest.raises(dg.ControlError, match=r"job 'unkept' has 0 sinks that can be read \(none\)"):
        service.job("unkept").results()


# --- Spark ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["classic_session", "connect_session"])
def session(request: pytest.FixtureRequest, home: Path) -> Any:
    """A session that was started without a thought of Dirigo."""
    if request.param == "connect_session":
        pytest.importorskip("grpc")
    spark = request.getfixturevalue(request.param)
    dg.register(spark)
    return spark


def test_any_session_reads_a_job_of_a_service(service: dg.Service, session: Any, tmp_path: Path) -> None:
    with dg.connect("second") as second:
        second.run(counting("elsewhere", dg.to_spark(name="out"), rows=30), timeout_s=PATIENCE_S)
    service.run(counting("read", dg.to_spark(name="out")), timeout_s=PATIENCE_S)
    frame = session.read.format("dirigo").options(service="dirigo", job="read", sink="out").load()
    assert numbers_of(frame.collect()) == list(range(100))
    assert session.read.format("dirigo").option("job", "read").load().count() == 100  # "dirigo" if none is named
    assert session.read.format("dirigo").options(service="second", job="elsewhere").load().count() == 30
    stream = session.readStream.format("dirigo").options(service="second", job="elsewhere", untilEnd="true").load()
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(int(PATIENCE_S))
    assert numbers_of(session.read.parquet(str(tmp_path / "out")).collect()) == list(range(30))


def test_any_session_writes_into_a_job_of_a_service(service: dg.Service, session: Any, tmp_path: Path) -> None:
    flow, out = dg.Dataflow("written"), dg.to_memory()
    flow.source(dg.from_spark(schema={"id": "int64"}, name="numbers")).sink(out)
    job = service.submit(flow)
    until(lambda: job.status().state == "running", "it takes rows")
    target = {"service": "dirigo", "job": "written", "source": "numbers"}
    session.range(50).write.format("dirigo").options(**target).mode("append").save()
    session.range(50, 80).write.parquet(str(tmp_path / "rows"))
    rows = session.readStream.schema("id long").parquet(str(tmp_path / "rows"))
    writer = rows.writeStream.format("dirigo").options(**target).option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(int(PATIENCE_S))
    job.drain()
    job.wait(PATIENCE_S)
    assert sorted(row["id"] for row in out.rows) == list(range(80))


def test_a_session_of_this_machine_reads_in_the_python_that_has_dirigo(
    classic_session: SparkSession, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in whatever `python3` is where no environment is activated; unless somebody says which one."""
    for told, expected in ((None, sys.executable), ("python3", "python3")):
        monkeypatch.setattr(classic_session.sparkContext, "pythonExec", "python3")
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        if told is not None:
            monkeypatch.setenv("PYSPARK_PYTHON", told)
        dg.register(classic_session)
        assert classic_session.sparkContext.pythonExec == expected


def test_a_session_is_told_of_a_service_that_does_not_run(classic_session: SparkSession, home: Path) -> None:
    dg.register(classic_session)
    with pytest.raises(Exception, match=r"no cluster 'thrid' runs; .*, or name one that runs with .option\(\"service\", N"):
        classic_session.read.format("dirigo").options(service="thrid", job="read").load()


def test_dataframes_of_this_process_feed_a_job_of_a_service(service: dg.Service, session: Any) -> None:
    flow, out = dg.Dataflow("fed"), dg.to_memory()
    flow.source(dg.from_spark(session.range(1_000))).sink(out)
    assert service.run(flow, timeout_s=PATIENCE_S).metrics.rows_in == 1_000
    assert sorted(row["id"] for row in out.rows) == list(range(1_000))


def test_two_services_and_one_session(service: dg.Service, classic_session: SparkSession) -> None:
    """What one is fed does not go to the other, though jobs and sources have the same names."""
    outs = [dg.to_memory(), dg.to_memory()]
    with dg.connect("second") as second:
        jobs = []
        for each, out, rows in ((service, outs[0], 10), (second, outs[1], 20)):
            flow = dg.Dataflow("twin")
            flow.source(dg.from_spark(classic_session.range(rows))).sink(out)
            jobs.append(each.submit(flow))
        for job in jobs:
            job.wait(PATIENCE_S)
    assert [len(out.rows) for out in outs] == [10, 20]


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_connection_that_is_closed_says_what_becomes_of_its_dataframes(
    service: dg.Service, classic_session: SparkSession, kind: str, tmp_path: Path
) -> None:
    """A stream may end anywhere, but a part of a batch is no result."""
    spark = classic_session
    if kind == "batch":
        slow = spark.range(0, 100_000_000, 1, 1).selectExpr("java_method('java.lang.Thread', 'sleep', 1L) AS nap", "id")
        frame = slow.selectExpr("id", "length(nap) AS nap")
    else:
        frame = spark.readStream.format("rate").load().selectExpr("value AS id")
    flow = dg.Dataflow(f"fed-by-{kind}")
    flow.source(dg.from_spark(frame)).sink(dg.to_nothing())
    connection = dg.connect()
    job = connection.submit(flow)
    until(lambda: job.status().state == "running", "the job has begun")
    connection.close()
    job = service.job(job.id)
    if kind == "stream":
        assert job.wait(PATIENCE_S).state == "finished"
    else:
        with pytest.raises(dg.JobFailed, match=r"the DataFrame of source 'spark' was not read to its end: the process"):
            job.wait(PATIENCE_S)


def test_keys_are_in_no_option(service: dg.Service, classic_session: SparkSession) -> None:
    found = service_file.read("dirigo")
    assert found is not None
    assert found.access is not None
    secrets = [keys.secret for keys in (found.access.keys, *found.access.lesser)]
    dg.register(classic_session)
    shown = str(classic_session.sparkContext.getConf().getAll()) + str(
        classic_session.read.format("dirigo").options(service="dirigo", job="read").load()._jdf.queryExecution().toString()
    )
    assert "dirigo" in shown
    assert not [secret for secret in secrets if secret in shown]
