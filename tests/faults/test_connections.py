"""Connections between processes of a cluster are cut with something under way: nothing is lost, and nothing done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.sources.pushed import PushedSource
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.ingest.pusher import PUSH_BYTES, Pusher
from faults.proxied import ProxiedCluster
from faults.proxy import KINDS, Connection
from runtime.clusters import PATIENCE_S, SCHEMA, counting, numbers, sorted_rows, until

ORDER_BYTES = 1_000  # the code of a job is larger, and pulses are smaller
UNDER_WAY_S = 0.6  # more than two beats: whatever a process has to say is on its way


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    with ProxiedCluster(tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: ProxiedCluster) -> Iterator[ProxiedCluster]:
    """Two workers, none of which may be lost by what a test does."""
    before = [(worker.id, worker.incarnation) for worker in shared.workers()]
    yield shared
    assert [(worker.id, worker.incarnation) for worker in shared.workers()] == before


def going_on(name: str) -> tuple[dg.Dataflow, Any]:
    """Ten windows per second, until it is drained."""
    flow = dg.Dataflow(name)
    out = dg.to_memory()
    source = dg.from_generator(numbers, SCHEMA, None, block=100, time="ts", name="numbers")
    windows = flow.source(dg.paced(source, speed=10.0), splits=2).key_by("key").window(dg.Tumbling("1s"))
    windows.aggregate(count=dg.count(), total=dg.sum("n")).sink(out)
    return flow, out


def the_only(cluster: ProxiedCluster, *words: str) -> list[Connection]:
    """The connection of this name, as soon as it is in use."""
    return until(lambda: cluster.proxy.connections(*words), f"there is a connection {words}")


def record(cluster: ProxiedCluster, name: str) -> JobRecord | None:
    return next((job for job in list(cluster.controller.jobs.values()) if job.name == name), None)


def in_background(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # the test looks at it
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


# --- worker and controller -------------------------------------------------------------------------------------------------


def test_an_order_that_is_lost_with_its_connection_is_given_again(cluster: ProxiedCluster) -> None:
    way = the_only(cluster, "worker 0 to controller")
    cluster.proxy.swallow_back(way)
    flow, out = counting("order_lost", rows=5_000)
    handle = cluster.submit(flow)
    job = record(cluster, "order_lost")
    assert job is not None
    until(lambda: 1 in job.installed, "the other worker has installed the job")
    until(lambda: way[0].back.swallowed > ORDER_BYTES, "the order is lost")
    cluster.proxy.cut(way)
    handle.wait(PATIENCE_S)
    assert sorted_rows(out.rows) == sorted_rows(dg.testing.run(flow).rows())


def test_a_report_that_is_lost_with_its_connection_is_made_again(cluster: ProxiedCluster) -> None:
    way = the_only(cluster, "worker 1 to controller")
    cluster.proxy.swallow_forth(way)
    flow, out = counting("report_lost", rows=5_000)
    handle = cluster.submit(flow)
    job = record(cluster, "report_lost")
    assert job is not None
    until(lambda: 0 in job.installed, "the other worker has installed the job")
    time.sleep(UNDER_WAY_S)
    assert job.installing == {1}, "its report is lost"
    cluster.proxy.cut(way)
    handle.wait(PATIENCE_S)
    assert sorted_rows(out.rows) == sorted_rows(dg.testing.run(flow).rows())


# --- client and controller -------------------------------------------------------------------------------------------------


def test_a_submission_whose_answer_is_lost_is_not_carried_out_twice(cluster: ProxiedCluster) -> None:
    cluster.client.status()
    flow, _ = counting("submitted_once", rows=None)

    def submit() -> Job:
        cluster.client.status()  # a connection of this thread's own
        ready.set()
        go_on.wait(PATIENCE_S)
        return cluster.submit(flow)

    ready, go_on = threading.Event(), threading.Event()
    before = set(cluster.proxy.connections("client to controller"))
    thread, results = in_background(submit)
    assert ready.wait(PATIENCE_S)
    (way,) = set(cluster.proxy.connections("client to controller")) - before
    cluster.proxy.swallow_back([way])
    go_on.set()
    until(lambda: record(cluster, "submitted_once"), "the controller has the job")
    until(lambda: way.back.swallowed, "the answer is lost")
    cluster.proxy.cut([way])
    thread.join(PATIENCE_S)
    (handle,) = results
    assert handle.status().state in ("starting", "running")
    assert [job.name for job in cluster.client.jobs()].count("submitted_once") == 1
    handle.cancel()


def test_a_request_that_is_lost_is_asked_again_over_a_dead_connection_too(cluster: ProxiedCluster) -> None:
    cluster.client.status()
    for act in (cluster.proxy.cut, cluster.proxy.blackhole):
        act(cluster.proxy.connections("client to controller"))
        assert len(cluster.client.status().workers) == 2


def test_rows_are_read_on_after_the_way_to_the_log_is_cut(cluster: ProxiedCluster) -> None:
    flow, out = going_on("read_on")
    handle = cluster.submit(flow)
    for way in ("client to log", "worker to log"):
        seen = len(out.rows)
        until(lambda seen=seen: len(out.rows) > seen, "rows come")  # type: ignore[misc]
        cluster.proxy.swallow_forth(the_only(cluster, way))
        time.sleep(UNDER_WAY_S)
        cluster.proxy.cut(cluster.proxy.connections(way))
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in
    assert len({(row["key"], row["window_start"]) for row in out.rows}) == len(out.rows)


# --- rows from outside -----------------------------------------------------------------------------------------------------


def test_rows_that_are_pushed_arrive_once_although_their_connection_is_cut(cluster: ProxiedCluster) -> None:
    flow = dg.Dataflow("pushed")
    out = dg.to_memory()
    flow.source(PushedSource({"n": "int64"})).sink(out)
    handle = cluster.submit(flow)
    until(lambda: handle.status().state == "running", "it runs")
    places = cluster.client.source_places(handle.id)
    block = PUSH_BYTES // 16  # rows of half a push, about
    (place,) = places.splits
    with Pusher(places, place, cluster.client.access.keys) as pusher:
        for first in range(0, 8 * block, block):
            pusher.push(pa.record_batch({"n": pa.array(range(first, first + block), pa.int64())}))
            if first == 2 * block:
                way = the_only(cluster, f"to worker {place.worker} ingest")
                cluster.proxy.swallow_back(way)  # acknowledgments are lost, and then rows
            if first == 4 * block:
                time.sleep(UNDER_WAY_S)
                cluster.proxy.swallow_forth(way)
            if first == 6 * block:
                time.sleep(UNDER_WAY_S)
                cluster.proxy.cut(way)
        ref = pusher.finish()
    cluster.client.release(handle.id, places.source, "query", 0, [ref], PATIENCE_S)
    handle.drain()
    handle.wait(PATIENCE_S)
    found = out.table.column("n").to_numpy()
    assert np.array_equal(np.sort(found), np.arange(8 * block))


# --- everything ------------------------------------------------------------------------------------------------------------


def test_ten_connections_are_disturbed_while_a_job_runs(cluster: ProxiedCluster) -> None:
    flow, out = going_on("disturbed")
    handle = cluster.submit(flow, strategy="reject_send_random")
    until(lambda: out.rows, "the first rows")
    before = cluster.proxy.count()
    rng = Random(22)
    for number in range(10):
        kinds = ("cut", "half_close", "delay") if number else KINDS
        until(lambda kinds=kinds: cluster.proxy.disturb(rng, kinds), "there is a connection")  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.3))
        assert handle.status().state == "running"
    assert cluster.proxy.count() == before + 10
    handle.drain()
    status = handle.wait(PATIENCE_S)
    assert sum(row["count"] for row in out.rows) == status.metrics.rows_in
    assert len({(row["key"], row["window_start"]) for row in out.rows}) == len(out.rows)
