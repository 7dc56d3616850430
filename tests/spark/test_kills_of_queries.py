"""Workers, the service and Java are killed while Spark queries write into a job: each row of a micro-batch is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.runtime.client.job import Job
from dirigo.spark.service import file as service_file
from dirigo.spark.service import service
from runtime.clusters import until
from spark import feeding_program
from spark.feeding_program import ROWS
from spark.standalone import java_below

PATIENCE_S = 240.0  # on a busy machine, Java alone takes a minute to start
SERVICE, QUERY, WORKER, BOTH, JAVA = "service", "query", "worker", "both", "java of the service"
VICTIMS = (SERVICE, QUERY, WORKER, JAVA, QUERY, SERVICE, BOTH, WORKER, BOTH, QUERY)


def confirmed_by(checkpoint: Path) -> int:
    """How many micro-batches Spark would not bring again."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    return max(commits, default=-1) + 1


def assert_rows_once(folder: Path, checkpoint: Path) -> int:
    """All of the micro-batches that Spark takes for done, perhaps another one that it does not know of, and nothing else."""
    found = Counter(pq.read_table(folder)["n"].to_pylist())
    confirmed = confirmed_by(checkpoint)
    batches = confirmed + (confirmed * ROWS in found)
    wanted = Counter(range(batches * ROWS))
    assert not wanted - found, f"{(wanted - found).total()} of {wanted.total()} rows are missing"
    assert not found - wanted, f"{(found - wanted).total()} rows are there too often, or should not be there"
    return batches


def counting(folder: Path, source: dg.Source) -> dg.Dataflow:
    flow = dg.Dataflow("numbers", partitions=2)
    rows = flow.source(source, splits=2)
    rows.sink(dg.to_parquet(folder))
    rows.with_columns(key=dg.col("n") % 7).key_by("key").aggregate(rows=dg.count()).sink(dg.to_spark())
    return flow


def assert_counts(job: Job, batches: int) -> None:
    counts = {row["key"]: row["rows"] for row in job.results()}
    assert counts == dict(Counter(n % 7 for n in range(batches * ROWS)))


def worker_of(cluster: dg.Cluster, job: Job, random: Random) -> int:
    """The process of a worker that serves the job."""
    serving = job.status().workers
    ready = [worker.pid for worker in cluster.status().workers if worker.state == "ready" and worker.id in serving]
    return random.choice(ready) if ready else 0


@pytest.mark.acceptance
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_rows_are_there_once_after_ten_kills_of_workers(tmp_path: Path, has_checkpoint: bool) -> None:
    random = Random(has_checkpoint)
    checkpoint = tmp_path / "checkpoint"
    with dg.Cluster(2, snapshots=tmp_path / "snapshots", every="500ms") as cluster:
        cluster.wait_ready()
        if not has_checkpoint:  # one of its own, which only the session knows
            cluster.spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
        stream = cluster.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
        numbers = stream.option("numPartitions", 3).load().selectExpr("value AS n")
        source = dg.from_spark(numbers, trigger="100ms", checkpoint=checkpoint if has_checkpoint else None)
        job = cluster.submit(counting(tmp_path / "out", source))
        until(lambda: job.status().snapshot, "a snapshot")
        if not has_checkpoint:
            (checkpoint,) = until(lambda: list((tmp_path / "checkpoints").glob("*")), "the query has begun")
        for number in range(10):
            fed, steady_s = confirmed_by(checkpoint), time.monotonic() + 2.5 * (number % 3 == 2)
            until(lambda: confirmed_by(checkpoint) > fed + 1 and time.monotonic() > steady_s, "the query goes on")  # noqa: B023
            time.sleep(random.uniform(0.0, 1.0))
            before = job.status().recoveries
            os.kill(until(lambda: worker_of(cluster, job, random), "a worker that serves the job"), signal.SIGKILL)
            until(lambda: job.status().recoveries > before and job.status().state == "running", "it runs again")  # noqa: B023
        fed = confirmed_by(checkpoint)
        until(lambda: confirmed_by(checkpoint) > fed + 1, "the query goes on")
        job.drain()
        status = job.wait(PATIENCE_S)
        assert (status.state, status.error) == ("finished", None)
        batches = assert_rows_once(tmp_path / "out", checkpoint)
        assert_counts(job, batches)
    sys.stderr.write(f"\n{status.recoveries} recoveries, {batches} micro-batches of {ROWS} rows\n")


class Feeder:
    """A process with a Spark of its own, whose query writes into a job of the service."""

    def __init__(self, folder: Path, service_name: str, job: str) -> None:
        self.checkpoint = folder / "checkpoint"
        self._log = folder / "feeder.log"
        self._arguments = [service_name, job, str(self.checkpoint)]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, feeding_program.__file__, *self._arguments], stdout=log, stderr=log, env=environment
            )

    def go_on(self) -> None:
        """Start it again if it has ended, and wait until a micro-batch is confirmed."""
        fed = confirmed_by(self.checkpoint)
        until(lambda: self._is_fed(fed), f"the query goes on, see {self._log}", PATIENCE_S)

    def _is_fed(self, before: int) -> bool:
        if self._process.poll() is not None:
            self._process = self._start()
        return confirmed_by(self.checkpoint) > before

    def java(self) -> int:
        found = java_below(self._process.pid)
        return found[0] if found else self._process.pid

    def end(self) -> None:
        for pid in (self.java(), self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIRIGO_HOME", str(tmp_path / "home"))
        try:
            yield
        finally:
            for name in service_file.living():
                found = service_file.read(name)
                assert found is not None
                service.stop(found)


@pytest.mark.acceptance
@pytest.mark.usefixtures("home")
def test_rows_are_there_once_after_kills_of_the_service_and_of_the_querys_java(tmp_path: Path) -> None:
    settings = service.ServiceSettings("fed", 2, snapshots_every="500ms")
    random = Random(1)
    started = service.start(settings, lambda _: None)
    with dg.connect("fed") as connected:
        job = connected.submit(counting(tmp_path / "out", dg.from_spark(schema={"n": "int64"}))).id
    feeder = Feeder(tmp_path, "fed", job)
    try:
        feeder.go_on()
        for victim in VICTIMS:
            time.sleep(random.uniform(0.0, 2.5))
            sys.stderr.write(f"\nkilled at {confirmed_by(feeder.checkpoint)} micro-batches: {victim}")
            if victim in (QUERY, BOTH):
                os.kill(feeder.java(), signal.SIGKILL)
            if victim in (SERVICE, BOTH):
                os.kill(started.pid, signal.SIGKILL)
            if victim == JAVA:
                (java,) = java_below(started.pid)
                os.kill(java, signal.SIGKILL)
            if victim == WORKER:
                with dg.connect("fed") as connected:
                    os.kill(random.choice([each.pid for each in connected.status().workers if each.pid]), signal.SIGKILL)
            if victim in (SERVICE, BOTH, JAVA):
                until(lambda before=started: not before.lives(), "the service has ended")  # type: ignore[misc]
                started = service.start(settings, lambda _: None)
            feeder.go_on()
    finally:
        feeder.end()
    with dg.connect("fed") as connected:
        handle = connected.job(job)
        handle.drain()
        status = handle.wait(PATIENCE_S)
        assert (status.state, status.error) == ("finished", None)
        batches = assert_rows_once(tmp_path / "out", feeder.checkpoint)
        assert_counts(handle, batches)
    assert status.recoveries >= 5
    sys.stderr.write(f"\nkilled: {VICTIMS}; {status.recoveries} recoveries, {batches} micro-batches of {ROWS} rows\n")
