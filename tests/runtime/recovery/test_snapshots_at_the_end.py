"""A snapshot is under way while a job ends: what can come of it comes, and nobody waits for what will not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import dirigo as dg
from dirigo.runtime import control
from dirigo.runtime.controller.controller import Controller
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.controller.snapshots import JobSnapshots, Snapshots, Taking
from dirigo.runtime.snapshots.errors import SnapshotError
from dirigo.runtime.snapshots.manifest import ActorEntry, SnapshotManifest
from dirigo.runtime.snapshots.store import SnapshotStore
from runtime.clusters import SCHEMA, LocalCluster, until
from runtime.recovery.flows_to_kill import slow_numbers


class SlowSide:
    """A controller as its snapshots see it, with one job; what it does beside its thread is done at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        manifest = control.Manifest(leaves=1, partitions=1, sinks={"out": (1, b"")}, pushed={}, splits=1)
        self.job = JobRecord("a~1", "a", manifest, b"", 1, b"", "", 0.0, state="running", workers=(0,), installed={0, 1})
        store = SnapshotStore(str(folder), "a~1")
        store.prepare()
        self.of_job = self.job.snapshots = JobSnapshots(str(folder), store, 1.0, number=5)
        self.jobs = {"a~1": self.job}
        self.orders: list[control.ToWorker] = []
        self.log_end: dict[str, int] | None = None
        self.shows_all = True
        self.logs = SimpleNamespace(cuts=lambda *_: self.log_end, commit=lambda *_: None, is_shown=lambda _: self.shows_all)
        self.has_looked = False
        self.snapshots = Snapshots(cast(Controller, self))

    def committed(self) -> tuple[int, dict[str, int]] | None:
        """The last snapshot that is there, and where it cuts the logs."""
        manifest = self.of_job.last_manifest
        return None if manifest is None else (manifest.number, manifest.logs)

    def of_run(self, run: str) -> JobRecord:
        return self.job

    def beside(self, work: Callable[[], Callable[[], None]]) -> None:
        work()()

    def order_all(self, workers: Any, order: control.ToWorker) -> None:
        self.orders.append(order)

    def look_for_the_end(self, job: JobRecord) -> None:
        self.has_looked = True


@pytest.fixture
def side(tmp_path: Path) -> SlowSide:
    return SlowSide(tmp_path / "snapshots")


def test_the_end_of_the_logs_is_the_cut_when_nobody_was_left_to_post_one(side: SlowSide) -> None:
    side.of_job.taking = Taking(5, 0.0, 0.0, splits={"in/0": b""})
    side.snapshots.captured(side.job, control.Captured("a~1", 0, actors={"out/0": ActorEntry(b"", None, True)}))
    assert side.committed() is None
    side.log_end, side.job.logs_ended = {"out": 7}, True
    side.snapshots.logs_ended(side.job)
    assert side.committed() == (5, {"out": 7})


def test_the_end_waits_for_those_alone_that_have_sinks(side: SlowSide) -> None:
    side.log_end, side.job.logs_ended = {"out": 7}, True
    side.of_job.ended["out/0"] = ActorEntry(b"", None, True)
    assert not side.snapshots.finish(side.job)
    side.job.forget_worker(1)  # a helper that has done nothing
    side.snapshots.committed(side.job, 0, 6)
    assert side.has_looked
    assert side.snapshots.finish(side.job)


def test_the_end_waits_until_the_results_log_shows_all(side: SlowSide) -> None:
    side.log_end, side.job.logs_ended, side.shows_all = {"out": 7}, True, False
    side.of_job.ended["out/0"] = ActorEntry(b"", None, True)
    assert not side.snapshots.finish(side.job)
    for worker in (0, 1):
        side.snapshots.committed(side.job, worker, 6)
    assert not side.snapshots.finish(side.job)
    side.shows_all, side.has_looked = True, False
    side.snapshots.look(0.0)
    assert side.has_looked
    assert side.snapshots.finish(side.job)


def test_the_reason_of_a_snapshot_that_came_to_nothing_is_told_whoever_is_first(side: SlowSide) -> None:
    side.job.started_s = 1.0
    side.snapshots.look(100.0)
    number = side.of_job.number
    reason = "the states of operator 'f' cannot be kept"
    void = control.Captured("a~1", number, problem="it came to nothing", is_void=True)
    for record in (void, control.Captured("a~1", number, problem=reason), void):
        side.snapshots.captured(side.job, record)
    assert side.of_job.problem == f"snapshot {number} could not be taken: {reason}"


def test_a_job_that_has_ended_ends_although_its_last_snapshot_came_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest = SnapshotStore.write_manifest
    failed: list[int] = []
    with LocalCluster(tmp_path / "logs", 1, tmp_path / "snapshots", every_s=0.1) as cluster:

        def written_late(store: SnapshotStore, manifest: SnapshotManifest) -> None:
            if not failed:
                failed.append(manifest.number)
                until(lambda: all(job.is_complete for job in cluster.controller.jobs.values()), "all of it has ended")
                raise SnapshotError("the disk was full for a moment")
            write_manifest(store, manifest)

        monkeypatch.setattr(SnapshotStore, "write_manifest", written_late)
        flow, out = dg.Dataflow("ending"), dg.to_memory()
        flow.source(dg.from_generator(slow_numbers, SCHEMA, 2_000, block=10, time="ts", name="numbers")).sink(out)
        job = cluster.submit(flow)
        assert job.wait(20).state == "finished"
        assert failed
        assert sorted(row["n"] for row in out.rows) == list(range(2_000))
