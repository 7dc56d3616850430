"""Snapshots as users of a service see them: taken by default, listed, and what a service that died goes on from."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cli.commands import ENDLESS, home_of_clusters, refused, run, until, written
from cli.test_status_tables import job as job_status
from cli.test_status_tables import rendered
from dirigo.cli.display.job_details import job_details
from dirigo.cli.display.status_tables import notes
from dirigo.runtime.client.client import Client
from dirigo.runtime.status import JobStatus, SnapshotFigures
from dirigo.spark.service import file as service_file
from dirigo.spark.service.file import RunningService

COUNTED = """
import time
import dirigo as dg

def ticks(first, count):
    time.sleep(0.005)
    return [{"n": n, "ts": n} for n in range(first, first + count)]

flow = dg.Dataflow("counted")
rows = flow.source(dg.from_generator(ticks, {"n": int, "ts": int}, 3_000, block=5, time="ts"), splits=1)
rows.sink(dg.to_json_lines("OUT", mode="overwrite"))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with home_of_clusters(tmp_path / "home") as place:
        yield place


def service() -> RunningService:
    found = service_file.read("dirigo")
    assert found is not None
    return found


def status_of(job: str) -> JobStatus:
    access = service().access
    assert access is not None
    with Client(access) as client:
        return client.job_status(job)


def kill(started: RunningService) -> None:
    """As if the machine had lost power: all processes of the service at once."""
    for pid in service_file.members_of(started.pid):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not service_file.members_of(started.pid), "all its processes are gone")


def test_a_service_that_died_goes_on_with_its_jobs(tmp_path: Path) -> None:
    run("cluster", "start", "--workers", "2", "--snapshots-every", "200ms")
    out, _ = run("submit", written(tmp_path, COUNTED))
    (job,) = re.findall(r"submitted as (counted~\d+)", out)
    until(lambda: (last := status_of(job).snapshot) is not None and last.number >= 2, "two snapshots are there")
    kill(service())
    run("snapshots", "--json", tmp_path / "snapshots.json")
    listed = json.loads((tmp_path / "snapshots.json").read_text())["snapshots"]
    assert {each["job"] for each in listed} == {job}
    assert all(each["is_whole"] for each in listed)
    last = listed[-1]["number"]
    out, _ = run("cluster", "start", "--workers", "2", "--snapshots-every", "200ms")
    assert re.search(rf"^resumed: {job} from snapshot {last}$", out, re.MULTILINE)
    until(lambda: status_of(job).state == "finished", "the job has finished")
    assert status_of(job).recoveries == 1
    lines = [json.loads(line)["n"] for part in (tmp_path / "out").iterdir() for line in part.read_text().splitlines()]
    assert sorted(lines) == list(range(3_000))
    assert "no snapshots in" in run("snapshots")[0]  # nobody goes back to those of a job that is over
    assert "submitted as counted~2" in run("submit", tmp_path / "flows.py")[0]
    run("cluster", "stop")
    assert "resumed" not in run("cluster", "start", "--workers", "1")[0]  # the jobs were cancelled


def test_a_service_may_take_none(tmp_path: Path) -> None:
    run("cluster", "start", "--workers", "1", "--no-snapshots")
    line = refused("submit", written(tmp_path, ENDLESS), "--snapshots-every", "1s")
    assert "this cluster has no folder for snapshots" in line


def test_snapshots_are_kept_in_the_folder_that_is_named(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    run("cluster", "start", "--workers", "1", "--snapshots", place, "--snapshots-every", "1h")
    run("submit", written(tmp_path, ENDLESS), "--snapshots-every", "100ms")
    until(lambda: status_of("ticks").snapshot is not None, "a snapshot is there")
    out, _ = run("snapshots", "--folder", place)
    assert re.search(r"^ticks~1 +\d+ ", out, re.MULTILINE)
    assert (place / "dirigo" / "ticks~1").is_dir()
    out, _ = run("jobs", "ticks")
    assert re.search(r"snapshot +\d+, \d", out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--snapshots", "/a", "--no-snapshots"), "--snapshots names a folder for what --no-snapshots does not take"),
        (("--snapshots-every", "0s"), "--snapshots-every: '0s' is no time at all"),
    ],
)
def test_what_cannot_be_meant_gives_one_line(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused("cluster", "start", *arguments)
    assert service_file.living() == []


def test_snapshots_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in refused("snapshots", "--folder", tmp_path / "none")


def test_a_job_tells_of_its_snapshots() -> None:
    now_s = time.time()
    status = msgspec.structs.replace(
        job_status("one~1"),
        state="recovering",
        snapshot=SnapshotFigures(17, now_s - 4, 0.25, 2_000_000, 1_000),
        snapshot_problem="snapshot 18 could not be taken: the disk is full",
        generation=2,
        recoveries=2,
        recovered_in_s=0.5,
    )
    shown = "\n".join(rendered(job_details(status, now_s)))
    assert "recovering" in shown
    assert "17, 4.0s old, took 0.2s, 2.0 MB, 1.0 kB of it written" in shown
    assert "2, the last time within 0.5s; this is generation 2" in shown
    assert "snapshot 18 could not be taken: the disk is full" in shown
    (note,) = notes([status])
    assert note.plain == "one~1 has come back 2 times; snapshot 18 could not be taken: the disk is full"


def test_a_job_is_stopped_with_a_savepoint_and_another_goes_on(tmp_path: Path) -> None:
    run("cluster", "start", "--workers", "2")
    out, _ = run("submit", written(tmp_path, COUNTED))
    (job,) = re.findall(r"submitted as (counted~\d+)", out)
    until(lambda: status_of(job).metrics.rows_in > 0, "it has read something")
    out, _ = run("savepoint", "counted", tmp_path / "first")
    assert f"the savepoint of job {job} is in {tmp_path / 'first'}" in out
    assert "is not empty" in refused("savepoint", "counted", tmp_path / "first")
    out, _ = run("savepoint", "counted", tmp_path / "second", "--stop")
    assert f"job {job} is stopped; go on with" in out
    assert status_of(job).stopped_into == str(tmp_path / "second")
    out, _ = run("snapshots", "--folder", tmp_path / "second", "--json", tmp_path / "listed.json")
    (listed,) = json.loads((tmp_path / "listed.json").read_text())["snapshots"]
    assert (listed["job"], listed["is_whole"]) == (job, True)
    other = tmp_path / "other"
    other.mkdir()
    wrong = written(other, COUNTED.replace('time="ts")', 'time="ts", name="ticks")'))
    told = refused("submit", wrong, "--savepoint", tmp_path / "second")
    assert "cannot go on from the savepoint of job 'counted'" in told
    assert "is not in it" in told
    assert "takes the old name and the new one" in refused(
        "submit", wrong, "--savepoint", tmp_path / "second", "--renamed", "a"
    )
    out, _ = run("submit", wrong, "--savepoint", tmp_path / "second", "--renamed", "generator=ticks", "--wait")
    (again,) = [each for each in map(status_of, ("counted",)) if each.state == "finished"]
    assert again.began_with == str(tmp_path / "second")
    assert f"the savepoint in {tmp_path / 'second'}" in " ".join(rendered(job_details(again, time.time()), width=300))
    files = [file for place in (tmp_path, other) for file in (place / "out").glob("*.jsonl")]
    rows = [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]
    assert sorted(rows) == list(range(3_000))
