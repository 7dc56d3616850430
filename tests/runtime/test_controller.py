"""The controller alone: what it orders, what it survives, and whom it takes for lost. The test plays the workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import dirigo as dg
from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller import worker_lines as lines
from dirigo.runtime.controller.controller import TICK_S
from dirigo.runtime.errors import JobFailed
from runtime.clusters import PATIENCE_S, counting, until
from runtime.pretenders import PretendedCluster, Pretender

Start = Callable[[int], PretendedCluster]


@pytest.fixture
def start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda workers: stack.enter_context(PretendedCluster(tmp_path / "logs", workers))
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


def submitted(cluster: PretendedCluster, *workers: Pretender, name: str = "job") -> Job:
    """A job that runs, as far as the controller knows."""
    flow = dg.Dataflow(name)
    flow.source(dg.from_iterable(lambda: [{"n": 1}])).sink(dg.to_memory())
    handle = cluster.client.submit(flow)
    for worker in workers:
        install = worker.take(control.Install)
        assert install.job == handle.id
        worker.say(control.Installed(install.job))
    for worker in workers:
        assert worker.take(control.Start).helpers == tuple(each.worker for each in workers)
    return handle


# --- more and fewer --------------------------------------------------------------------------------------------------------


def test_no_more_workers_are_taken_on_than_there_is_room_for(start: Start) -> None:
    cluster = start(2)
    cluster.pool.workers_most = 3  # as on a Spark with four slots: workers never end, and queries beside them would starve
    cluster.client.resize(3)
    cluster.until_states(w0="joining", w1="joining", w2="joining")
    with pytest.raises(
        dg.ControlError, match=r"room for 3 workers at most, and a query beside them: start .* with 4, or on a"
    ):
        cluster.client.resize(4)
    cluster.until_states(w0="joining", w1="joining", w2="joining")


def test_slots_that_never_had_a_worker_can_be_resized_away(start: Start) -> None:
    cluster = start(3)
    cluster.until_states(w0="joining", w1="joining", w2="joining")
    cluster.client.resize(1)
    cluster.until_states(w0="joining")
    assert cluster.pool.stopped == [1, 2]
    worker = cluster.join(0)
    handle = submitted(cluster, worker)
    cluster.client.resize(4)
    cluster.until_states(w0="ready", w1="joining", w2="joining", w3="joining")
    cluster.client.resize(1)
    cluster.until_states(w0="ready")
    assert handle.status().state == "running"
    handle.cancel()
    worker.take(control.Remove)
    worker.say(control.Removed(handle.id, control.JobFigures()))
    assert handle.wait(PATIENCE_S).state == "cancelled"
    submitted(cluster, worker, name="another")


def test_a_worker_that_comes_when_its_slot_is_gone_is_told_to_go(start: Start) -> None:
    cluster = start(2)
    cluster.until_states(w0="joining", w1="joining")
    cluster.client.resize(1)
    cluster.until_states(w0="joining")
    late = cluster.join(1)
    assert late.has(control.Stop)
    assert not late.has(control.Welcome)


# --- newcomers -------------------------------------------------------------------------------------------------------------


def test_a_newcomer_gets_running_jobs_and_helps_with_them_until_it_is_to_leave(start: Start) -> None:
    cluster = start(1)
    first = cluster.join(0)
    handle = submitted(cluster, first)
    cluster.client.resize(2)
    cluster.until_states(w0="ready", w1="joining")
    newcomer = cluster.join(1)
    assert newcomer.take(control.Install).workers == (0,)
    assert not newcomer.has(control.Start)
    newcomer.say(control.Installed(handle.id))
    assert newcomer.take(control.Start).helpers == (0, 1)
    added = first.take(control.Helpers)
    assert (added.job, added.helpers) == (handle.id, (0, 1))
    cluster.client.resize(1)
    removed = first.take(control.Helpers)
    assert (removed.job, removed.helpers) == (handle.id, (0,))
    # Worker 0 may still have sent it something; then it has, and then that is over.
    for version, lent_to in [(added.version, ()), (removed.version, (1,)), (removed.version, ())]:
        cluster.until_states(w0="ready", w1="leaving")
        assert not newcomer.has(control.Stop)
        first.jobs[handle.id] = control.JobFigures(helpers_version=version, lent_to=lent_to)
        first.beat()
        time.sleep(3 * TICK_S)  # it is heard, and looked around
    newcomer.take(control.Stop)
    cluster.until_states(w0="ready")
    assert handle.status().state == "running"


def test_a_newcomer_that_cannot_install_a_job_does_not_help_and_the_job_goes_on(start: Start) -> None:
    cluster = start(1)
    first = cluster.join(0)
    handle = submitted(cluster, first)
    cluster.client.resize(2)
    cluster.until_states(w0="ready", w1="joining")
    newcomer = cluster.join(1)
    newcomer.take(control.Install)
    newcomer.say(control.Installed(handle.id, "ModuleNotFoundError: No module named 'mine'"))
    other = cluster.client.submit(counting("other", rows=10)[0])
    newcomer.take(control.Install, other.id)  # so it has been heard
    assert handle.status().state == "running"
    assert not newcomer.has(control.Start)
    assert not first.has(control.Helpers)


def test_a_job_that_has_ended_is_removed_from_a_newcomer_that_installs_it_too_late(start: Start) -> None:
    cluster = start(1)
    first = cluster.join(0)
    handle = submitted(cluster, first)
    cluster.client.resize(2)
    cluster.until_states(w0="ready", w1="joining")
    newcomer = cluster.join(1)
    newcomer.take(control.Install)
    handle.cancel()
    first.take(control.Remove)
    first.say(control.Removed(handle.id, control.JobFigures(rows_in=7)))
    assert handle.wait(PATIENCE_S).metrics.rows_in == 7
    newcomer.say(control.Installed(handle.id))
    assert newcomer.take(control.Remove).job == handle.id
    newcomer.say(control.Removed(handle.id, control.JobFigures()))
    submitted(cluster, first, newcomer, name="another")
    assert handle.status().state == "cancelled"
    assert handle.metrics().rows_in == 7


# --- ends ------------------------------------------------------------------------------------------------------------------


def test_a_job_that_ends_by_itself_while_it_is_drained_is_drained(start: Start) -> None:
    cluster = start(1)
    worker = cluster.join(0)
    handle = submitted(cluster, worker)
    cluster.controller._note_logs_ended(handle.id, None)
    worker.say(control.ActorEnded(handle.id, f"{handle.id}/the sink/0"))
    worker.take(control.Remove)
    handle.drain()  # the job has finished, but for the last figures of its worker
    worker.say(control.Removed(handle.id, control.JobFigures()))
    until(lambda: handle.status().state == "finished", "the job is settled")
    handle.drain()


# --- workers that are lost -------------------------------------------------------------------------------------------------


def test_a_worker_that_orders_do_not_reach_is_lost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "GONE_AFTER_S", 0.3)
    cluster = start(1)
    worker = cluster.join(0)
    handle = submitted(cluster, worker)
    worker.vanish()
    with pytest.raises(JobFailed, match=r"worker 0 could not be reached, .*; submit the job again"):
        handle.wait(PATIENCE_S)
    cluster.until_states(w0="lost")
    assert cluster.pool.interrupted == [0]  # should the process still be there, it is ended
    submitted(cluster, cluster.join(0), name="another")
