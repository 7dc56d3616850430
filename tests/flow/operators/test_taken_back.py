"""What a call of a function asked for leaves in the order of its calls, and is taken back as a whole if it raises."""

import operator
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.testing import run

X = {"x": int}
BATCH = pa.record_batch([pa.array([600, 601], pa.int64())], names=["x"])


class Nested(dg.Function):
    """Asks to run alone while it runs alone."""

    scope = "partition"
    ordered = True

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.run_alone(1)

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"x": payload})
        if payload < 3:
            context.run_alone(payload + 1)


def test_what_runs_alone_again_emits_after_what_was_emitted_before() -> None:
    flow = dg.Dataflow("nested")
    flow.source(dg.from_iterable([{"x": 0}])).process(Nested, X).sink(dg.to_memory())
    assert [row["x"] for row in run(flow).rows()] == [1, 2, 3]


class Then(dg.Function):
    """Emits a row when it runs alone, and a critical message when it runs alone again."""

    scope = "partition"

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.run_alone("row")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        if payload == "row":
            context.emit({"x": 1})
            context.run_alone("critical")
        else:
            context.emit_critical("now")


class Count(dg.Function):
    scope = "partition"
    count = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.count.add(1)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"x": self.count.get()})


def test_a_critical_message_from_running_alone_again_is_behind_the_rows_before_it() -> None:
    for options in ({}, *({"workers": 3, "chaos": True, "seed": seed} for seed in range(10))):
        flow = dg.Dataflow("then")
        flow.source(dg.from_iterable([{"x": 0}])).process(Then, X).process(Count, X).sink(dg.to_memory())
        assert [row["x"] for row in run(flow, **options).rows()] == [1]  # type: ignore[arg-type]


def ask(context: dg.FunctionContext, what: str) -> None:
    if what == "emit_critical":
        context.emit_critical("now")
    elif what == "emit_batch":
        context.emit_batch(BATCH)
    elif what == "run_alone":
        context.run_alone("now")
    else:
        context.set_timer("1ms", "now")


class Raising(dg.Function):
    scope = "partition"

    def __init__(self, what: str) -> None:
        self.what = what

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if row.x != 5:
            context.emit({"x": row.x})
            return
        context.emit({"x": 500})
        ask(context, self.what)
        context.emit({"x": 501})
        raise ValueError("five")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"x": 700})

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"x": 800})
        ask(context, self.what)
        raise ValueError("the end")


class Tells(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)

    def on_critical(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"x": 900})


@pytest.mark.parametrize("rows_max", [1, 3, 4096])
@pytest.mark.parametrize("what", ["emit_critical", "emit_batch", "run_alone", "set_timer"])
def test_a_call_that_raises_leaves_nothing_behind(what: str, rows_max: int) -> None:
    flow = dg.Dataflow("raising", on_error="side_output")
    rows = flow.source(dg.from_iterable([{"x": number} for number in range(8)])).process(Raising(what), X)
    rows.process(Tells, X).sink(dg.to_memory(name="out"))
    flow.errors.sink(dg.to_memory(name="errors"))
    done = run(flow, rows_max=rows_max)
    assert [row["x"] for row in done.rows("out")] == [0, 1, 2, 3, 4, 6, 7]
    assert len(done.rows("errors")) == 2
