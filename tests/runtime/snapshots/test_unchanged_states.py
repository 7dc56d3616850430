"""States that were called often and are as they were are not written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from dirigo.flow.event_time.watermark import ChannelProgress
from dirigo.flow.plan.states import StageCapture, StageHead
from dirigo.kernel import Kept
from dirigo.runtime import control
from dirigo.runtime.controller.snapshots import FIRST_AFTER_S, JobSnapshots
from dirigo.runtime.snapshots.blobs import BlobRef
from dirigo.runtime.snapshots.manifest import ActorEntry
from dirigo.runtime.snapshots.store import SnapshotStore
from dirigo.runtime.worker.installed_job import InstalledJob
from dirigo.runtime.worker.snapshots.captures import WrittenBody
from dirigo.runtime.worker.snapshots.writing import ActorCapture, SnapshotWriting

ACTOR, PLACE = "job/keep/0", "keep/0"
EARLIER = BlobRef("part-1-0-w0.bin", 64, 5_000, 1)


class PretendedJob:
    """What the thread that writes needs of a job."""

    def __init__(self) -> None:
        self.id = "job"
        self.bodies: dict[str, WrittenBody] = {}
        self.rewrite: frozenset[str] = frozenset()
        self.operators = {ACTOR: object()}
        self.written = 0

    def write_bodies(self, number: int, bodies: Sequence[Sequence[Any]]) -> list[BlobRef]:
        self.written += len(bodies)
        return [BlobRef(f"part-{number}-0-w0.bin", 64, 5_000, 1) for _ in bodies]


def entry_of(job: PretendedJob, number: int, own: Any, changes: int) -> ActorEntry:
    """What the manifest gets of the actor."""
    reports: list[control.FromWorker] = []
    writing = SnapshotWriting(reports.append)
    captured = StageCapture(StageHead(number, cast(ChannelProgress, ())), own)
    capture = ActorCapture(cast(InstalledJob, job), number, ACTOR, captured, Kept((), ()), changes)
    writing._bring(capture.job, number, [capture])
    (report,) = reports
    assert isinstance(report, control.Captured)
    assert report.problem is None
    return report.actors[PLACE]


def test_a_state_that_only_heard_of_time_is_not_written_again() -> None:
    job = PretendedJob()
    first = entry_of(job, 1, {1: b"x" * 5_000}, changes=10)
    second = entry_of(job, 2, {1: b"x" * 5_000}, changes=20)
    assert job.written == 1
    assert first.body == second.body
    assert first.head != second.head  # how far time is, is told all the same
    assert job.bodies[ACTOR].changes == 20  # the next look is at the count alone


def test_a_state_that_was_empty_meanwhile_is_written_again() -> None:
    """For the file of the last snapshot that had it may have gone with that one."""
    job = PretendedJob()
    first = entry_of(job, 1, {1: b"x" * 5_000}, changes=10)
    assert entry_of(job, 2, None, changes=20).body is None
    assert first.body != entry_of(job, 6, {1: b"x" * 5_000}, changes=30).body


@pytest.mark.parametrize("other", [{1: b"y" * 5_000}, {1.0: b"x" * 5_000}, {True: b"x" * 5_000}])
def test_a_state_that_looks_alike_and_is_not_the_same_is_written(other: Any) -> None:
    job = PretendedJob()
    first = entry_of(job, 1, {1: b"x" * 5_000}, changes=10)
    second = entry_of(job, 2, other, changes=20)
    assert job.written == 2
    assert first.body != second.body


def test_what_another_process_wrote_is_written_again_once_it_may_have_changed() -> None:
    job = PretendedJob()
    job.bodies[ACTOR] = WrittenBody(0, EARLIER)
    assert entry_of(job, 2, {1: b"x" * 5_000}, changes=0).body == EARLIER
    assert entry_of(job, 3, {1: b"x" * 5_000}, changes=1).body != EARLIER


def test_a_state_in_a_file_that_is_kept_for_little_is_written_again() -> None:
    job = PretendedJob()
    entry_of(job, 1, {1: b"x" * 5_000}, changes=10)
    job.rewrite = frozenset({PLACE})
    entry_of(job, 2, {1: b"x" * 5_000}, changes=20)
    assert job.written == 2


def test_a_job_that_is_back_soon_shows_results(tmp_path: Any) -> None:
    snapshots = JobSnapshots(str(tmp_path), SnapshotStore(str(tmp_path), "job"), every_s=10.0)
    snapshots.plan_first(100.0, is_back=False)
    assert snapshots.due_s == 110.0
    snapshots.plan_first(100.0, is_back=True)
    assert snapshots.due_s == 100.0 + FIRST_AFTER_S
    snapshots.every_s = 0.05
    snapshots.plan_first(100.0, is_back=True)
    assert snapshots.due_s == 100.05
