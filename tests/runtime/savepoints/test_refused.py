"""Savepoints that cannot be taken, and folders that nobody can go on from: each is one sentence that says what to do."""

from __future__ import annotations

import shutil
import socket
import threading
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.runtime.client.job import Job
from runtime.clusters import SCHEMA, LocalCluster, numbers, until, wait_for_file
from runtime.recovery.pushing import pushed_flow
from runtime.savepoints.flows_to_stop import slowly


def endless(name: str, sink: Any = None, maker: Any = None) -> dg.Dataflow:
    """A job that goes on, with a state that needs a file."""
    flow = dg.Dataflow(name, partitions=1)
    source = flow.source(dg.from_generator(maker or many, SCHEMA, None, block=1_000, time="ts", name="numbers"))
    source.deduplicate("n", name="once").sink(sink or dg.to_nothing())
    return flow


def many(first: int, count: int) -> pa.RecordBatch:
    slowly(0, 0)
    return numbers(first, count)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("refused")
    with LocalCluster(folder / "logs", 2, folder / "snapshots", every_s=5) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def running(cluster: LocalCluster) -> Job:
    job = cluster.submit(endless("running"))
    until(lambda: job.status().metrics.rows_in > 3_000, "it has read for a while")
    return job


@pytest.fixture(scope="module")
def savepoint(running: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("savepoints") / "kept"
    running.savepoint(path)
    return path


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


def until_it_has_read_on(job: Job) -> None:
    rows = job.metrics().rows_in
    until(lambda: job.metrics().rows_in > rows + 2_000, "it reads on")


def refusal(cluster: LocalCluster, savepoint: Path) -> str:
    """Why no job goes on from a savepoint: told at the submission, or by the workers."""
    job = None
    try:
        job = cluster.submit(endless("again"), savepoint=savepoint)
        job.wait(20)
    except DirigoError as error:
        return str(error)
    finally:
        if job is not None and job.status().state not in ("failed", "finished"):
            job.cancel()
    raise AssertionError("it was not refused")


def test_a_damaged_file_is_named(cluster: LocalCluster, savepoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(savepoint, copy)
    files = sorted(copy.iterdir())
    assert [file.name.partition("-")[0].partition(".")[0] for file in files] == ["job", "manifest", "part"]
    for file in files:
        content = file.read_bytes()
        for at in {0, 9, len(content) // 2, len(content) - 1}:
            file.write_bytes(flipped(content, at))
            told = refusal(cluster, copy)
            assert "damaged" in told, (file.name, at)
            assert file.name in told
        file.write_bytes(content)
    files[2].unlink()
    assert f"'{files[2].name}' is missing" in refusal(cluster, copy)


def test_another_version_is_told(cluster: LocalCluster, savepoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(savepoint, copy)
    (file,) = copy.glob("manifest-*")
    content = file.read_bytes()
    later = (99).to_bytes(4, "little") + content[16:]
    file.write_bytes(content[:8] + zlib.crc32(later).to_bytes(4, "little") + later)
    assert "is in format 99 and this version of Dirigo reads format 1; use the version that wrote it" in refusal(
        cluster, copy
    )


def test_what_is_no_savepoint_is_told(cluster: LocalCluster, running: Job, tmp_path: Path) -> None:
    assert "holds no finished savepoint; name the folder of one savepoint" in refusal(cluster, tmp_path)
    assert "is not there" in refusal(cluster, tmp_path / "nowhere" / "at" / "all")
    (tmp_path / "file").write_text("mine")
    assert "is not a folder" in refusal(cluster, tmp_path / "file")
    with pytest.raises(DirigoError, match="name it by a URI or a path"):
        cluster.submit(endless("again"), savepoint="")
    with pytest.raises(DirigoError, match="only in a job that begins with a savepoint"):
        cluster.submit(endless("again"), dropped=["once"])
    with pytest.raises(DirigoError, match=r"takes a list of names of operators, such as \['once'\]"):
        cluster.submit(endless("again"), savepoint=tmp_path, dropped="once")
    assert running.status().state == "running"


def test_a_folder_that_cannot_be_used_leaves_the_job_running(running: Job, savepoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place, told in ((savepoint, "is not empty"), (tmp_path, "is not empty"), (tmp_path / "file", "is not a folder")):
        with pytest.raises(DirigoError, match=told):
            running.savepoint(place)
        with pytest.raises(DirigoError, match=told):
            running.stop(savepoint=place)
        until_it_has_read_on(running)
    with pytest.raises(DirigoError, match="more than 0"):
        running.savepoint(tmp_path / "new", timeout_s=0)
    assert running.status().state == "running"
    assert running.status().stopped_into is None


def test_a_wait_has_an_end_and_says_why(cluster: LocalCluster, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"

    def stuck(first: int, count: int) -> pa.RecordBatch:
        if first:
            wait_for_file(str(go_on))
        return many(first, count)

    job = cluster.submit(endless("stuck", maker=stuck))
    until(lambda: job.status().metrics.rows_in > 0, "it runs")
    late = r"not complete after 1 s: the captures of .* are missing.*; the job goes on"
    with pytest.raises(DirigoError, match=late):
        job.savepoint(tmp_path / "one", timeout_s=1)
    with pytest.raises(DirigoError, match=late):
        job.stop(savepoint=tmp_path / "two", timeout_s=1)
    go_on.touch()
    until_it_has_read_on(job)
    assert not (tmp_path / "one").exists()
    job.stop(savepoint=tmp_path / "three")
    assert job.status().state == "finished"
    with pytest.raises(DirigoError, match="job 'stuck' is over: it is finished"):
        job.savepoint(tmp_path / "four")


class Unkeepable(dg.Function):
    """Holds what cannot be pickled."""

    ordered = True
    held = dg.ListState(object)

    def on_message(self, context: Any, row: Any) -> None:
        if row.n < 100:
            self.held.append(threading.Lock())


def test_a_state_that_cannot_be_kept_is_named_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    flow = dg.Dataflow("unkeepable")
    source = flow.source(dg.from_generator(many, SCHEMA, None, block=100, time="ts", name="numbers"))
    source.key_by("key").process(Unkeepable, schema={"n": "int64"}, name="locks").sink(dg.to_nothing())
    job = cluster.submit(flow)
    until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
    for take in (job.savepoint, lambda place: job.stop(savepoint=place)):
        with pytest.raises(DirigoError, match=r"could not be taken: the state of operator 'locks' cannot be kept"):
            take(tmp_path / "savepoint")
    until_it_has_read_on(job)
    job.cancel()


def test_a_job_without_snapshots_has_no_savepoints(cluster: LocalCluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        flow = dg.Dataflow("bound")
        flow.source(dg.from_socket("127.0.0.1", server.getsockname()[1], name="lines")).sink(dg.to_nothing())
        job = cluster.submit(flow)
        with pytest.raises(DirigoError, match=r"no savepoint can be taken of job 'bound'.*'lines' cannot go back"):
            job.savepoint(tmp_path / "savepoint")
        job.cancel()
    with LocalCluster(tmp_path / "logs", 1) as bare:
        job = bare.submit(endless("bare"))
        with pytest.raises(DirigoError, match="this cluster has no folder for snapshots; start it with one"):
            job.stop(savepoint=tmp_path / "savepoint")
        assert job.status().state != "failed"


def test_a_job_that_is_fed_by_a_dataframe_has_none(cluster: LocalCluster, tmp_path: Path) -> None:
    job = cluster.submit(pushed_flow(tmp_path))
    until(lambda: job.status().state == "running", "it runs")
    assert job.status().snapshot_problem is None
    with pytest.raises(DirigoError, match=r"is a DataFrame, and rows .* drain the job"):
        job.stop(savepoint=tmp_path / "savepoint")
    assert not (tmp_path / "savepoint").exists()
    job.cancel()
