"""Savepoints of jobs of which something, or all, had ended by then."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dirigo as dg
from dirigo.errors import DirigoError
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, numbers, until
from runtime.savepoints.flows_to_stop import as_counter, keyed, slowly

ROWS, FEW = 6_000, 100


class AtTheEnd(dg.Function):
    """Says once how many rows a partition has had."""

    scope = "partition"
    count = dg.ValueState(int, default=0, combine=int.__add__)

    def on_message(self, context: Any, row: Any) -> None:
        self.count.add(1)

    def on_end(self, context: Any) -> None:
        context.emit({"rows": self.count.get()})


def flow_of(maker: Any) -> tuple[dg.Dataflow, dict[str, Any]]:
    """Two sources, one of which ends soon; what is made of each, and of both."""
    sinks = {name: dg.to_memory() for name in ("few", "said", "both")}
    flow = dg.Dataflow("ending")
    few = flow.source(dg.from_generator(numbers, SCHEMA, FEW, block=10, time="ts", name="few"), splits=2)
    many = flow.source(dg.from_generator(maker, SCHEMA, ROWS, block=50, time="ts", name="many"), splits=2)
    few.sink(sinks["few"])
    few.process(AtTheEnd, schema={"rows": "int64"}, name="at_the_end").sink(sinks["said"])
    together = few.union(many).key_by("key").window(dg.Tumbling("1s"))
    together.aggregate(rows=dg.count(), total=dg.sum("n")).named("both").sink(sinks["both"])
    return flow, sinks


def expected() -> dict[str, Any]:
    flow, sinks = flow_of(keyed)
    dg.run(flow)
    return {name: as_counter(sink.rows) for name, sink in sinks.items()}


def test_what_had_ended_is_not_said_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=0.3) as cluster:
        flow, first = flow_of(slowly)
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 1_000, "the first source has ended")
        job.stop(savepoint=tmp_path / "one")
        assert len(first["said"].rows) == 2
        flow, second = flow_of(slowly)
        job = cluster.submit(flow, savepoint=tmp_path / "one")
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        job.stop(savepoint=tmp_path / "two")
        flow, third = flow_of(keyed)
        job = cluster.submit(flow, savepoint=tmp_path / "two")
        until(lambda: job.status().state != "starting", "it runs")
        assert job.wait(60).state == "finished"
    assert second["both"].rows
    assert not second["few"].rows
    for name, rows in expected().items():
        assert sum((as_counter(each[name].rows) for each in (first, second, third)), as_counter([])) == rows, name


def test_a_loss_before_the_end_is_told_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=0.1) as cluster:
        flow, first = flow_of(slowly)
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 1_000, "the first source has ended")
        job.stop(savepoint=tmp_path / "one")
        flow, second = flow_of(slowly)
        job = cluster.submit(flow, savepoint=tmp_path / "one")
        until(lambda: job.status().snapshot is not None, "it has a snapshot of its own")
        cluster.kill(0)
        assert job.wait(60).state == "finished"
        assert job.status().recoveries == 1
    for name, rows in expected().items():
        assert as_counter(first[name].rows) + as_counter(second[name].rows) == rows, name


def test_a_job_that_has_ended_goes_on_to_nothing(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "logs", 2, tmp_path / "snapshots", every_s=1_000) as cluster:
        flow, first = flow_of(slowly)
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 1_000, "it has read for a while")
        job.drain()
        with suppress(DirigoError):  # if it is over already
            job.savepoint(tmp_path / "one")
        if not (tmp_path / "one").exists():
            pytest.skip("the job ended too soon")
        assert job.wait(60).state == "finished"
        flow, second = flow_of(keyed)
        job = cluster.submit(flow, savepoint=tmp_path / "one")
        assert job.wait(60).state == "finished"
        assert first["both"].rows
        assert not any(sink.rows for sink in second.values())
        assert job.metrics().rows_in == 0


def gated_flow(gate: Path) -> tuple[dg.Dataflow, Any]:
    """What it does with its rows takes as long as the gate is there."""

    def wait(batch: Any) -> Any:
        until_s = time.monotonic() + PATIENCE_S
        while gate.exists() and time.monotonic() < until_s:
            time.sleep(0.01)
        return batch

    flow, sink = dg.Dataflow("gated", splits=1, partitions=1), dg.to_memory()
    rows = flow.source(dg.from_generator(slowly, SCHEMA, ROWS, block=50, time="ts", name="many"))
    windows = rows.map_batches(wait).key_by("key").window(dg.Tumbling("1s"))
    windows.aggregate(rows=dg.count()).sink(sink)
    return flow, sink


def test_a_source_that_was_drained_has_ended_in_a_savepoint(tmp_path: Path) -> None:
    """Also if the worker hears of both while it is busy, and looks at neither before it is done."""
    gate = tmp_path / "gate"
    with LocalCluster(tmp_path / "logs", 1, tmp_path / "snapshots", every_s=1_000) as cluster:
        flow, first = gated_flow(gate)
        job = cluster.submit(flow)
        until(lambda: job.status().metrics.rows_in > 500, "it has read for a while")
        gate.touch()
        until(lambda: cluster.client.status().workers[0].running_s > 0.3, "it waits at the gate")
        job.drain()
        with ThreadPoolExecutor(1) as pool:
            saving = pool.submit(job.savepoint, tmp_path / "one")
            time.sleep(1.0)  # by then the worker has been asked for it
            gate.unlink()
            saving.result()
        assert job.wait(60).state == "finished"
        assert first.rows
        flow, second = gated_flow(gate)
        job = cluster.submit(flow, savepoint=tmp_path / "one")
        assert job.wait(60).state == "finished"
        assert not second.rows
        assert job.metrics().rows_in == 0
