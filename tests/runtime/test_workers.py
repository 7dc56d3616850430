"""What may happen to workers while jobs run: more or fewer of them, and user code that takes one away."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.runtime.control import WorkerStatus
from dirigo.runtime.errors import JobFailed
from runtime.clusters import (
    PATIENCE_S,
    SCHEMA,
    LocalCluster,
    counting,
    is_alive,
    mapped,
    numbers,
    sorted_rows,
    until,
    wait_for_file,
)

Start = Callable[..., LocalCluster]


def assert_works(cluster: LocalCluster, name: str = "check") -> None:
    flow, out = counting(name)
    cluster.run(flow)
    assert sorted_rows(out.rows) == sorted_rows(dg.testing.run(flow).rows())


# --- more and fewer --------------------------------------------------------------------------------------------------------


def test_a_pool_grows_and_shrinks_while_jobs_run(start_cluster: Start) -> None:
    cluster = start_cluster(1)
    flow, out = counting("long", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    cluster.client.resize(3)
    cluster.until_ready()
    assert handle.status().workers == (0,)
    other = cluster.submit(counting("wide")[0])
    assert sorted(other.wait(PATIENCE_S).workers) == [0, 1, 2]
    pids = {worker.pid for worker in cluster.workers()[1:]}
    cluster.client.resize(1)
    until(lambda: len(cluster.workers()) == 1, "those leave that no job needs")
    until(lambda: not any(map(is_alive, pids)), "their processes end")
    assert handle.status().state == "running"
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in
    assert_works(cluster)


def test_a_worker_that_a_job_needs_stays_until_the_job_is_over(start_cluster: Start) -> None:
    cluster = start_cluster(2)
    flow, out = counting("needing", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    cluster.client.resize(1)
    until(lambda: cluster.worker(1).state == "leaving", "it is to leave")
    time.sleep(0.5)
    assert cluster.worker(1).state == "leaving"
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in
    until(lambda: len(cluster.workers()) == 1, "it leaves")
    assert_works(cluster)


def test_sizes_that_change_all_the_time(start_cluster: Start) -> None:
    cluster = start_cluster(1)
    for workers in (2, 1, 2):
        cluster.client.resize(workers)
        handle = cluster.submit(counting("restless")[0])
        assert handle.wait(PATIENCE_S).state == "finished"
    cluster.until_ready()
    assert_works(cluster)


# --- workers that are lost -------------------------------------------------------------------------------------------------


def test_a_killed_worker_fails_its_jobs_and_comes_back(start_cluster: Start) -> None:
    cluster = start_cluster(2)
    flow, out = counting("doomed", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    lost = cluster.kill(1)
    with pytest.raises(JobFailed, match=r"worker 1 .*; submit the job again") as caught:
        handle.wait(PATIENCE_S)
    assert "\n" not in str(caught.value)
    until(lambda: cluster.worker(1).state == "ready", "it comes back")
    back = cluster.worker(1)
    assert back.incarnation > lost.incarnation
    assert back.pid != lost.pid
    assert_works(cluster)


def test_both_workers_are_killed_at_once(start_cluster: Start) -> None:
    cluster = start_cluster(2)
    flow, out = counting("doomed", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    before = {worker.incarnation for worker in cluster.workers()}
    cluster.kill(0)
    cluster.kill(1)
    with pytest.raises(JobFailed):
        handle.wait(PATIENCE_S)
    until(lambda: not {worker.incarnation for worker in cluster.workers()} & before, "both are lost")
    cluster.until_ready()
    assert_works(cluster)


def test_a_worker_is_killed_while_a_job_is_being_installed(start_cluster: Start, tmp_path: Path) -> None:
    cluster = start_cluster(2)
    go_on = str(tmp_path / "go on")

    class Slow:
        def __reduce__(self) -> Any:
            return (wait_for_file, (go_on,))

    slow: Any = Slow()
    flow, out = mapped(lambda row: {"n": row.n if slow is None else -1}, "slow")
    handle = cluster.submit(flow)
    time.sleep(0.3)
    assert handle.status().state == "starting"
    lost = cluster.kill(0)
    until(lambda: cluster.worker(0).incarnation > lost.incarnation, "the worker comes back")
    time.sleep(0.3)
    assert handle.status().state == "starting"  # it had not begun, and is placed anew
    Path(go_on).touch()
    handle.wait(PATIENCE_S)
    assert sorted(row["n"] for row in out.rows) == list(range(1_000))
    assert_works(cluster)


def test_a_worker_whose_code_ends_the_process(start_cluster: Start) -> None:
    cluster = start_cluster(2)
    handle = cluster.submit(mapped(lambda row: os._exit(row.n + 3), "leaving")[0])
    with pytest.raises(JobFailed, match=r"worker .*operator"):
        handle.wait(PATIENCE_S)
    assert_works(cluster)


# --- code that does not return ---------------------------------------------------------------------------------------------


def endless(row: Any) -> Any:
    """What a user's mistake looks like."""
    while True:
        pass


def until_running(cluster: LocalCluster) -> WorkerStatus:
    """The worker that has been busy with one message for a while."""
    busy = until(lambda: [each for each in cluster.workers() if each.running_s > 0.3], "it is seen to be running")
    return busy[0]


def test_an_endless_function_keeps_its_worker_and_nobody_else(start_cluster: Start) -> None:
    cluster = start_cluster(2)
    before = [worker.incarnation for worker in cluster.workers()]
    handle = cluster.submit(mapped(endless, "endless", splits=1)[0])
    busy = until_running(cluster)
    assert busy.running is not None
    assert busy.running.startswith(handle.id)
    assert all(worker.state == "ready" for worker in cluster.workers())  # and the cluster answers
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"
    assert_works(cluster)
    assert [worker.incarnation for worker in cluster.workers()] == before  # the worker has survived


def test_an_endless_source_can_be_cancelled(start_cluster: Start) -> None:
    def never(first: int, count: int) -> Any:
        while True:
            pass

    cluster = start_cluster(2)
    before = [worker.incarnation for worker in cluster.workers()]
    flow = dg.Dataflow("never")
    flow.source(dg.from_generator(never, SCHEMA, 100, name="numbers")).sink(dg.to_memory())
    handle = cluster.submit(flow)
    until_running(cluster)
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"
    assert_works(cluster)
    assert [worker.incarnation for worker in cluster.workers()] == before


def test_an_endless_function_does_not_keep_the_cluster_from_ending(start_cluster: Start) -> None:
    cluster = start_cluster(1)
    cluster.submit(mapped(endless, "endless")[0])
    until_running(cluster)
    # The fixture ends the cluster, and looks whether a process is left.


def test_code_that_does_not_want_to_stop_costs_the_worker_but_not_the_cluster(start_cluster: Start) -> None:
    def stubborn(row: Any) -> Any:
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    cluster = start_cluster(2)
    handle = cluster.submit(mapped(stubborn, "stubborn", splits=1)[0])
    busy = until_running(cluster)
    handle.cancel()
    assert handle.wait(PATIENCE_S).state == "cancelled"
    until(lambda: cluster.worker(busy.id).incarnation > busy.incarnation, "the worker is started again")
    assert_works(cluster)


def test_jobs_beside_code_that_does_not_stop_are_told_whose_it_was_and_new_ones_wait(start_cluster: Start) -> None:
    def blocked(first: int, count: int) -> Any:
        if first:
            time.sleep(1000)
        return numbers(first, count)

    cluster = start_cluster(2)
    beside_flow, beside_out = counting("beside", rows=None)
    beside = cluster.submit(beside_flow)
    until(lambda: beside_out.rows, "the first rows")
    flow = dg.Dataflow("blocked")
    flow.source(dg.from_generator(blocked, SCHEMA, 1_000, block=10, name="reader"), splits=1).sink(dg.to_nothing())
    handle = cluster.submit(flow)
    until(lambda: handle.metrics().rows_in, "it has read something")
    time.sleep(0.3)
    before = {worker.id: worker.incarnation for worker in cluster.workers()}
    handle.cancel()
    late = cluster.submit(counting("late")[0])  # at once: the worker that is about to end is not one of its own
    assert handle.wait(PATIENCE_S).state == "cancelled"
    (stuck,) = until(lambda: [each for each in cluster.workers() if each.leftover], "the worker says what it waits for")
    assert stuck.leftover == f"{handle.id}/reader/0"
    note = f"it waits for worker {stuck.id}, where code of a job that is over has still to stop"
    until(lambda: late.status().note == note, "the job waits")
    told = rf"worker {stuck.id} was ended because operator 'reader' of job '{handle.id}', which was cancelled, did not stop "
    with pytest.raises(JobFailed, match=rf"{told}within 5 s, and with it .* of job 'beside'; submit the job again\.$"):
        beside.wait(PATIENCE_S)
    until(lambda: cluster.worker(stuck.id).incarnation > before[stuck.id], "the worker is started again")
    assert late.wait(PATIENCE_S).state == "finished"
    assert cluster.worker(1 - stuck.id).incarnation == before[1 - stuck.id]


def test_a_worker_that_is_suspended_goes_on_or_says_so(start_cluster: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRIGO_FROZEN_AFTER_S", "4")
    cluster = start_cluster(2)
    flow, out = counting("paused", rows=None)
    handle = cluster.submit(flow)
    until(lambda: out.rows, "the first rows")
    paused = cluster.worker(1)
    reason: str | None = None
    frozen = (
        "could not run its threads for more than 4 s, because code kept the interpreter lock or the process was suspended"
    )
    # It ends itself in any case; a busy machine may start it again only after it was taken for lost.
    how = rf"({frozen}, and was started again|gave no sign of life for too long)"
    told = rf"worker 1 {how}, and with it .*; submit the job again\.$"
    for pause_s, ends_within_s in ((1.0, 0.0), (5.0, 10.0)):
        os.kill(paused.pid, signal.SIGSTOP)
        time.sleep(pause_s)
        assert handle.status().state == "running"
        os.kill(paused.pid, signal.SIGCONT)
        try:
            handle.wait(ends_within_s)
        except TimeoutError:  # after a short pause, or if its threads ran again before the timer did
            rows = len(out.rows)
            until(lambda rows=rows: len(out.rows) > rows, "it goes on")  # type: ignore[misc]
            assert cluster.worker(1).incarnation == paused.incarnation
        except JobFailed as failure:
            reason = str(failure)
    if reason is None:
        handle.cancel()
    else:
        assert re.search(told, reason)
    cluster.until_ready()
    assert_works(cluster)


def test_a_function_that_keeps_the_interpreter_is_named(start_cluster: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRIGO_FROZEN_AFTER_S", "1.5")  # workers inherit it
    cluster = start_cluster(2)
    other_flow, other_out = counting("beside", rows=None)
    other = cluster.submit(other_flow)
    until(lambda: other_out.rows, "the first rows")

    def catastrophe(row: Any) -> Any:
        return {"n": len(re.findall(r"(a+)+$", "a" * 40 + "b"))}

    flow = dg.Dataflow("frozen")
    source = flow.source(dg.from_generator(numbers, SCHEMA, 10, block=10, name="numbers"))
    source.map(catastrophe, schema={"n": "int64"}).sink(dg.to_memory())
    handle = cluster.submit(flow)
    with pytest.raises(JobFailed, match="interpreter") as caught:
        handle.wait(PATIENCE_S)
    assert "'numbers'" in str(caught.value)  # the operator that the function was fused to
    with pytest.raises(JobFailed, match=r"'frozen'|frozen~"):  # whose fault it was
        other.wait(PATIENCE_S)
    cluster.until_ready()
    assert_works(cluster)
