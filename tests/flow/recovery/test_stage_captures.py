"""A stage at the barrier of a snapshot: what it leaves, what it passes on, and what its users hear of it."""

from __future__ import annotations

import gc
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.errors import CaptureFailure, OperatorFailure
from dirigo.flow.event_time.watermark import END, ChannelWatermarks, Watermark
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.operators.windows.partial_store import PartialKey, PartialStore
from dirigo.flow.plan.description import PlanDescription
from dirigo.flow.plan.plan import Plan
from dirigo.flow.plan.snapshot_barrier import SnapshotBarrier
from dirigo.flow.plan.stage import Stage, StageBehaviour
from dirigo.flow.plan.states import Nothing, StageCapture, StageStates
from dirigo.flow.sinks.sink import Writer
from dirigo.kernel import Context, CriticalRun, Granularity
from dirigo.testing.crashes.recovery_checks import read_again
from dirigo.testing.crashes.snapshots_taken import SnapshotTaken
from flow.flows import TS_SCHEMA

TOLD = {"said": str}


class Unkept(dg.Function):
    """Keeps what cannot be pickled."""

    ordered = True
    value = dg.ValueState(object, default=None)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.value.set(number for number in range(3))

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        raise AssertionError(f"a user heard of {payload}")


def stage_of(name: str) -> Stage:
    flow = dg.Dataflow("job", partitions=1)
    rows = flow.source(dg.from_iterable([], TS_SCHEMA, time="ts", name="rows"))
    rows.key_by("key").process(Unkept, TOLD, name="unkept").sink(dg.to_memory(name="out"))
    return next(stage for stage in Plan(flow, "job").stages if stage.name == name)


def barrier(stage: Stage, *, is_void: bool = False, gave_way: bool = False) -> CriticalRun:
    (upstream,) = stage.upstreams_of(0)
    parts = ((upstream, 1, SnapshotBarrier(7, is_void)),)
    return CriticalRun(stage.addresses[0], 0, parts, Granularity.SNAPSHOT, 1, False, is_void=gave_way)


def at_the_barrier(critical: CriticalRun, stage: Stage, states: StageStates) -> tuple[Any, list[Any]]:
    context = Context(stage.addresses[0], states)
    StageBehaviour(stage, 0, states).on_critical(context, critical)
    assert all(output.granularity is Granularity.SNAPSHOT for output in context.outputs)  # type: ignore[union-attr]
    return context.captured, [output.payload for output in context.outputs]


def test_it_leaves_its_capture_and_passes_the_barrier_on() -> None:
    stage = stage_of("unkept")
    captured, passed_on = at_the_barrier(barrier(stage), stage, stage.new_states(0))
    assert isinstance(captured, StageCapture)
    assert captured.own is None
    assert list(captured.head.progress.times) == ["rows/0"]
    assert passed_on == [SnapshotBarrier(7)]


@pytest.mark.parametrize("how", [{"is_void": True}, {"gave_way": True}])
def test_a_void_barrier_is_passed_on_as_void_and_keeps_nothing(how: dict[str, bool]) -> None:
    stage = stage_of("unkept")
    captured, passed_on = at_the_barrier(barrier(stage, **how), stage, stage.new_states(0))
    assert captured is None
    assert passed_on == [SnapshotBarrier(7, is_void=True)]


def test_a_state_that_cannot_be_kept_makes_the_snapshot_void_and_says_why() -> None:
    stage = stage_of("unkept")
    states = stage.new_states(0)
    batch = pa.RecordBatch.from_pylist([{"key": "a", "value": 1, "ts": 1}], schema=TS_SCHEMA)
    StageBehaviour(stage, 0, states).on_message(Context(stage.addresses[0], states), (0, batch))
    captured, passed_on = at_the_barrier(barrier(stage), stage, states)
    assert isinstance(captured, CaptureFailure)
    said = str(captured)
    assert said.startswith("the state of operator 'unkept' cannot be kept in a snapshot: TypeError: cannot pickle")
    assert "generator" in said
    assert passed_on == [SnapshotBarrier(7, is_void=True)]


class FullWriter(Writer):
    """Its disk is full when a snapshot has it complete its rows; what has become of them, nobody knows."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def cut(self) -> Any:
        raise OSError("no space left on device")


class FullSink(dg.Sink):
    def open(self, schema: pa.Schema, partition: int) -> Writer:
        return FullWriter()


def test_a_sink_that_cannot_complete_its_rows_fails_the_job_and_not_the_snapshot_alone() -> None:
    flow = dg.Dataflow("job", partitions=1)
    flow.source(dg.from_iterable([], TS_SCHEMA, time="ts", name="rows")).sink(FullSink("full"))
    stage = next(stage for stage in Plan(flow, "job").stages if isinstance(stage.operator, SinkRows))
    states = stage.new_states(0)
    batch = pa.RecordBatch.from_pylist([{"key": "a", "value": 1, "ts": 1}], schema=TS_SCHEMA)
    StageBehaviour(stage, 0, states).on_message(Context(stage.addresses[0], states), (0, batch))
    with pytest.raises(OperatorFailure, match="operator 'full' failed: OSError: no space left on device"):
        at_the_barrier(barrier(stage), stage, states)


def test_a_state_that_cannot_be_read_fails_the_job_with_the_operator() -> None:
    states = StageStates(["job/rows/0"], PartialStore(), "windows")
    broken = StageCapture(states.capture().head, {(1, 2): "nonsense"})
    with pytest.raises(OperatorFailure, match="operator 'windows' cannot go on from its state in a snapshot"):
        states.restore(broken)


def test_other_upstreams_are_refused() -> None:
    captured = StageStates(["job/a/0"], Nothing(), "windows").capture()
    with pytest.raises(OperatorFailure, match=r"it was fed by \['a/0'\], and is fed by \['b/0'\] now"):
        StageStates(["job/b/0"], Nothing(), "windows").restore(captured)


def test_channels_come_back_in_another_job() -> None:
    before = ChannelWatermarks(["job/a/0", "job/a/1", "job/b/0"])
    before.note("job/a/0", Watermark(END))
    before.note("job/a/1", Watermark(50, is_idle=True))
    before.note("job/b/0", Watermark(70))
    after = ChannelWatermarks(["job.3/a/0", "job.3/a/1", "job.3/b/0"])
    after.restore(before.capture())
    assert after.watermark == before.watermark == 70
    assert after.capture() == before.capture()
    after.note("job.3/b/0", Watermark(80, is_idle=True))
    idle = [after.is_idle]
    after.note("job.3/a/1", Watermark(60))
    assert [*idle, after.is_idle] == [True, False]
    assert after.watermark == 80


def test_what_has_ended_comes_back_as_ended() -> None:
    states = StageStates(["job/a/0", "job/b/0"], Nothing(), "windows")
    states.restore_ended()
    assert states.progress.has_ended
    assert not states.progress.is_idle
    assert states.watermark == END


def test_capturing_batches_takes_no_time_for_their_rows() -> None:
    store = PartialStore()
    batch = pa.RecordBatch.from_arrays([pa.array(range(4_000_000))], ["n"])
    for bucket in range(4):
        store.add(PartialKey(bucket, 0), batch)
    store.capture()
    gc.collect()
    began = time.thread_time()  # of this thread only: a busy machine may let it wait
    captured = store.capture()
    assert time.thread_time() - began < 0.01  # a copy of all would take several times as long
    again = PartialStore()
    again.restore(captured)
    restored = again.partials[PartialKey(3, 0)].batches[0]
    assert restored.column(0).buffers()[1].address == batch.column(0).buffers()[1].address


class Money(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """A type of a user's."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.money")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Money:
        return cls()


def test_batches_with_types_of_a_users_are_read_without_their_class() -> None:
    batch = pa.RecordBatch.from_arrays([pa.ExtensionArray.from_storage(Money(), pa.array([1, 2]))], ["price"])
    states = StageStates(["job/a/0"], PartialStore(), "windows")
    states.own.add(PartialKey(0, 0), batch)  # type: ignore[attr-defined]
    snapshot = SnapshotTaken(1, PlanDescription(operators=()), captures={"windows/0": states.capture()})
    read = read_again(snapshot)
    assert read is not None
    again = StageStates(["job/a/0"], PartialStore(), "windows")
    captured = read.captures["windows/0"]
    assert captured is not None
    again.restore(captured)
    assert again.own.pop(PartialKey(0, 0)).equals(batch)  # type: ignore[attr-defined]
    assert pickle.dumps(captured.head)
