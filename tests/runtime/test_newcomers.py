"""Workers that join while a job runs: messages are forwarded to them, results stay right, and their loss is noticed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
import zmq

import dirigo as dg
from dirigo.runtime import control
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller import worker_lines as lines
from dirigo.runtime.errors import JobFailed
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, numbers, until
from runtime.pretenders import Pretender

Start = Callable[..., LocalCluster]
BLOCK = 100


def slowly(first: int, count: int) -> pa.RecordBatch:
    """Small messages, and not so many that adding them up afterwards takes long."""
    time.sleep(0.001)
    return numbers(first, count)


def adding_up(name: str) -> tuple[dg.Dataflow, Any]:
    """Numbers without end from one source, so that it is known which of them were read."""
    flow = dg.Dataflow(name, combines_early=False)
    out = dg.to_memory()
    source = flow.source(dg.from_generator(slowly, SCHEMA, block=BLOCK, time="ts", name="numbers"))
    source.key_by("key").window(dg.Tumbling("1s")).aggregate(count=dg.count(), total=dg.sum("n")).sink(out)
    return flow, out


def expected(rows: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Second and key -> count and total."""
    counts: Counter[tuple[int, int]] = Counter()
    totals: Counter[tuple[int, int]] = Counter()
    for n in range(rows):
        counts[n // 1_000, n % 13] += 1
        totals[n // 1_000, n % 13] += n
    return {window: (counts[window], totals[window]) for window in counts}


def found(out: Any) -> dict[tuple[int, int], tuple[int, int]]:
    windows = {(row["window_start"], row["key"]): (row["count"], row["total"]) for row in out.rows}
    assert len(windows) == len(out.rows), "each window has come once"
    return {(start // 1_000, key): value for (start, key), value in windows.items()}


def joined(start_cluster: Start, strategy: str) -> tuple[LocalCluster, Job, Any]:
    """A job whose actors are all at worker 0, and a worker 1 that has come later."""
    cluster = start_cluster(1)
    flow, out = adding_up("helped")
    handle = cluster.submit(flow, strategy=strategy)
    until(lambda: out.rows, "the first rows")
    assert handle.metrics().forwarded == 0
    cluster.client.resize(2)
    cluster.until_ready()
    return cluster, handle, out


def until_helped(cluster: LocalCluster, handle: Job) -> None:
    until(lambda: cluster.worker(1).messages > 20, "the newcomer helps")
    assert handle.status().workers == (0,)


@pytest.mark.parametrize("strategy", ["chaos", "reject_send_random"])
def test_results_are_right_when_a_worker_joins_and_messages_are_forwarded_to_it(start_cluster: Start, strategy: str) -> None:
    cluster, handle, out = joined(start_cluster, strategy)
    until_helped(cluster, handle)
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert status.metrics.forwarded > 0
    assert found(out) == expected(status.metrics.rows_in)


def test_results_are_right_when_a_worker_is_to_leave_as_soon_as_it_has_joined(start_cluster: Start) -> None:
    """It may have got messages that nobody knows of: it stays until it is sure that it has none."""
    cluster, handle, out = joined(start_cluster, "chaos")
    cluster.client.resize(1)
    until(lambda: [worker.state for worker in cluster.workers()] != ["ready", "ready"], "it leaves, or is about to")
    before = len(out.rows)
    until(lambda: len(out.rows) > before, "the job goes on")
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert found(out) == expected(status.metrics.rows_in)
    until(lambda: len(cluster.workers()) == 1, "at last it is gone")


def test_a_job_fails_when_a_worker_is_killed_that_only_helps_with_it(start_cluster: Start) -> None:
    cluster, handle, _ = joined(start_cluster, "reject_send_random")
    until_helped(cluster, handle)
    cluster.kill(1)
    with pytest.raises(JobFailed, match=r"worker 1 .* with it went a part of the states of .*; submit the job again\.$"):
        handle.wait(PATIENCE_S)
    cluster.until_ready()
    flow, out = adding_up("afterwards")
    again = cluster.submit(flow)
    until(lambda: out.rows, "another job works")
    again.cancel()


@contextmanager
def pretended_helper(cluster: LocalCluster, handle: Job, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretender]:
    """A second worker that the test plays: it takes messages, and never says what it has done. In the end it is lost."""
    monkeypatch.setattr(lines, "GONE_AFTER_S", 0.3)
    monkeypatch.setattr(cluster.pool, "start", lambda _: None)
    monkeypatch.setattr(cluster.pool, "interrupt", lambda _: None)
    until(lambda: handle.status().state == "running", "the job runs without it")  # or it would be a helper from the start
    cluster.client.resize(2)
    until(lambda: len(cluster.workers()) == 2, "there is a place for it")
    with zmq.Context() as context:
        helper = Pretender(context, cluster.controller, 1)
        try:
            helper.take(control.Install)
            helper.say(control.Installed(handle.id))
            helper.take(control.Helpers)
            yield helper
        finally:
            helper.vanish()


def test_a_job_fails_when_a_helper_is_lost_that_never_said_what_it_has_done(
    start_cluster: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(1)
    handle = cluster.submit(adding_up("lent")[0], strategy="reject_send_random")
    with pretended_helper(cluster, handle, monkeypatch):
        until(lambda: handle.metrics().forwarded, "messages are sent to it")
    with pytest.raises(JobFailed) as caught:
        handle.wait(PATIENCE_S)
    assert str(caught.value) == (
        "job 'lent' failed: worker 1 is gone, and with it went a part of the states of the job; submit the job again."
    )


def test_a_job_goes_on_when_a_helper_is_lost_that_has_nothing_of_it(
    start_cluster: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_cluster(1)
    flow, out = adding_up("kept")
    handle = cluster.submit(flow, strategy="fifo")
    with pretended_helper(cluster, handle, monkeypatch):
        until(lambda: out.rows, "the first rows")
    until(lambda: cluster.worker(1).state == "lost", "its loss is noticed")
    before = len(out.rows)
    until(lambda: len(out.rows) > before, "the job goes on")
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert found(out) == expected(status.metrics.rows_in)
