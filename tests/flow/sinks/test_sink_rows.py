"""The operator of a sink: when rows roll, and what whoever runs a job with snapshots calls."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dirigo as dg
from dirigo.flow.errors import OperatorFailure
from dirigo.flow.event_time.watermark import END
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.states import StageStates
from dirigo.flow.sinks.part_files import PartFiles
from dirigo.testing import Abort, Pause, Simulation

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(autouse=True)
def disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost with the power here, so nobody need wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def rows_of(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(numbers)}, SCHEMA)


def lines(folder: Path) -> list[int]:
    return [json.loads(line)["n"] for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


def parquet(folder: Path) -> list[list[int]]:
    return [pq.read_table(file).column("n").to_pylist() for file in sorted(folder.glob("part-*"))]


def flow_to(sink: dg.Sink) -> dg.Dataflow:
    flow = dg.Dataflow("flow")
    flow.source(dg.from_iterable([], {"n": int}, name="rows")).sink(sink)
    return flow


def test_those_who_watch_see_files_while_the_job_runs(tmp_path: Path) -> None:
    simulation = Simulation(flow_to(dg.to_parquet(tmp_path)), open_sources=["rows"], writes=True)
    for number in range(2):
        simulation.push("rows", [{"n": number}])
        simulation.advance("9s")
        assert len(parquet(tmp_path)) == number
        simulation.advance("2s")
        assert parquet(tmp_path) == [[each] for each in range(number + 1)]
    simulation.advance("1h")
    assert len(parquet(tmp_path)) == 2, "nothing rolls without rows"
    simulation.push("rows", [{"n": 2}])
    simulation.end("rows")
    simulation.finish()
    assert parquet(tmp_path) == [[0], [1], [2]]


def test_a_job_that_is_aborted_keeps_what_has_rolled(tmp_path: Path) -> None:
    sink = dg.to_json_lines(tmp_path, roll_every="3s")
    simulation = Simulation(flow_to(sink), [{"n": 1}, {"n": 2}, Pause("4s"), {"n": 3}, Pause("1s"), Abort()], writes=True)
    with pytest.raises(dg.DirigoError, match="aborted"):
        simulation.finish()
    assert lines(tmp_path) == [1, 2]
    assert not list(tmp_path.glob(".*"))


class Worker:
    """One process that runs one partition of a sink."""

    def __init__(self, operator: SinkRows, generation: int | None, partition: int = 1) -> None:
        self.operator: SinkRows = cloudpickle.loads(cloudpickle.dumps(operator))
        if generation is not None:
            self.operator.hold_back(generation)
        self.states = self.operator.new_states()
        self.timers: list[float] = []
        self.emitter: Any = SimpleNamespace(
            partition=partition, context=SimpleNamespace(now=100.0), set_timer=lambda due_s, _: self.timers.append(due_s)
        )

    def write(self, *numbers: int) -> None:
        self.operator.on_rows(self.states, 0, rows_of(*numbers), self.emitter)

    def end(self) -> None:
        self.operator.on_watermark(self.states, 0, END, self.emitter)

    def capture(self) -> Any:
        """As the controller gets it, and with its files on the disk."""
        prepared = msgspec.msgpack.decode(msgspec.msgpack.encode(self.states.capture()))
        self.operator.sync(prepared)
        return prepared


@pytest.fixture
def operator(tmp_path: Path) -> SinkRows:
    return SinkRows("mine", SCHEMA, dg.to_json_lines(tmp_path, roll_every="5s"))


def test_rows_appear_with_the_commit_of_their_snapshot(operator: SinkRows, tmp_path: Path) -> None:
    worker = Worker(operator, 0)
    assert worker.capture() is None
    worker.operator.commit(None)
    worker.write(1)
    prepared = worker.capture()
    worker.write(2)
    assert lines(tmp_path) == []
    worker.operator.commit(prepared)
    assert lines(tmp_path) == [1]
    assert worker.timers == [], "nothing rolls by the clock"


def test_another_process_commits_for_one_that_is_lost(operator: SinkRows, tmp_path: Path) -> None:
    prepared = []
    for partition in range(2):
        worker = Worker(operator, 0, partition)
        worker.write(partition)
        prepared.append(worker.capture())
    other = Worker(operator, 1, 5)
    for each in (*prepared, *prepared):
        other.operator.sync(each)
        other.operator.commit(each)
    assert lines(tmp_path) == [0, 1]


def test_states_that_are_restored_go_on_behind_the_snapshot(operator: SinkRows, tmp_path: Path) -> None:
    lost = Worker(operator, 0)
    lost.write(1)
    prepared = lost.capture()
    lost.write(2)
    lost.capture()
    worker = Worker(operator, 1)
    worker.states.restore(prepared)
    assert lines(tmp_path) == [1]
    worker.write(3)
    worker.end()
    worker.operator.commit(worker.capture())
    assert lines(tmp_path) == [1, 3]
    assert not list(tmp_path.glob(".*"))


def test_what_an_ended_actor_prepared_last_is_committed_later(operator: SinkRows, tmp_path: Path) -> None:
    worker = Worker(operator, 0)
    worker.write(1)
    worker.end()
    assert lines(tmp_path) == []
    prepared = worker.operator.ended()
    assert prepared == {1: worker.capture()}
    again = Worker(operator, 1)
    again.states.restore(prepared[1])
    assert again.operator.ended() == prepared
    assert again.capture() == prepared[1]
    again.operator.commit(prepared[1])
    again.operator.commit(prepared[1])
    assert lines(tmp_path) == [1]
    assert again.operator.ended() == {}
    worker.operator.abandon()
    assert lines(tmp_path) == [1]


def test_an_end_without_rows_is_captured_too(tmp_path: Path) -> None:
    worker = Worker(SinkRows("mine", SCHEMA, dg.to_parquet(tmp_path)), 0, partition=0)
    worker.end()
    (prepared,) = worker.operator.ended().values()
    worker.operator.sync(prepared)
    assert parquet(tmp_path) == []
    worker.operator.commit(prepared)
    assert parquet(tmp_path) == [[]]


def test_a_generation_that_ends_keeps_what_it_prepared_and_a_job_that_ends_does_not(
    operator: SinkRows, tmp_path: Path
) -> None:
    worker = Worker(operator, 0)
    worker.write(1)
    prepared = worker.capture()
    worker.write(*range(100_000))
    worker.operator.let_go()
    assert len(list(tmp_path.iterdir())) == 1
    again = Worker(operator, 1)
    again.states.restore(prepared)
    again.write(2)
    again.capture()
    again.operator.abandon()
    assert lines(tmp_path) == [1]
    assert len(list(tmp_path.iterdir())) == 1


class Plain(dg.Sink):
    """As it was before there were snapshots."""

    def __init__(self, folder: Path) -> None:
        super().__init__("plain")
        self.folder = folder

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return PlainWriter(self.folder / f"part-{partition}")


class PlainWriter(dg.Writer):
    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.writelines(json.dumps(row) + "\n" for row in batch.to_pylist())

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()

    def abandon(self) -> None:
        self.file.close()


@pytest.mark.parametrize("generation", [None, 0])
def test_a_sink_without_transactions_has_its_rows_at_once(tmp_path: Path, generation: int | None) -> None:
    operator = SinkRows("plain", SCHEMA, Plain(tmp_path))
    worker = Worker(operator, generation)
    worker.write(1)
    assert worker.capture() is None
    assert lines(tmp_path) == [1]
    worker.write(2)
    worker.operator.let_go()
    again = Worker(operator, generation)
    again.states.restore(None)
    again.write(2)
    again.end()
    assert again.operator.ended() == {}
    assert again.capture() is None
    assert lines(tmp_path) == [1, 2, 2]
    assert operator.sink.delivery == "at least once"


def test_rows_that_wait_for_a_commit_are_counted(operator: SinkRows) -> None:
    worker = Worker(operator, 0)
    worker.write(1)
    assert worker.states.held_bytes() > 0
    worker.capture()
    assert worker.states.held_bytes() == 0


class Queue(dg.Writer):
    """Its cut is the list that it writes to."""

    def __init__(self) -> None:
        self.waiting: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.waiting += batch.column("n").to_pylist()

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def cut(self) -> list[int]:
        return self.waiting


class QueueSink(dg.Sink):
    delivery = "exactly once"

    def open(self, schema: pa.Schema, partition: int) -> dg.Writer:
        return Queue()


def test_what_is_written_later_is_not_in_a_cut_that_was_taken_before() -> None:
    """A cut is written down by another thread, and later."""
    worker = Worker(SinkRows("mine", SCHEMA, QueueSink("mine")), 0)
    worker.write(1)
    prepared = worker.states.capture()
    worker.write(2)
    assert prepared["cut"] == [1]
    worker.end()
    (last,) = worker.operator.ended().values()
    assert last["cut"] == [1, 2]


@pytest.mark.parametrize("kind", ["parquet", "json_lines"])
def test_a_full_disk_at_a_snapshot_fails_the_job_since_the_next_one_would_be_without_these_rows(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = dg.to_parquet(tmp_path) if kind == "parquet" else dg.to_json_lines(tmp_path)
    worker = Worker(SinkRows("mine", SCHEMA, sink), 0)
    worker.write(1, 2)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(PartFiles, "begin", full)
        with pytest.raises(OperatorFailure, match="free some space there"):
            StageStates([], worker.states, "mine").capture()
