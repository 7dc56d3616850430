"""process: functions of a user's own, with states, timers, calls that run alone, and critical messages."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dirigo as dg
from dirigo.state import ListState, MapState, ValueState, add
from flow.flows import TS_SCHEMA, FakeClock, Running, collected, event, results

ROWS = [event("ab"[number % 2], number, number) for number in range(10)]
TEXT = {"text": str}


class Counting(dg.Function):
    """How many rows each key has, told at the end."""

    scope = "partition"
    seen = MapState(str, int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.seen.add(row.key, 1)

    def on_end(self, context: dg.FunctionContext) -> None:
        for key in "ab":
            if self.seen.get(key):
                context.emit({"text": f"{key}{self.seen.get(key)}"})


@pytest.mark.parametrize("rows_max", [1, 4, 100])
def test_states_are_whole_at_the_end(rows_max: int) -> None:
    out = results(ROWS, lambda s: s.key_by("key").process(Counting, TEXT), rows_max=rows_max)
    assert {row["text"] for row in out} == {"a5", "b5"}


def test_without_keys_the_function_runs_where_its_rows_are() -> None:
    assert {row["text"] for row in results(ROWS, lambda s: s.process(Counting(), TEXT))} == {"a5", "b5"}


class Passing(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


class Scaled(dg.Function):
    """Made with an argument, and working on whole batches."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        values = pc.multiply(batch.column("value"), self.factor)
        context.emit_batch(pa.RecordBatch.from_arrays([values, batch.column("ts")], ["value", "ts"]))


@pytest.mark.parametrize("function", [Scaled(10), lambda: Scaled(10)], ids=["instance", "factory"])
def test_functions_may_have_arguments_and_work_on_batches(function: Any) -> None:
    out = results(ROWS, lambda s: s.process(function, {"ts": int, "value": int}))
    assert out == [{"ts": row["ts"], "value": row["value"] * 10} for row in ROWS]


def test_the_time_of_the_results_can_be_named() -> None:
    out = results(
        ROWS,
        lambda s: s.process(Passing, TS_SCHEMA, time="ts").window(dg.Tumbling("5ms")).aggregate(n=dg.count()),
        rows_max=1,
    )
    assert [row["n"] for row in out] == [5, 5]


class Ordered(dg.Function):
    """Depends on the order of its rows, and on nothing else."""

    ordered: ClassVar[bool] = True
    last = ValueState(int, default=-1)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"text": f"{row.key}: {self.last.get()} -> {row.value}"})
        self.last.set(row.value)


def test_an_ordered_function_sees_its_rows_one_after_the_other() -> None:
    rows = [event("a", number, number) for number in range(6)]
    out = results(rows, lambda s: s.key_by("key").process(Ordered, TEXT), rows_max=2)
    assert [row["text"] for row in out] == [f"a: {number - 1} -> {number}" for number in range(6)]


class Watching(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit({"text": f"row {row.value} after {max(context.watermark_ms, -1)}"})

    def on_watermark(self, context: dg.FunctionContext, time_ms: int) -> None:
        context.emit({"text": f"watermark {time_ms if time_ms < 1 << 62 else 'end'}"})

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"text": "end"})


def test_watermarks_come_between_the_rows() -> None:
    out = results(ROWS[:3], lambda s: s.process(Watching, TEXT), rows_max=1)
    assert [row["text"] for row in out] == [
        "row 0 after -1",
        "watermark 0",
        "row 1 after 0",
        "watermark 1",
        "row 2 after 1",
        "watermark 2",
        "watermark end",
        "end",
    ]


# --- timers and calls that run alone -----------------------------------------------------------------------------------


class Timed(dg.Function):
    """Tells what has come since the first row, a while after it."""

    scope = "partition"
    held = ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.value == 0:
            context.set_timer("5s", "flush")
        self.held.append(row.value)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"text": f"{payload} {list(self.held)} at {context.now_s}"})
        self.held.clear()


def test_a_timer_fires_by_the_clock_with_the_whole_state() -> None:
    flow = dg.Dataflow("timed")
    out = collected(flow.source(dg.from_iterable(ROWS)).process(Timed, TEXT))
    clock = FakeClock(100.0)
    running = Running(flow, clock)
    running.read(rows_max=2)
    clock.now_s = 104.9
    running.read(rows_max=1)
    assert out.rows == []
    clock.now_s = 105.0
    running.host.tick()
    assert [row["text"] for row in out.rows] == ["flush [0, 1, 2] at 105.0"]


class Batched(dg.Function):
    """Asks to run alone whenever four rows may be together."""

    scope = "partition"
    total = ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.total.add(row.value)
        if row.value % 4 == 3:
            context.run_alone(row.value)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"text": f"{payload}: {self.total.get()}"})


def test_run_alone_calls_on_timer_with_the_whole_state() -> None:
    out = results(ROWS, lambda s: s.process(Batched, TEXT), rows_max=1)
    assert [row["text"] for row in out] == ["3: 6", "7: 28"]


# --- critical messages -------------------------------------------------------------------------------------------------


class Announcing(dg.Function):
    """Announces every fifth row to everybody downstream, and how many rows there were at the end."""

    scope = "partition"
    count = ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        context.emit(row)
        if row.value % 5 == 4:
            context.emit_critical(("seen", row.value))


class Listening(dg.Function):
    """Says which rows it has got before each critical message."""

    scope = "partition"
    rows = ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.append(row.value)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"text": f"{payload}: {sorted(self.rows)}"})


def test_a_critical_message_runs_after_the_rows_before_it_and_before_those_after_it() -> None:
    out = results(ROWS, lambda s: s.process(Announcing, TS_SCHEMA).process(Listening, TEXT), rows_max=1)
    assert [row["text"] for row in out] == [
        f"('seen', 4): {list(range(5))}",
        f"('seen', 9): {list(range(10))}",
    ]


def test_a_critical_message_passes_operators_and_functions_that_do_not_take_it() -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        announced = stream.process(Announcing, TS_SCHEMA)
        return announced.filter(dg.col("value") > 2).process(Passing, TS_SCHEMA).union(announced).process(Listening, TEXT)

    out = results(ROWS, build, rows_max=1)
    # It comes over both ways; over the longer one, all that went that way has come before it.
    assert len(out) == 4
    assert sum(row["text"].startswith("('seen', 9)") for row in out) == 2


def test_a_critical_message_of_a_keyed_function_goes_to_all_partitions() -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        return stream.process(Announcing, TS_SCHEMA).key_by("key").process(Listening, TEXT)

    out = results(ROWS, build, rows_max=1, partitions=3)
    assert len(out) == 2 * 3
    heard: dict[str, list[int]] = defaultdict(list)
    for row in out:
        payload, rows = row["text"].split(": ")
        heard[payload] += [int(number) for number in rows.strip("[]").split(", ") if number]
    assert {payload: sorted(rows) for payload, rows in heard.items()} == {
        "('seen', 4)": list(range(5)),
        "('seen', 9)": list(range(10)),
    }


class EndBarrier(dg.Function):
    """Every partition sends the same barrier at the end, with what it has counted."""

    scope = "partition"
    count = ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)
        context.emit(row)

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit_critical(self.count.get(), granularity="one")


class Adding(dg.Function):
    """Adds up what the partitions upstream have counted, and has all of their rows by then."""

    scope = "partition"
    rows = ValueState(int, default=0, combine=add)
    told = ListState(int)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.rows.add(1)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        self.told.append(payload)
        context.emit({"text": f"{self.rows.get()} rows, told {sum(self.told)} by {len(self.told)}"})


@pytest.mark.parametrize("in_between", [False, True])
def test_a_barrier_of_granularity_one_waits_for_all_partitions(in_between: bool) -> None:
    def build(stream: dg.Stream) -> dg.Stream:
        counted = stream.key_by("value").process(EndBarrier, TS_SCHEMA)
        if in_between:  # passes the barrier on, once for all partitions before it
            counted = counted.key_by("key").process(Passing, TS_SCHEMA)
        return counted.with_columns(all=1).key_by("all").process(Adding, TEXT)

    out = results(ROWS, build, rows_max=3, partitions=4)
    said = [row["text"] for row in out if not row["text"].startswith("0 rows")]
    if in_between:
        assert len(said) == 4
        assert all(text.startswith("10 rows") for text in said)
    else:
        assert [text.split(", ")[0] for text in said] == ["10 rows"] * 4
        assert said[-1] == "10 rows, told 10 by 4"


class Typo(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit_critical("x", granularity="all")  # type: ignore[arg-type]


def test_a_critical_message_that_makes_no_sense_is_the_rows_error() -> None:
    with pytest.raises(dg.RowFailure, match="granularity is 'channel' or 'one', not 'all'"):
        results(ROWS, lambda s: s.process(Typo, TS_SCHEMA).process(Passing, TS_SCHEMA))


# --- passivation -------------------------------------------------------------------------------------------------------


def test_a_function_that_was_idle_knows_how_far_time_has_come() -> None:
    flow = dg.Dataflow("idle", watermark_every="1ms")
    out = collected(flow.source(dg.from_iterable(ROWS[:3], time="ts")).process(Watching, TEXT, name="watch"))
    running = Running(flow)
    for _ in range(3):
        running.read()
        assert running.host.worker.passivate("idle/watch/0")
    assert [row["text"] for row in out.rows if row["text"].startswith("row")] == [
        "row 0 after -1",
        "row 1 after 0",
        "row 2 after 1",
    ]


def test_a_function_that_was_idle_comes_back_with_its_states_and_a_working_context() -> None:
    flow = dg.Dataflow("idle", watermark_every="1ms", partitions=1)
    stream = flow.source(dg.from_iterable(ROWS, time="ts"))
    out = collected(stream.process(Announcing, TS_SCHEMA, name="announce").process(Listening, TEXT, name="listen"))
    running = Running(flow)
    worker = running.host.worker
    for _ in ROWS:
        running.read()
        assert worker.passivate("idle/announce/0")
        assert worker.passivate("idle/listen/0")
    running.finish()
    assert [row["text"] for row in out.rows] == [f"('seen', 4): {list(range(5))}", f"('seen', 9): {list(range(10))}"]
