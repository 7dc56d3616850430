"""Faults of the results log: what is wrong with one job's results is that job's alone, and nothing wrong is given out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import dirigo as dg
from cli.commands import OF_PROCESSES
from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.errors import ControlError, JobFailed
from dirigo.runtime.results.log import manifest
from dirigo.runtime.results.server import JOBS_KEPT, LogServer
from dirigo.runtime.results.shelf import Shelf
from dirigo.spark.results.reader import LogReader, LogStreamReader
from dirigo.spark.service.file import RunningService
from faults.posting import SCHEMA, Posting, files_of, numbers_in, rows, run_again
from runtime.clusters import PATIENCE_S, LocalCluster, counting, until
from runtime.pretenders import PretendedCluster, QuietPool

BROKEN = {**OF_PROCESSES, "DIRIGO_CLUSTER_CLASS": "faults.broken_log_cluster:BrokenLogCluster"}


@pytest.fixture
def posting(tmp_path: Path) -> Iterator[Posting]:
    with Posting(tmp_path / "logs") as made:
        yield made


def is_of(job: Job, descriptor: int) -> bool:
    """Whether an open file is one of a job's logs."""
    return job.id in Path(f"/proc/self/fd/{descriptor}").readlink().parts


# --- one job's trouble is its own ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "count", "where", "why"),
    [
        (rows(1), 1 << 40, {}, "it is said to have 1099511627776 rows"),
        (rows(1), -7, {}, "it is said to have -7 rows"),
        (rows(1), 2, {}, "it has 1 rows, and 2 were announced"),
        (b"nonsense", 1, {}, "it is no record batch of this sink"),
        (b"", 1, {}, "it is no record batch of this sink"),
        (rows(1)[:-8], 1, {}, "it is no record batch of this sink"),
        (rows(1), 1, {"sink": "../../elsewhere"}, "the job has no such sink"),
        (b"", -1, {"partition": 7}, "partition 7 is none, or has ended"),
    ],
)
def test_a_bad_record_is_refused_and_only_its_job_fails(
    posting: Posting, frame: bytes, count: int, where: dict[str, Any], why: str
) -> None:
    bad, good = posting.submit("bad"), posting.submit("good")
    posting.post(good, rows(1), 1)
    posting.post(bad, frame, count, **where)
    status = posting.until_over(bad, "failed")
    assert status.error is not None
    assert status.error.startswith("worker 0 sent a record for sink '")
    assert why in status.error
    assert posting.client.status().refused["a bad record for the results log"] == 1
    posting.post(good, rows(2, 3), 2)
    assert posting.results(good) == [1, 2, 3]
    posting.finish(good)
    posting.until_over(good, "finished")


def test_a_disk_that_is_full_for_one_job_ends_that_job_only(posting: Posting, monkeypatch: pytest.MonkeyPatch) -> None:
    full, good = posting.submit("full"), posting.submit("good")
    write = os.pwritev

    def no_room(descriptor: int, buffers: Any, offset: int) -> int:
        if is_of(full, descriptor):
            raise OSError(28, "No space left on device")
        return write(descriptor, buffers, offset)

    monkeypatch.setattr("os.pwritev", no_room)
    posting.post(full, rows(1), 1)
    status = posting.until_over(full, "failed")
    assert status.error is not None
    assert "the results cannot be kept" in status.error
    assert "(no space left on device); make room for it." in status.error
    posting.post(good, rows(2), 1)
    posting.finish(good)
    posting.until_over(good, "finished")
    assert posting.results(good) == [2]


def test_a_disk_that_does_not_take_what_was_written_fails_the_job(posting: Posting, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = posting.submit("bad"), posting.submit("good")
    sync = os.fdatasync

    def broken(descriptor: int) -> None:
        if is_of(bad, descriptor):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr("os.fdatasync", broken)
    posting.post(bad, rows(1), 1)
    posting.finish(bad)
    status = posting.until_over(bad, "failed")
    assert status.error is not None
    assert "the results cannot be kept" in status.error
    posting.post(good, rows(2), 1)
    posting.finish(good)
    posting.until_over(good, "finished")


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Files in this folder can be made and take 10 bytes, but no more."""
    write = os.write

    def no_room(descriptor: int, content: Any) -> int:
        if folder not in Path(f"/proc/self/fd/{descriptor}").readlink().parents:
            return write(descriptor, content)
        if os.fstat(descriptor).st_size < 10 < len(content):
            return write(descriptor, memoryview(content)[:10])
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.write", no_room)
        yield


def test_a_cluster_starts_on_a_full_disk_and_says_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with run_again(tmp_path) as first:
        job = first.submit("tiny")
        first.post(job, rows(1, 2), 2)
        note = tmp_path / "logs" / job.id / "~job.json"
        at_the_kill = note.read_bytes()
    note.write_bytes(at_the_kill)
    (tmp_path / "logs" / job.id / "out" / "ended").unlink(missing_ok=True)
    with full_disk(tmp_path / "logs"), run_again(tmp_path) as second:
        assert second.results("tiny") == [1, 2]
        assert second.client.log_info("tiny").failed == "the cluster ended before the job did"
    assert (
        f"how job tiny~1 ended is not on disk: The results of job 'tiny~1' cannot be noted in '{note.parent}' (no space "
        "left on device); free space in that folder, or start the cluster with another one for results."
    ) in caplog.text
    assert note.read_bytes() == at_the_kill
    caplog.clear()
    with run_again(tmp_path) as third:
        assert third.results("tiny") == [1, 2]
    assert note.read_bytes() != at_the_kill
    assert "is not on disk" not in caplog.text


def test_a_job_that_is_refused_since_the_disk_is_full_leaves_nothing_behind(posting: Posting, tmp_path: Path) -> None:
    before = sorted((tmp_path / "logs").rglob("*"))
    with full_disk(tmp_path / "logs"), pytest.raises(ControlError, match=r"\(no space left on device\); make room there"):
        posting.submit("refused")
    assert sorted((tmp_path / "logs").rglob("*")) == before
    write_note = Shelf.note

    def no_room(shelf: Shelf) -> None:
        with full_disk(tmp_path / "logs"):
            write_note(shelf)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelf, "note", no_room)
        with pytest.raises(ControlError, match=r"cannot be noted in .*\(no space left on device\); free space in that"):
            posting.submit("refused")
    assert sorted((tmp_path / "logs").rglob("*")) == before
    posting.submit("taken")


# --- no thread ends unnoticed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thread", ["results log", "results log, syncing"])
def test_jobs_fail_and_others_are_refused_with_a_sentence_when_a_thread_of_the_log_ends(
    posting: Posting, monkeypatch: pytest.MonkeyPatch, thread: str
) -> None:
    job = posting.submit("job")

    def broken(*_: object) -> None:
        raise RuntimeError("a bug of ours")

    if thread == "results log":
        monkeypatch.setattr(LogServer, "_serve_waiting", broken)
    else:
        monkeypatch.setattr("dirigo.runtime.results.sync.LogSyncing._look_after", broken)
        monkeypatch.setattr("dirigo.runtime.results.shelf.Shelf.has_unsynced", lambda _: True)
    with pytest.raises(
        JobFailed, match=f"the thread '{thread}' of the service ended by an error: RuntimeError: a bug of ours"
    ):
        job.wait(PATIENCE_S)
    assert posting.controller.failure is not None
    with pytest.raises(ControlError, match=r"the cluster cannot go on, so start another one: .*a bug of ours"):
        posting.submit("next")


def test_a_service_whose_log_ends_says_so_and_ends_with_an_error(tmp_path: Path) -> None:
    settings = msgspec.json.encode({"name": "broken", "workers": 1}).decode()
    environment = os.environ | BROKEN | {"DIRIGO_HOME": str(tmp_path)}
    environment["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
    command = [sys.executable, "-m", "dirigo.spark.service.service", settings]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1, done.stderr
    told = msgspec.json.decode((tmp_path / "clusters" / "broken" / "access.json").read_bytes(), type=RunningService)
    assert told.state == "failed"
    assert told.problem is not None
    assert "the thread 'results log' of the service ended by an error: RuntimeError: a bug of ours" in told.problem


# --- on disk before it is said --------------------------------------------------------------------------------------------


def test_a_job_has_not_finished_before_its_results_are_on_disk(
    posting: Posting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job, other = posting.submit("job"), posting.submit("other")
    is_stuck, may_go_on = threading.Event(), threading.Event()
    sizes_synced: list[int] = []
    sync = os.fdatasync

    def slow(descriptor: int) -> None:
        if is_of(job, descriptor):
            is_stuck.set()
            assert may_go_on.wait(PATIENCE_S)
            sizes_synced.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr("os.fdatasync", slow)
    posting.post(job, rows(1), 1)
    posting.finish(job)
    assert is_stuck.wait(PATIENCE_S)
    posting.post(other, rows(2), 1)  # nobody else waits for the disk
    assert posting.results(other) == [2]
    assert posting.results(job) == [1]
    assert job.status().state == "running"
    assert not posting.client.log_info(job.id).ended
    may_go_on.set()
    posting.until_over(job, "finished")
    (file,) = files_of(tmp_path, job.id)
    assert max(sizes_synced) == file.stat().st_size
    assert posting.client.log_info(job.id).ended


def test_what_a_running_job_has_given_is_on_disk_soon(
    posting: Posting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dirigo.runtime.results.sync.SYNC_EVERY_S", 0.1)
    job = posting.submit("job")
    synced: list[int] = []
    sync = os.fdatasync

    def noted(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        sync(descriptor)
        synced.append(size)

    monkeypatch.setattr("os.fdatasync", noted)
    for number in range(3):
        posting.post(job, rows(number), 1)
        (file,) = files_of(tmp_path, job.id)
        size = file.stat().st_size
        until(lambda: max(synced, default=0) == size, "it is synced")  # noqa: B023
    assert job.status().state == "running"


# --- damage is said -------------------------------------------------------------------------------------------------------

SENTENCE = (
    "Record 1 of the results of job 'job~1', sink 'out', is damaged on disk; read from offset 2 on, or run the job again."
)


def zero(folder: Path, job: str, frame: bytes) -> None:
    (file,) = files_of(folder, job)
    place = file.read_bytes().index(frame)
    with file.open("r+b") as opened:
        opened.seek(place + len(frame) - 8)  # the values
        opened.write(b"\0" * 8)


def test_every_reader_of_a_damaged_record_is_told_and_gets_no_wrong_row(posting: Posting, tmp_path: Path) -> None:
    job = posting.submit("job")
    for number in (5, 6, 7):
        posting.post(job, rows(number), 1)
    posting.finish(job)
    posting.until_over(job, "finished")
    zero(tmp_path, job.id, rows(6))
    assert numbers_in(posting.client.log_read(job.id, "out", 0, 1 << 20, 0.0)) == [5]
    for wait_s in (0.0, 5.0):
        with pytest.raises(ControlError) as told:
            posting.client.log_read(job.id, "out", 1, 1 << 20, wait_s)
        assert str(told.value) == SENTENCE
    assert numbers_in(posting.client.log_read(job.id, "out", 2, 1 << 20, 0.0)) == [7]
    in_its_folder = {"path": str(tmp_path / "logs" / job.id / "out")}
    for access, options in ((posting.controller.access, {"job": "job"}), (None, in_its_folder)):
        reader = LogReader(access, options)
        (part,) = reader.partitions()
        batches = reader.read(part)
        assert next(batches).column(0).to_pylist() == [5]
        with pytest.raises(dg.DirigoError, match="Record 1 of the results of job 'job~1', sink 'out', is damaged"):
            next(batches)
        stream = LogStreamReader(access, options)
        start = stream.initialOffset()
        (part,) = stream.partitions(start, stream.reportLatestOffset())
        with pytest.raises(dg.DirigoError, match="Record 1 of"):
            list(stream.read(part))
        stream.stop()


# --- kept ---------------------------------------------------------------------------------------------------------------


def test_results_of_earlier_runs_stay_readable_by_name_and_id(tmp_path: Path) -> None:
    with run_again(tmp_path) as first:
        for numbers in ((1, 2), (3,)):
            job = first.submit("sums")
            first.post(job, rows(*numbers), len(numbers))
            first.finish(job)
            first.until_over(job, "finished")
        cancelled = first.submit("cancelled")
        first.post(cancelled, rows(4), 1)
        cancelled.cancel()
        first.until_over(cancelled, "cancelled")
        first.submit("ended-with-its-cluster")
    with run_again(tmp_path) as second:
        assert second.results("sums~1") == [1, 2]
        assert second.results("sums") == second.results("sums~2") == [3]
        assert second.client.log_info("sums").ended
        assert second.results("cancelled") == [4]
        assert second.client.log_info("cancelled").failed == "it was cancelled"
        job = second.submit("sums")
        assert job.id == "sums~5"  # never that of other results
        second.post(job, rows(6), 1)
        assert second.results("sums") == [6]
        assert second.results("sums~2") == [3]
    with run_again(tmp_path) as third:
        assert third.results("sums~5") == [6]
        assert third.client.log_info("sums").failed == "it was cancelled"


def test_after_a_hard_kill_the_torn_tail_is_cut_and_the_rest_is_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the files are when the process is killed amid a write: no log has ended, and no job is over. Nothing was synced."""
    with run_again(tmp_path) as first:
        job = first.submit("sums")
        first.post(job, rows(1), 1)
        first.post(job, rows(2), 1)
        saved = {path: path.read_bytes() for path in (tmp_path / "logs" / job.id).rglob("*") if path.is_file()}
    for path in (tmp_path / "logs" / job.id).rglob("*"):
        if path.is_file():
            path.unlink()
    for path, content in saved.items():
        if path.name != "synced":
            path.write_bytes(content[:-5] if path.suffix == ".frames" else content)
    with run_again(tmp_path) as second:
        assert "bytes off the results in" in caplog.text
        assert second.results("sums") == [1]
        info = second.client.log_info("sums")
        assert (info.ended, info.failed) == (False, "the cluster ended before the job did")


@pytest.mark.parametrize("outcome", ["finished", "failed", "cancelled"])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_damage_in_results_of_an_earlier_run_is_told_however_the_job_ended(tmp_path: Path, outcome: str, bad: int) -> None:
    with run_again(tmp_path) as first:
        job = first.submit("job")
        for number in (5, 6, 7):
            first.post(job, rows(number), 1)
        if outcome == "cancelled":
            job.cancel()
        elif outcome == "failed":
            first.worker.say(control.ActorFailed(job.id, "operator 'x' failed: too bad", None))
        else:
            first.finish(job)
        first.until_over(job, outcome)
    zero(tmp_path, job.id, rows(5 + bad))
    with run_again(tmp_path) as second:
        for _ in range(2):
            info = second.client.log_info("job")
            assert (info.first, info.next, info.ended) == (0, 3, outcome == "finished")
            with pytest.raises(ControlError, match=rf"Record {bad} of the results of job 'job~1', sink 'out', is damaged"):
                second.results("job")
            good = second.client.log_read("job", "out", bad + 1, 1 << 20, 0.0)
            assert numbers_in(good) == [5, 6, 7][bad + 1 :]
    (file,) = files_of(tmp_path, job.id)
    file.unlink()
    with (
        run_again(tmp_path) as third,
        pytest.raises(ControlError, match=r"Records 0 to 2 of the results of job 'job~1', sink 'out', are damaged on disk"),
    ):
        third.results("job")


def test_damage_within_results_of_a_job_whose_cluster_was_killed_is_told_and_later_damage_too(tmp_path: Path) -> None:
    with run_again(tmp_path) as first:
        job = first.submit("job")
        for number in (5, 6, 7):
            first.post(job, rows(number), 1)
        saved = {path: path.read_bytes() for path in (tmp_path / "logs" / job.id).rglob("*") if path.is_file()}
    (tmp_path / "logs" / job.id / "out" / "ended").unlink(missing_ok=True)
    for path, content in saved.items():
        path.write_bytes(content)
    zero(tmp_path, job.id, rows(6))
    (file,) = files_of(tmp_path, job.id)
    for bad in (1, 2):
        with run_again(tmp_path) as again:
            info = again.client.log_info("job")
            assert (info.next, info.ended, info.failed) == (3, False, "the cluster ended before the job did")
            with pytest.raises(ControlError, match=rf"Record {bad} of .* is damaged on disk"):
                again.client.log_read("job", "out", bad, 1 << 20, 0.0)
        assert file.stat().st_size == len(saved[file])
        if bad == 1:
            zero(tmp_path, job.id, rows(7))  # the last one: a torn tail, if it were not known where the log ends


@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
def test_results_of_a_killed_cluster_that_were_on_disk_are_missed(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dirigo.runtime.results.sync.SYNC_EVERY_S", 0.1)
    with run_again(tmp_path) as first:
        job = first.submit("job")
        for number in (5, 6):
            first.post(job, rows(number), 1)
        folder = tmp_path / "logs" / job.id
        until(lambda: manifest.synced_to(folder / "out") == 2, "the records are on disk")
        saved = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    (folder / "out" / "ended").unlink()
    for path, content in saved.items():
        path.write_bytes(content)
    (file,) = files_of(tmp_path, job.id)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else saved[file][:-5])
    for _ in range(2):
        with run_again(tmp_path) as again:
            info = again.client.log_info("job")
            assert (info.first, info.next, info.failed) == (0, 2, "the cluster ended before the job did")
            with pytest.raises(ControlError, match=r"Records? \d .*of the results of job 'job~1', sink 'out', .* damaged"):
                again.results("job")


def test_an_end_that_is_not_where_the_log_ended_is_told(tmp_path: Path) -> None:
    with run_again(tmp_path) as first:
        job = first.submit("job")
        for number in range(12):
            first.post(job, rows(number), 1)
        first.finish(job)
        first.until_over(job, "finished")
    (tmp_path / "logs" / job.id / "out" / "ended").write_bytes(b"1")
    with run_again(tmp_path) as second, pytest.raises(ControlError, match="ended' is damaged"):
        second.results("job")


def test_an_earlier_log_that_cannot_be_opened_is_told_to_its_readers_only(tmp_path: Path) -> None:
    with run_again(tmp_path) as first:
        for name in ("bad", "good"):
            job = first.submit(name)
            first.post(job, rows(1), 1)
            first.finish(job)
            first.until_over(job, "finished")
    (tmp_path / "logs" / "bad~1" / "out" / "log.json").write_bytes(b"\0" * 10)
    (tmp_path / "logs" / "stray~7").mkdir()
    with run_again(tmp_path) as second:
        with pytest.raises(ControlError, match=r"log\.json' is damaged"):
            second.client.log_info("bad")
        assert second.results("good") == [1]
        assert second.submit("next").id == "next~3"


def test_what_is_kept_is_bounded_by_age_and_number(tmp_path: Path) -> None:
    logs = tmp_path / "logs"

    def controller(**limits: float) -> Controller:
        made = Controller("kept", QuietPool(), 1, logs=logs, **limits)  # type: ignore[arg-type]
        made.start()
        return made

    schema = SCHEMA.serialize().to_pybytes()
    manifest = control.Manifest(1, 1, {"out": (1, schema)}, {})
    first = controller()
    for number in range(1, JOBS_KEPT + 6):
        first.logs.add(f"job~{number}", "job", manifest)
        first.logs.close_job(f"job~{number}", "it was cancelled")
    until(lambda: all(shelf.is_settled for shelf in first.logs._shelves.values()), "all is on disk")
    first.logs.add("job~999", "job", manifest)
    assert len(list(logs.glob("job~*"))) == JOBS_KEPT + 1
    assert not (logs / "job~1").exists()
    assert (logs / f"job~{JOBS_KEPT}").exists()
    first.stop()
    second = controller()
    assert len(list(logs.glob("job~*"))) == JOBS_KEPT + 1
    second.stop()
    third = controller(retain_s=0.001)
    assert list(logs.glob("job~*")) == []
    third.stop()


def test_two_clusters_do_not_keep_results_in_one_folder(tmp_path: Path) -> None:
    with run_again(tmp_path), pytest.raises(dg.DirigoError, match="another cluster keeps its results there"):
        Controller("second", QuietPool(), 1, logs=tmp_path / "logs")


def test_what_a_job_collected_is_read_by_the_next_cluster(tmp_path: Path) -> None:
    flow, out = counting(rows=5_000)
    with LocalCluster(tmp_path / "logs", 1) as first:
        job = first.run(flow)
        total = sum(row["total"] for row in out.rows)
    with PretendedCluster(tmp_path / "logs", 1) as second:
        reader = LogReader(second.controller.access, {"job": "counting"})
        again = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert second.client.log_info("counting").job == job.id
    assert sum(pa.Table.from_batches(again).column("total").to_pylist()) == total == sum(range(5_000))
