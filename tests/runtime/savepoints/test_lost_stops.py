"""A job that is being stopped: a worker is lost meanwhile, nobody waits any longer, or somebody cancels it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller import snapshots as of_controller
from dirigo.runtime.snapshots import savepoint
from dirigo.runtime.snapshots.store import SnapshotStore
from runtime.clusters import SCHEMA, LocalCluster, until
from runtime.savepoints.flows_to_stop import keyed, slowly

ROWS = 12_000


@pytest.fixture
def copying(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Set when a savepoint is being copied, and: to be set for it to go on."""
    begins, goes_on = threading.Event(), threading.Event()
    copy_to = savepoint.copy_to

    def slowly_copied(*arguments: Any) -> Any:
        begins.set()
        assert goes_on.wait(60)
        return copy_to(*arguments)

    monkeypatch.setattr(of_controller, "copy_to", slowly_copied)
    yield begins, goes_on
    goes_on.set()


def submitted(cluster: LocalCluster, sink: Any, maker: Any = slowly, **options: Any) -> Job:
    flow = dg.Dataflow("lost")
    source = flow.source(dg.from_generator(maker, SCHEMA, ROWS, block=50, time="ts", name="numbers"), splits=2)
    source.deduplicate("n", name="once").sink(sink)
    return cluster.submit(flow, **options)


def refusal(do: Callable[[], object]) -> Callable[[], str]:
    """Have something done beside; the sentence with which it is refused."""
    told: list[str] = []

    def done() -> None:
        try:
            do()
        except DirigoError as error:
            told.append(str(error))
        else:
            told.append("")

    thread = threading.Thread(target=done)
    thread.start()

    def joined() -> str:
        thread.join(60)
        return told[0]

    return joined


def test_it_goes_on_after_the_loss_of_a_worker(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    sink = dg.to_memory()
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1) as cluster:
        job = submitted(cluster, sink)
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        told = refusal(lambda: job.stop(savepoint=tmp_path / "savepoint"))
        assert begins.wait(60)
        cluster.kill(1)
        until(lambda: job.status().recoveries and job.status().state == "running", "it runs again, whatever is being copied")
        goes_on.set()
        assert "lost a worker while it was being stopped" in told()
        assert job.wait(60).state == "finished"
        assert job.status().stopped_into is None
    assert sorted(row["n"] for row in sink.rows) == list(range(ROWS))


def test_it_goes_on_when_nobody_waits_any_longer(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    sink = dg.to_memory()
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1) as cluster:
        job = submitted(cluster, sink)
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        with pytest.raises(DirigoError, match=r"it is still being written to .*; the job goes on"):
            job.stop(savepoint=tmp_path / "savepoint", timeout_s=1)
        assert begins.is_set()
        goes_on.set()
        assert job.wait(60).state == "finished"
        assert job.status().stopped_into is None
        assert sorted(row["n"] for row in sink.rows) == list(range(ROWS))


def test_it_is_cancelled_meanwhile(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, dg.to_nothing())
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        copied = refusal(lambda: job.stop(savepoint=tmp_path / "one"))
        assert begins.wait(60)
        waiting = refusal(lambda: job.savepoint(tmp_path / "two"))
        until(lambda: len(cluster.controller.jobs[job.id].snapshots.savepoints) == 1, "both wait")  # type: ignore[union-attr]
        job.cancel()
        assert "was cancelled before the savepoint was complete" in waiting()
        goes_on.set()
        assert "is cancelled, and was not stopped; its savepoint is complete" in copied()
        assert job.wait(60).state == "cancelled"


def test_its_sources_do_not_end_meanwhile(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    first, second = dg.to_memory(), dg.to_memory()
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, first)
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        stopped = refusal(lambda: job.stop(savepoint=tmp_path / "savepoint"))
        assert begins.wait(60)
        with pytest.raises(DirigoError, match="is being stopped with a savepoint; wait until it has"):
            job.drain()
        goes_on.set()
        assert stopped() == ""
        assert submitted(cluster, second, keyed, savepoint=tmp_path / "savepoint").wait(60).state == "finished"
    assert sorted(row["n"] for row in [*first.rows, *second.rows]) == list(range(ROWS))


def test_a_job_that_is_drained_is_not_stopped(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, dg.to_nothing())
        cluster.controller.jobs[job.id].state = "draining"
        with pytest.raises(DirigoError, match="is being drained, so it ends by itself"):
            job.stop(savepoint=tmp_path / "savepoint")


def test_other_jobs_do_not_wait_for_a_copy(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=0.1) as cluster:
        job = submitted(cluster, dg.to_nothing())
        other = submitted(cluster, dg.to_nothing(), name="other")
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        told = refusal(lambda: job.savepoint(tmp_path / "savepoint"))
        assert begins.wait(60)
        for each in (job, other):
            before = each.status().snapshot
            until(lambda each=each, before=before: each.status().snapshot != before, "it takes snapshots")  # type: ignore[misc]
        copied = set(cluster.controller.jobs[job.id].snapshots.copied)  # type: ignore[union-attr]
        job.cancel()
        assert job.wait(60).state == "cancelled"
        goes_on.set()
        assert told() == ""  # it read a folder that stayed until then
        assert len(copied) == 1
        other.cancel()
        sink = dg.to_memory()
        assert submitted(cluster, sink, keyed, savepoint=tmp_path / "savepoint").wait(60).state == "finished"
        assert sink.rows


def test_another_savepoint_that_comes_too_late_does_not_undo_a_stop(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, dg.to_nothing())
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        told = refusal(lambda: job.stop(savepoint=tmp_path / "one"))
        assert begins.wait(60)
        with pytest.raises(DirigoError, match=r"not complete after 0.3 s"):
            job.savepoint(tmp_path / "two", timeout_s=0.3)
        goes_on.set()
        assert told() == ""
        assert job.status().stopped_into == str(tmp_path / "one")


def test_of_two_who_stop_a_job_one_may_give_up(tmp_path: Path, copying: Any) -> None:
    begins, goes_on = copying
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, dg.to_nothing())
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        hasty = refusal(lambda: job.stop(savepoint=tmp_path / "one", timeout_s=1))
        patient = refusal(lambda: job.stop(savepoint=tmp_path / "two"))
        assert begins.wait(60)
        assert "it is still being written" in hasty()
        goes_on.set()
        assert patient() == ""
        assert job.status().stopped_into == str(tmp_path / "two")


def test_a_stop_is_told_when_no_service_can_begin_the_job_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, began = threading.Event(), threading.Event()
    remove = SnapshotStore.remove

    def slowly_removed(store: SnapshotStore) -> None:
        began.set()
        assert goes_on.wait(60)
        remove(store)

    monkeypatch.setattr(SnapshotStore, "remove", slowly_removed)
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, dg.to_nothing())
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        is_told = threading.Event()

        def stop() -> None:
            job.stop(savepoint=tmp_path / "one", timeout_s=1)
            is_told.set()

        told = refusal(stop)
        assert began.wait(60)
        try:
            assert not is_told.wait(1.3)  # a service that died now would be followed by one that resumes the job
        finally:
            goes_on.set()
        assert told() == ""
        assert job.status().stopped_into == str(tmp_path / "one")


def test_the_end_of_a_service_does_not_wait_for_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begins, read = threading.Event(), SnapshotStore.read
    copied: list[bool] = []

    def slowly_read(store: SnapshotStore, ref: Any) -> memoryview:
        copied.append(cluster.controller.is_stopping)
        begins.set()
        until(lambda: cluster.controller.is_stopping, "the service is told to end")
        return read(store, ref)

    monkeypatch.setattr(SnapshotStore, "read", slowly_read)
    with LocalCluster(tmp_path / "logs", 1, tmp_path / "snapshots", every_s=1_000) as cluster:
        flow = dg.Dataflow("large")
        source = flow.source(dg.from_generator(slowly, SCHEMA, None, block=1_000, time="ts", name="numbers"))
        source.deduplicate("n", name="once").sink(dg.to_nothing())
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 20_000, "its states need files")
        told = refusal(lambda: job.savepoint(tmp_path / "one"))
        assert begins.wait(60)
    assert told()
    assert copied == [False]  # of several
    assert not list((tmp_path / "one").iterdir())
    assert not list((tmp_path / "snapshots").iterdir())  # so that no service resumes it


def test_two_savepoints_at_once_are_two_copies(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        job = submitted(cluster, dg.to_nothing())
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        outcomes = [refusal(lambda place=place: job.savepoint(tmp_path / place)) for place in ("one", "two")]  # type: ignore[misc]
        assert [each() for each in outcomes] == ["", ""]
        job.cancel()
        sink = dg.to_memory()
        for place in ("one", "two"):
            assert submitted(cluster, sink, keyed, savepoint=tmp_path / place).wait(60).state == "finished"
