"""Commits of micro-batches: a failure in between releases nothing twice, and does not stand in the way later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime import control
from dirigo.runtime.client.client import Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.pusher import Pusher
from dirigo.runtime.transport.keys import WRITER
from runtime.clusters import PATIENCE_S, LocalCluster, until
from runtime.pretenders import PretendedCluster


def pushed_flow(splits: int) -> tuple[dg.Dataflow, Any]:
    flow = dg.Dataflow("pushed")
    out = dg.to_memory()
    flow.source(PushedSource({"n": "int64"}), splits=splits).sink(out)
    return flow, out


class Query:
    """What commits micro-batches to a job: to all of its splits, one attempt each."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self._job = job
        self.splits = client.source_places(job).splits

    def refs(self, *attempts: str) -> list[control.AttemptRef]:
        """Attempts at the first splits."""
        places = self.splits[: len(attempts)]
        return [
            control.AttemptRef(place.worker, place.incarnation, place.split, attempt, 1)
            for place, attempt in zip(places, attempts, strict=True)
        ]

    def commit(self, batch: int, attempts: list[control.AttemptRef]) -> None:
        self._client.release(self._job, "pushed", "query", batch, attempts, PATIENCE_S)

    def is_committing(self, batch: int) -> bool:
        return self._client.is_committing(self._job, "pushed", "query", batch)


# --- what the controller makes of the answers of two workers ---------------------------------------------------------------


class Play:
    """A query on its own thread, and two workers whose answers to each commit the test chooses."""

    def __init__(self, cluster: PretendedCluster, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self.workers = [cluster.join(number) for number in range(2)]
        self.handle = cluster.client.submit(pushed_flow(2)[0])
        for number, worker in enumerate(self.workers):
            worker.take(control.Install)
            worker.say(control.Installed(self.handle.id, pushed=(("pushed", number),)))
        for worker in self.workers:
            worker.take(control.Start)
        self.query = Query(cluster.client, self.handle.id)

    def commit(self, batch: int, *attempts: str) -> Future[None]:
        return self._thread.submit(self.query.commit, batch, self.query.refs(*attempts))

    def answer(self, *outcomes: str) -> list[str]:
        """What each of the workers says; returns the attempts that they were to release."""
        orders = [worker.take(control.Release) for worker in self.workers]
        for worker, order, outcome in zip(self.workers, orders, outcomes, strict=True):
            worker.say(control.Released(order.request, outcome))
        return [attempt for order in orders for _, attempt in order.attempts]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    with PretendedCluster(tmp_path / "logs", 2) as cluster, ThreadPoolExecutor(1) as thread:
        yield Play(cluster, thread)


def test_a_commit_that_failed_everywhere_is_forgotten_and_may_come_with_other_attempts(play: Play) -> None:
    failing = play.commit(5, "a", "b")
    assert play.answer("there is no attempt a", "there is no attempt b") == ["a", "b"]
    with pytest.raises(ControlError, match=r"there is no attempt [ab]"):
        failing.result(PATIENCE_S)
    assert not play.query.is_committing(5)
    again = play.commit(5, "c", "d")
    assert play.answer("released", "released") == ["c", "d"]
    again.result(PATIENCE_S)
    assert play.query.is_committing(5)  # what was released must not be dropped
    assert not play.query.is_committing(4)


@pytest.mark.parametrize("begun", ["released", "known"])
def test_a_commit_that_has_begun_is_gone_on_with_whatever_attempts_are_offered(play: Play, begun: str) -> None:
    failing = play.commit(5, "a", "b")
    play.answer(begun, "the disk is full")
    with pytest.raises(ControlError, match="the disk is full"):
        failing.result(PATIENCE_S)
    assert play.query.is_committing(5)
    again = play.commit(5, "c", "d")
    assert play.answer("known", "released") == ["a", "b"]
    again.result(PATIENCE_S)
    play.commit(5, "e", "f").result(PATIENCE_S)  # it is done: nobody is asked
    assert not any(worker.has(control.Release) for worker in play.workers)


def test_a_commit_that_finds_no_room_at_one_worker_is_tried_again_with_the_same_attempts(play: Play) -> None:
    waiting = play.commit(5, "a", "b")
    assert play.answer("released", "full") == ["a", "b"]
    assert play.answer("known", "full") == ["a", "b"]
    assert play.answer("known", "released") == ["a", "b"]
    waiting.result(PATIENCE_S)


def test_a_later_micro_batch_comes_after_one_that_failed(play: Play) -> None:
    failing = play.commit(5, "a", "b")
    play.answer("no", "no")
    with pytest.raises(ControlError, match="no"):
        failing.result(PATIENCE_S)
    later = play.commit(6, "c", "d")
    assert play.answer("released", "released") == ["c", "d"]
    later.result(PATIENCE_S)
    play.commit(5, "a", "b").result(PATIENCE_S)  # which is over
    assert not any(worker.has(control.Release) for worker in play.workers)


# --- with rows -------------------------------------------------------------------------------------------------------------


def running(cluster: LocalCluster, flow: dg.Dataflow) -> Job:
    handle = cluster.submit(flow)
    until(lambda: handle.status().state == "running", "it runs")
    return handle


def staging(cluster: LocalCluster, handle: Job) -> Callable[[int, int], control.AttemptRef]:
    """Brings a number to a split, and tells the attempt."""
    places = cluster.client.source_places(handle.id)

    def stage(split: int, number: int) -> control.AttemptRef:
        with Pusher(places, places.splits[split], cluster.controller.access.lowered(WRITER).keys) as pusher:
            pusher.push(pa.record_batch({"n": pa.array([number], pa.int64())}))
            return pusher.finish()

    return stage


def test_of_a_commit_that_lacks_an_attempt_a_worker_releases_nothing(cluster: LocalCluster) -> None:
    flow, out = pushed_flow(4)
    handle = running(cluster, flow)
    query, stage = Query(cluster.client, handle.id), staging(cluster, handle)
    here, also_here = [place.split for place in query.splits if place.worker == query.splits[0].worker][:2]
    staged = stage(here, 1)
    missing = control.AttemptRef(staged.worker, staged.incarnation, also_here, "gone", 1)
    with pytest.raises(ControlError, match="The attempt gone is not staged here"):
        query.commit(0, [staged, missing])
    assert not query.is_committing(0)
    query.commit(0, [stage(split, 4 - split) for split in range(4)])  # the same rows, cut in another way
    query.commit(0, [stage(split, 99) for split in range(4)])  # once more, which changes nothing
    query.commit(1, [stage(also_here, 5)])
    handle.drain()
    handle.wait(PATIENCE_S)
    assert sorted(row["n"] for row in out.rows) == [1, 2, 3, 4, 5]
