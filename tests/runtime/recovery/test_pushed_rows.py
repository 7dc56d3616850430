"""Rows that are pushed into a job: each micro-batch that was confirmed is in the results once, whoever is killed when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.recovery import ResumableJob
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.decisions import Decision, Decisions
from dirigo.runtime.results.log import LogError
from dirigo.runtime.snapshots import SnapshotStore, StoredJob
from runtime.clusters import PATIENCE_S, LocalCluster, until
from runtime.recovery.pushing import Outsider, assert_rows_once, no_hook, pushed_flow


class Pushed:
    """A job that takes in pushed rows, and what pushes them."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self.job = cluster.submit(pushed_flow(folder))
        self.outsider = Outsider(cluster.controller.access, self.job.id, 1)

    def kill(self, which: int = 0) -> None:
        """The worker of a split, once it serves the job."""
        places = self.cluster.client.source_places(self.job.id)
        self.cluster.kill(places.splits[which % len(places.splits)].worker)

    def kill_now(self, worker: int) -> None:
        """On the controller's own threads, which cannot ask it."""
        hello = self.cluster.controller.slots[worker].hello
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)

    def lose_amid(self, action: Callable[[], object]) -> None:
        """What costs the job a worker that serves it; when it is back, losses before do not count any more."""
        before = self.job.status().recoveries
        action()
        self.until_back(before)
        self.until_steady()

    def until_steady(self) -> None:
        job = self.cluster.controller.jobs[self.job.id]
        until(lambda: not job.losses_in_row, "losses before do not count any more")

    def until_back(self, before: int) -> None:
        until(lambda: self.job.status().recoveries > before and self.job.status().state == "running", "it runs again")

    def until_snapshot(self) -> None:
        """One that began from now on."""
        now = time.time()
        until(lambda: began_s(self.job) > now, "a snapshot is committed")

    def finish(self) -> None:
        self.job.drain()
        status = self.job.wait(PATIENCE_S)
        assert status.state == "finished", status.error
        assert_rows_once(self.folder, list(self.job.results()), self.outsider.confirmed)


def began_s(job: Job) -> float:
    snapshot = job.status().snapshot
    return 0.0 if snapshot is None else snapshot.began_s


@pytest.fixture
def pushed(tmp_path: Path) -> Iterator[Pushed]:
    with LocalCluster(tmp_path / "logs", workers=2, snapshots=tmp_path / "snapshots", every_s=0.2) as cluster:
        yield Pushed(tmp_path, cluster)


def test_rows_outlive_their_worker_at_every_point(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    outsider, controller = pushed.outsider, pushed.cluster.controller
    outsider.bring_next()
    pushed.until_snapshot()
    assert pushed.job.status().snapshot_problem is None
    assert sorted(pushed.job.status().workers) == [0, 1]
    # Released at one worker, and not at the other.
    order = controller.order
    told: list[int] = []

    def lose_one(worker: int, what: control.ToWorker) -> None:
        if not isinstance(what, control.Release) or not told:
            order(worker, what)
        if isinstance(what, control.Release):
            told.append(worker)
            if len(told) == 2:
                monkeypatch.undo()
                pushed.kill_now(worker)

    monkeypatch.setattr(controller, "order", lose_one)
    pushed.lose_amid(outsider.bring_next)
    assert sorted(told) == [0, 1]
    # Released, and behind the last snapshot.
    outsider.bring_next()
    pushed.lose_amid(lambda: pushed.kill())
    # Staged, and not decided on: before and after the loss is noticed.
    outsider.staged = lambda _: pushed.kill()
    pushed.lose_amid(outsider.bring_next)
    outsider.staged = lambda _: pushed.lose_amid(lambda: pushed.kill())
    pushed.until_steady()
    outsider.bring_next()
    outsider.staged = no_hook
    # Decided on, and not released.
    decide = Decisions.decide

    def decide_and_kill(self: Decisions, *its: Any) -> Decision | None:
        decision = decide(self, *its)
        monkeypatch.undo()
        pushed.kill_now(controller.jobs[pushed.job.id].workers[0])
        return decision

    monkeypatch.setattr(Decisions, "decide", decide_and_kill)
    pushed.lose_amid(outsider.bring_next)
    outsider.bring_next()
    assert pushed.job.status().recoveries == 5
    pushed.finish()


def test_a_replayed_micro_batch_that_was_released_is_dropped(pushed: Pushed) -> None:
    outsider = pushed.outsider
    for _ in range(3):
        outsider.bring_next()
    pushed.lose_amid(lambda: pushed.kill())
    again = Outsider(pushed.cluster.controller.access, pushed.job.id, 2, confirmed=2)
    refs = again.stage(2)
    assert again.commit(2, refs)  # it was there
    outsider.bring_next()
    pushed.finish()


def test_what_no_snapshot_needs_is_removed(pushed: Pushed) -> None:
    folder = pushed.folder / "snapshots"
    for _ in range(5):
        pushed.outsider.bring_next()
    pushed.until_snapshot()
    until(lambda: not list(folder.rglob("*.arrow")), "no rows are kept")
    assert not list(folder.rglob("*.release"))
    pushed.finish()
    until(lambda: not list(folder.iterdir()), "the folder of the job is gone")


def test_the_end_of_a_source_outlives_a_loss(pushed: Pushed) -> None:
    pushed.outsider.bring_next()
    pushed.cluster.client.end_sources(pushed.job.id, "pushed")
    pushed.cluster.kill(0)
    status = pushed.job.wait(PATIENCE_S)
    assert status.state == "finished", status.error
    assert_rows_once(pushed.folder, list(pushed.job.results()), 1)


def test_the_end_of_a_source_is_on_disk_before_it_is_confirmed(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who fed it goes then, and tells it to no later service."""
    pushed.outsider.bring_next()
    pushed.until_snapshot()
    write = SnapshotStore.write_job

    def write_slowly(store: SnapshotStore, job: StoredJob) -> None:
        time.sleep(0.5)
        write(store, job)

    monkeypatch.setattr(SnapshotStore, "write_job", write_slowly)
    pushed.cluster.client.end_sources(pushed.job.id, "pushed")
    stored = SnapshotStore(str(pushed.folder / "snapshots"), pushed.job.id).read_job()
    assert stored is not None
    assert msgspec.msgpack.decode(stored.content, type=ResumableJob).to_drain == ("pushed",)
    monkeypatch.undo()
    pushed.finish()


def test_a_commit_for_which_there_is_no_room_loses_nothing(pushed: Pushed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Decisions, "decide", full)
    with pytest.raises(ControlError, match=r"the commit of a micro-batch cannot be kept: .*No space left on device; free"):
        pushed.outsider.bring_next()
    monkeypatch.undo()
    pushed.outsider.bring_next()
    pushed.finish()


def test_a_job_that_is_refused_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise LogError("The results log cannot be made.")

    with LocalCluster(tmp_path / "logs", workers=1, snapshots=tmp_path / "snapshots") as cluster:
        monkeypatch.setattr(cluster.controller.logs, "add", no_room)
        with pytest.raises(ControlError, match="cannot be made"):
            cluster.submit(pushed_flow(tmp_path))
        until(lambda: not list((tmp_path / "snapshots").iterdir()), "its folder is gone", 5.0)


def test_where_rows_cannot_be_kept_no_snapshots_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dirigo.runtime.controller.recovery.rows_folder", lambda _: None)
    with LocalCluster(tmp_path / "logs", workers=1, snapshots=tmp_path / "snapshots", every_s=0.2) as cluster:
        with pytest.raises(
            ControlError, match="no snapshots can be taken of job 'pushed', because its rows of source 'pushed'"
        ):
            cluster.submit(pushed_flow(tmp_path), snapshots_every="1s")
        job = cluster.submit(pushed_flow(tmp_path))
        problem = job.status().snapshot_problem
        assert problem is not None
        assert problem.startswith("no snapshots are taken, because the rows of source 'pushed' cannot be kept in ")
        outsider = until_running(cluster, job)
        outsider.bring_next()
        job.drain()
        assert job.wait(PATIENCE_S).state == "finished"
        assert_rows_once(tmp_path, list(job.results()), 1)


def until_running(cluster: LocalCluster, job: Job) -> Outsider:
    until(lambda: job.status().state == "running", "it runs")
    return Outsider(cluster.controller.access, job.id, 1)


def test_workers_are_killed_at_any_moment(pushed: Pushed) -> None:
    random, outsider = Random(1), pushed.outsider

    def perhaps_kill(_: int) -> None:
        if random.random() < 0.3:
            pushed.kill(random.randrange(3))

    for _ in range(3):
        next_s = time.monotonic() + random.uniform(0.2, 0.8)
        while time.monotonic() < next_s:
            outsider.bring_next()
        pushed.kill(random.randrange(3))
        outsider.staged = perhaps_kill
        outsider.bring_next()
        outsider.staged = no_hook
        until(lambda: pushed.job.status().state == "running", "it runs again")
        pushed.until_steady()
    assert pushed.job.status().recoveries >= 3
    pushed.finish()


# --- the service is killed -------------------------------------------------------------------------------------------------


def serve(folder: Path) -> None:
    """In a process of its own, until it is killed: tells each micro-batch that is confirmed."""
    with LocalCluster(folder / "logs", workers=2, snapshots=folder / "snapshots", every_s=0.2) as cluster:
        outsider = until_running(cluster, cluster.submit(pushed_flow(folder)))
        while True:
            outsider.bring_next()
            with (folder / "confirmed").open("a") as file:
                file.write(f"{outsider.confirmed}\n")


def test_a_query_goes_on_in_the_next_service(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from {__name__} import serve; serve(Path({str(tmp_path)!r}))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    told = tmp_path / "confirmed"
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        until(lambda: told.exists() and len(told.read_text().split()) >= 10, "ten micro-batches are confirmed")
        time.sleep(0.05)  # anywhere in the one after that
        os.kill(process.pid, signal.SIGKILL)
    confirmed = len(told.read_text().split())
    with LocalCluster(tmp_path / "logs", workers=2, snapshots=tmp_path / "snapshots", every_s=0.2) as cluster:
        job = cluster.client.job("pushed")
        outsider = Outsider(cluster.controller.access, job.id, 2, confirmed=confirmed)
        for _ in range(3):  # the first of them may have come, cut in another way
            outsider.bring_next()
        cluster.client.end_sources(job.id)
        status = job.wait(PATIENCE_S)
        assert (status.state, status.error, status.recoveries) == ("finished", None, 1)
        assert_rows_once(tmp_path, list(job.results()), confirmed + 3)
