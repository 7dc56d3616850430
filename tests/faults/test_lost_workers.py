"""A worker is lost or missing: only jobs that had something there fail, and new jobs run on those that are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.kernel.interface.message import Note
from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller import membership, placement
from dirigo.runtime.errors import JobFailed
from dirigo.runtime.generations import run_of
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, numbers, until
from runtime.one_worker import OneWorker
from runtime.pretenders import PretendedCluster

Start = Callable[..., LocalCluster]
Pretend = Callable[[int], PretendedCluster]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda workers=2: stack.enter_context(LocalCluster(tmp_path / "logs", workers))


@pytest.fixture
def pretend(tmp_path: Path) -> Iterator[Pretend]:
    with ExitStack() as stack:
        yield lambda workers: stack.enter_context(PretendedCluster(tmp_path / "logs", workers))


def slowly(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.005)
    return numbers(first, count)


def narrow(name: str, rows: int | None = None) -> tuple[dg.Dataflow, Any]:
    """A flow of few actors: it does not need all workers."""
    flow = dg.Dataflow(name)
    out = dg.to_memory()
    source = flow.source(dg.from_generator(slowly, SCHEMA, rows, block=50, time="ts", name="numbers"), splits=1)
    source.map(lambda row: {"n": row.n}, schema={"n": "int64"}).sink(out)
    return flow, out


def helper_of(handle: Job) -> int:
    """The one of three workers at which a job has no actor."""
    (helper,) = {0, 1, 2} - set(handle.status().workers)
    return helper


def submitted_apart(cluster: LocalCluster, workers: int) -> tuple[list[tuple[Job, Any]], list[tuple[Job, Any]]]:
    """Jobs that run and have an actor at worker 0, and jobs that have none there."""
    with_it: list[tuple[Job, Any]] = []
    without_it: list[tuple[Job, Any]] = []
    for number in range(workers):
        flow, out = narrow(f"job{number}")
        handle = cluster.submit(flow, strategy="fifo")
        until(lambda out=out: out.rows, "the first rows")  # type: ignore[misc]
        (with_it if 0 in handle.status().workers else without_it).append((handle, out))
    assert with_it
    assert without_it
    return with_it, without_it


def test_only_jobs_fail_that_had_something_at_a_worker_that_died(start_cluster: Start) -> None:
    cluster = start_cluster(3)
    with_it, without_it = submitted_apart(cluster, 3)
    cluster.kill(0)
    for handle, _ in with_it:
        with pytest.raises(JobFailed, match=r"worker 0 .*; submit the job again"):
            handle.wait(PATIENCE_S)
    cluster.until_ready()
    for handle, out in without_it:
        before = len(out.rows)
        until(lambda out=out, before=before: len(out.rows) > before, "the job goes on")  # type: ignore[misc]
        handle.drain()
        rows_in = handle.wait(PATIENCE_S).metrics.rows_in
        assert sorted(row["n"] for row in out.rows) == list(range(rows_in))


def test_the_worker_that_comes_back_helps_with_the_jobs_that_went_on(start_cluster: Start) -> None:
    cluster = start_cluster(3)
    flow, out = narrow("helped")
    handle = cluster.submit(flow, strategy="fifo")
    until(lambda: out.rows, "the first rows")
    helper = helper_of(handle)
    cluster.kill(helper)
    until(lambda: cluster.worker(helper).incarnation > 3, "it comes back")
    cluster.until_ready()
    until(lambda: helper in cluster.controller.jobs[handle.id].installed, "it knows the job")
    handle.drain()
    assert handle.wait(PATIENCE_S).state == "finished"


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.2])
def test_a_job_whose_messages_were_under_way_to_a_worker_that_died_ends(start_cluster: Start, pause_s: float) -> None:
    """Whether a message was sent there in the last moment or not, the job fails or its rows are right: it never hangs."""
    cluster = start_cluster(3)
    flow, out = narrow("spread", rows=4_000)
    handle = cluster.submit(flow, strategy="chaos")
    until(lambda: handle.metrics().forwarded or handle.status().ended_s, "messages are sent to the other worker")
    time.sleep(pause_s)
    helper = helper_of(handle)
    cluster.kill(helper)
    try:
        handle.wait(PATIENCE_S)
    except JobFailed as error:
        assert f"worker {helper} " in str(error)  # noqa: PT017 - both ends are right
    else:
        assert sorted(row["n"] for row in out.rows) == list(range(4_000))
    cluster.until_ready()


@pytest.mark.parametrize(("left", "lives"), [((), False), ((1,), True)])
def test_a_job_that_sent_something_to_a_worker_goes_on_only_if_that_worker_was_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: tuple[int, ...], lives: bool
) -> None:
    """What becomes of the last messages there is known only of a worker that was asked whether it has any."""
    other = control.Member(1, 2, "tcp://127.0.0.1:1", "tcp://127.0.0.1:1")
    with OneWorker(tmp_path, monkeypatch) as alone:
        job = alone.start(counting("sends", rows=10, sink=dg.to_nothing())[0])
        silent = alone.start(counting("silent", rows=10, sink=dg.to_nothing())[0])
        alone.core.set_members((other,))
        alone.core.worker.outgoing.append(Note("sends/x/0", 1, "sends/y/0", 0, "note"))
        alone.core.flush()
        assert alone.core.users_of(1) == (job.id,)
        alone.core.set_members((), left)
        assert (job.id in alone.core.jobs) == lives
        assert silent.id in alone.core.jobs
        assert alone.core.users_of(1) == ()
        alone.core.reports.clear()


# --- before a job has begun ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.5])
def test_a_job_that_is_submitted_while_a_worker_dies_is_placed_anew(start_cluster: Start, pause_s: float) -> None:
    cluster = start_cluster(2)
    cluster.kill(0)
    time.sleep(pause_s)
    flow, out = counting("unhurt")
    handle = cluster.submit(flow)
    assert handle.wait(PATIENCE_S).state == "finished"
    assert sum(row["count"] for row in out.rows) == 20_000


def test_a_job_that_has_not_begun_is_taken_back_and_placed_on_those_who_are_there(pretend: Pretend) -> None:
    cluster = pretend(2)
    first, second = cluster.join(0), cluster.join(1)
    handle = cluster.client.submit(flow_named("patient"))
    first.take(control.Install, handle.id)
    second.take(control.Install, handle.id)
    first.say(control.Installed(handle.id))
    another = cluster.join(1)  # in the place of the second one
    first.take(control.Remove, handle.id)
    for worker in (first, another):
        worker.take(control.Install, f"{handle.id}.1")
    another.say(control.Installed(f"{handle.id}.1"))
    first.say(control.Installed(handle.id))  # of the generation that is over: it says nothing about this one
    first.say(control.Installed(handle.id, "ModuleNotFoundError: No module named 'mine'"))
    first.say(control.Removed(handle.id, control.JobFigures(rows_in=7)))
    time.sleep(0.3)
    status = handle.status()
    assert (status.state, status.started_s, status.metrics.rows_in) == ("starting", None, 0)
    first.say(control.Installed(f"{handle.id}.1"))
    assert first.take(control.Start, f"{handle.id}.1").helpers == (0, 1)
    assert another.take(control.Start, f"{handle.id}.1").helpers == (0, 1)


def test_a_job_that_waits_again_begins_on_those_who_are_there(pretend: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "PLACE_AFTER_S", 1.0)
    monkeypatch.setattr(membership, "LOST_AFTER_S", 1.5)
    cluster = pretend(2)
    first, second = cluster.join(0), cluster.join(1)
    handle = cluster.client.submit(flow_named("patient"))
    second.take(control.Install, handle.id)
    second.vanish()  # and nobody takes its place
    first.take(control.Install, handle.id)
    assert first.take(control.Install, f"{handle.id}.1").workers == (0,)
    first.say(control.Installed(f"{handle.id}.1"))
    assert first.take(control.Start, f"{handle.id}.1").helpers == (0,)


def test_a_job_that_cannot_begin_because_a_worker_is_lost_each_time_fails_and_says_so(pretend: Pretend) -> None:
    cluster = pretend(1)
    worker = cluster.join(0)
    handle = cluster.client.submit(flow_named("hopeless"))
    for generation in range(placement.LOSSES_MOST):
        worker.take(control.Install, run_of(handle.id, generation))  # only a worker that it was placed on is a loss
        worker = cluster.join(0)
    with pytest.raises(JobFailed, match=r"worker 0 was lost 3 times before job 'hopeless' had begun, .*; see that loading "):
        handle.wait(PATIENCE_S)
    assert handle.status().started_s is None


def test_a_job_that_ends_the_process_when_it_is_loaded_fails(start_cluster: Start) -> None:
    class Fatal:
        def __reduce__(self) -> Any:
            return (os._exit, (3,))

    fatal: Any = Fatal()
    cluster = start_cluster(2)
    flow, _ = narrow("fatal", rows=10)
    flow.source(dg.from_iterable([{"n": 1}])).map(lambda row: {"n": row.n or fatal}, schema={"n": "int64"}).sink(
        dg.to_nothing()
    )
    handle = cluster.submit(flow)
    with pytest.raises(JobFailed, match=r"worker . was lost 3 times before job 'fatal' had begun"):
        handle.wait(PATIENCE_S)
    cluster.until_ready()


# --- workers that do not come ----------------------------------------------------------------------------------------------


def flow_named(name: str) -> dg.Dataflow:
    return counting(name, rows=10)[0]


def test_a_job_runs_on_the_workers_that_are_ready_and_a_late_one_helps(
    pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "PLACE_AFTER_S", 1.0)
    cluster = pretend(3)
    first, second = cluster.join(0), cluster.join(1)
    handle = cluster.client.submit(flow_named("early"))
    status = handle.status()
    assert status.state == "starting"
    assert status.note == "it waits for worker 2, which has not joined"
    for worker in (first, second):
        assert set(worker.take(control.Install, handle.id).workers) <= {0, 1}
        worker.say(control.Installed(handle.id))
    assert first.take(control.Start, handle.id).helpers == (0, 1)
    assert handle.status().note == "it runs without worker 2, which has not joined"
    late = cluster.join(2)
    late.take(control.Install, handle.id)
    late.say(control.Installed(handle.id))
    assert late.take(control.Start, handle.id).helpers == (0, 1, 2)
    assert first.take(control.Helpers, handle.id).helpers == (0, 1, 2)
    until(lambda: handle.status().note is None, "nobody is missing")


def test_a_job_gets_all_workers_that_come_within_a_moment(pretend: Pretend) -> None:
    cluster = pretend(2)
    first = cluster.join(0)
    handle = cluster.client.submit(flow_named("patient"))
    second = cluster.join(1)
    for worker in (first, second):
        worker.take(control.Install, handle.id)
        worker.say(control.Installed(handle.id))
    assert second.take(control.Start, handle.id).helpers == (0, 1)


def test_a_job_that_no_worker_comes_for_fails_with_a_sentence(pretend: Pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "NO_WORKER_S", 0.5)
    cluster = pretend(1)
    monkeypatch.setattr(cluster.pool, "problem", lambda _: "Spark has no slot for it.")
    handle = cluster.client.submit(flow_named("lonely"))
    with pytest.raises(JobFailed, match=r"no worker was ready for 0\.5 s: Spark has no slot for it\.$"):
        handle.wait(PATIENCE_S)
