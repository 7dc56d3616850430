"""Flows on a cluster of processes: their rows are those of the simulator, and go where they are meant to go."""

from __future__ import annotations

import io
import threading
from asyncio import CancelledError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.runtime.errors import ControlError, JobFailed
from runtime.clusters import PATIENCE_S, SCHEMA, LocalCluster, counting, numbers, sorted_rows, until


def expected(flow: dg.Dataflow, sink: str | None = None) -> list[tuple[Any, ...]]:
    return sorted_rows(dg.testing.run(flow).rows(sink))


# --- results ---------------------------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_simulator(cluster: LocalCluster) -> None:
    flow, out = counting()
    handle = cluster.submit(flow)
    status = handle.wait(PATIENCE_S)
    assert status.state == "finished"
    assert sorted_rows(out.rows) == expected(flow)
    assert status.metrics.rows_in == 20_000
    assert status.metrics.rows_out == len(out.rows) > 0
    assert status.metrics.messages > 0
    assert status.metrics.busy_s > 0
    assert status.metrics.queued_bytes == status.metrics.state_bytes == 0
    assert 0 < status.metrics.latency_ms["p50"] <= status.metrics.latency_ms["p99"] <= status.metrics.latency_ms["max"]


def test_a_flow_of_many_operators_gives_the_rows_of_the_simulator(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("many", on_error="side_output")
    out, errors, late = dg.to_memory(name="out"), dg.to_memory(name="errors"), dg.to_memory(name="late")
    left = flow.source(dg.from_generator(numbers, SCHEMA, 6_000, block=500, time="ts", name="left"), splits=3)
    right = flow.source(dg.from_generator(numbers, SCHEMA, 3_000, block=500, time="ts", name="right"), splits=2)
    odd = left.map(lambda row: {"n": 1 // (row.n % 50), "key": row.key, "ts": row.ts}, schema=SCHEMA)
    counted = odd.key_by("key").window(dg.Sliding("2s", "1s")).aggregate(count=dg.count())
    counted.late.sink(late)
    left.join(right.rename(key="k"), on="n", window=dg.Tumbling("1s")).key_by("k").aggregate(total=dg.sum("n")).sink(out)
    flow.errors.sink(errors)
    cluster.run(flow)
    for sink in (out, errors, late):
        assert sorted_rows(sink.rows) == expected(flow, sink.name)
    assert len(errors.rows) == 120
    assert out.rows


def test_a_flow_can_be_submitted_again_and_starts_with_no_rows(cluster: LocalCluster) -> None:
    flow, out = counting()
    cluster.run(flow)
    first = sorted_rows(out.rows)
    cluster.run(flow)
    assert sorted_rows(out.rows) == first


def test_a_source_without_any_rows(cluster: LocalCluster) -> None:
    flow, out = counting(rows=0)
    cluster.run(flow)
    assert out.rows == []
    assert out.table.schema.names == dg.testing.run(flow).table().schema.names


def test_large_batches_and_wide_rows(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("wide")
    out = dg.to_memory()
    rows = [{"key": n % 7, "text": "x" * 20_000} for n in range(2_000)]  # 40 MB
    flow.source(dg.from_iterable(lambda: rows)).key_by("key").aggregate(count=dg.count(), most=dg.max("text")).sink(out)
    cluster.run(flow, budget_bytes=1 << 20)
    final = {row["key"]: row["count"] for row in out.rows}
    assert sum(final.values()) == 2_000


def test_dictionary_columns_travel(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("dictionaries")
    out = dg.to_memory()
    source = flow.source(dg.from_iterable(lambda: [{"city": f"city {n % 5}", "n": n} for n in range(1_000)]))
    encoded = source.map_batches(
        lambda batch: pa.record_batch({"city": batch.column("city").dictionary_encode(), "n": batch.column("n")})
    )
    encoded.key_by("n").process(Passing, schema={"city": "string", "n": "int64"}).sink(out)
    cluster.run(flow)
    assert sorted_rows(out.rows) == [(f"city {n % 5}", n) for n in sorted(range(1_000), key=lambda n: (n % 5, n))]


class Passing(dg.Function):
    """Rows as they come."""

    def on_message(self, context: Any, row: Any) -> None:
        context.emit({"city": str(row.city), "n": row.n})


class Note:
    """Something of the user's own, in a file that no worker can import."""

    def __init__(self, upto: int) -> None:
        self.upto = upto


class Announcing(dg.Function):
    """Passes rows on, and sends a note after them."""

    scope = "partition"
    ordered = True
    seen = dg.ValueState(int, default=0)

    def on_message(self, context: Any, row: Any) -> None:
        self.seen.set(self.seen.get() + 1)
        context.emit({"n": row.n, "key": row.key})

    def on_end(self, context: Any) -> None:
        context.emit_critical(Note(self.seen.get()))


class Noting(dg.Function):
    """Counts rows, and compares with the notes."""

    scope = "partition"
    seen = dg.ValueState(int, default=0, combine=lambda one, other: one + other)
    noted = dg.ListState(int)

    def on_message(self, context: Any, row: Any) -> None:
        self.seen.add(1)

    def on_critical(self, context: Any, payload: Any) -> None:
        assert type(payload) is Note, payload
        self.noted.append(payload.upto)

    def on_end(self, context: Any) -> None:
        context.emit({"seen": self.seen.get(), "noted": sum(self.noted), "notes": len(self.noted)})


def test_critical_messages_with_objects_of_the_users_own_go_between_workers(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("notes")
    out = dg.to_memory()
    source = flow.source(dg.from_generator(numbers, SCHEMA, 2_000, block=100, time="ts", name="numbers"), splits=2)
    announced = source.key_by("key").process(Announcing, schema={"n": "int64", "key": "int64"})
    announced.key_by("n").process(Noting, schema={"seen": "int64", "noted": "int64", "notes": "int64"}).sink(out)
    cluster.run(flow)
    partitions = len(out.rows)
    assert partitions > 1
    assert sum(row["seen"] for row in out.rows) == 2_000
    assert {row["noted"] for row in out.rows} == {2_000}  # every partition hears of all rows


class Waking(dg.Function):
    """Emits when a timer is due."""

    scope = "partition"
    ordered = True

    def on_message(self, context: Any, row: Any) -> None:
        context.set_timer("20ms", row.n)

    def on_timer(self, context: Any, payload: Any) -> None:
        context.emit({"n": payload})


def test_timers_are_due_by_the_clock_of_the_worker(cluster: LocalCluster) -> None:
    flow = dg.Dataflow("timers")
    out = dg.to_memory()
    source = flow.source(dg.from_generator(numbers, SCHEMA, None, block=1, time="ts", name="numbers"), splits=1)
    slow = source.filter(lambda row: row.n < 40)
    slow.key_by("key").process(Waking, schema={"n": "int64"}).sink(out)
    handle = cluster.submit(flow)
    until(lambda: len(out.rows) >= 40, "all timers were due")
    handle.drain()
    handle.wait(PATIENCE_S)
    assert sorted_rows(out.rows) == [(n,) for n in range(40)]


# --- sinks -----------------------------------------------------------------------------------------------------------------


def test_a_callback_and_a_console_run_in_the_process_that_submits(cluster: LocalCluster) -> None:
    seen: list[int] = []
    lock = threading.Lock()  # which no pickle could take along

    def take(row: Any) -> None:
        with lock:
            seen.append(row.n)

    console = io.StringIO()
    flow = dg.Dataflow("outside")
    source = flow.source(dg.from_generator(numbers, SCHEMA, 500, block=100, name="numbers"))
    source.sink(dg.to_callback(take))
    source.sink(dg.to_console(limit=3, file=console))
    cluster.run(flow)
    assert sorted(seen) == list(range(500))
    assert console.getvalue().count("key=") == 3


class Enough(BaseException):
    """What no ``except Exception`` catches."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no more"),
        ControlError("no more"),
        KeyboardInterrupt("no more"),
        SystemExit("no more"),
        GeneratorExit("no more"),
        CancelledError("no more"),
        Enough("no more"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("rows", [500, None], ids=["over already", "endless"])
def test_whatever_a_callback_raises_fails_the_job(cluster: LocalCluster, error: BaseException, rows: int | None) -> None:
    may_raise = threading.Event()

    def refuse(row: Any) -> None:
        if row.n == 50:
            assert may_raise.wait(PATIENCE_S)
            raise error

    flow = dg.Dataflow("refusing")
    source = flow.source(dg.from_generator(numbers, SCHEMA, rows, block=100, name="numbers"))
    source.sink(dg.to_callback(refuse, name="refusing-rows"))
    handle = cluster.submit(flow)
    if rows is not None:
        until(lambda: handle.status().state == "finished", "it is over, but its rows are not all taken")
    may_raise.set()
    with pytest.raises(JobFailed) as caught:
        handle.wait(PATIENCE_S)
    assert str(caught.value) == f"job 'refusing' failed: sink 'refusing-rows' failed: {type(error).__name__}: no more"
    assert caught.value.__cause__ is error
    if rows is None:
        assert handle.status().state == "failed"
        assert handle.status().error == f"sink 'refusing-rows' failed: {type(error).__name__}: no more"


def test_parquet_files_go_where_the_submitting_process_meant(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow, _ = counting(sink=dg.to_parquet("results"))
    cluster.run(flow)
    assert sorted_rows(pq.read_table(tmp_path / "results").to_pylist()) == expected(counting()[0])


def test_files_are_read_where_the_submitting_process_meant(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"n": list(range(100))}), tmp_path / "input.parquet")
    monkeypatch.chdir(tmp_path)
    flow = dg.Dataflow("files")
    out = dg.to_memory()
    flow.source(dg.from_parquet("input.parquet")).sink(out)
    cluster.run(flow)
    assert sorted_rows(out.rows) == [(n,) for n in range(100)]


def test_a_cancelled_job_has_its_sources_closed_and_its_sinks_let_go(cluster: LocalCluster, tmp_path: Path) -> None:
    class Sink(dg.Sink):
        def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
            return Writer()

    class Writer(dg.Writer):
        def write(self, batch: pa.RecordBatch) -> None:
            (tmp_path / "written").touch()

        def flush(self) -> None:
            """Nothing waits."""

        def close(self) -> None:
            (tmp_path / "closed").touch()

        def abandon(self) -> None:
            (tmp_path / "abandoned").touch()

    flow, _ = counting("let-go", None, sink=Sink("mine"))
    handle = cluster.submit(flow)
    until((tmp_path / "written").exists, "rows come")
    handle.cancel()
    until((tmp_path / "abandoned").exists, "the writer is told")
    assert not (tmp_path / "closed").exists()
