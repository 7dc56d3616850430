"""Many keys at once: on_batch with get_each, add_each and the like gives what on_message does row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.state import add
from dirigo.testing import assert_parallel_equals_sequential, run
from flow.flows import TS_SCHEMA, Rows, event, results, unordered

TOLD = {"key": str, "said": str}
SUMS = pa.schema([("key", pa.string()), ("sum", pa.int64())])


class RowSums(dg.Function):
    """The running sum of each key; at the end, all that is held."""

    ordered = True
    ttl: Any = None
    total = dg.ValueState(int, default=0, combine=add)
    least = dg.ValueState(int, default=0)
    values = dg.ListState(int)
    by_rest = dg.MapState(int, int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.total.add(row.value)
        if row.value == 6:
            self.least.set(0)
        else:
            self.least.set(row.value)
        self.values.append(row.value)
        self.by_rest.add(row.value % 3, row.value)
        said = f"{self.total.get()}"
        context.emit({"key": context.key, "said": said})


class BatchSums(RowSums):
    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        values = batch.column("value")
        sums = self.total.add_each(values)
        numbers = values.to_numpy()
        self.least.set_each(np.where(numbers == 6, 0, numbers))
        self.values.append_each(values)
        self.by_rest.add_each(numbers % 3, pa.chunked_array([values]))
        for key, total in zip(context.keys, sums, strict=True):
            context.emit({"key": key, "said": f"{total}"})


class ExpiringRows(dg.Function):
    ordered = True
    total = dg.ValueState(int, default=0, combine=add, ttl="4ms")
    last = dg.ValueState(list, default=[], ttl="6ms")
    values = dg.ListState(int, ttl="4ms")
    by_rest = dg.MapState(int, int, default=0, combine=add, ttl="5ms")

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        before = (self.total.get(), list(self.last.get()), self.values.read(), self.by_rest.get(row.value % 3, -1))
        self.total.add(row.value)
        self.last.set([row.value])
        self.values.append(row.value)
        self.by_rest.add(row.value % 3, row.value)
        context.emit({"key": context.key, "said": f"{before}"})


class ExpiringBatches(ExpiringRows):
    """Looks and writes row by row, with the vectorised means on batches of one row."""

    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        values = batch.column("value").to_pylist()
        rests = [value % 3 for value in values]
        seen = zip(
            self.total.get_each(),
            self.last.get_each(),
            self.values.read_each(),
            self.by_rest.get_each(rests, -1),
            strict=True,
        )
        for key, before in zip(context.keys, seen, strict=True):
            context.emit({"key": key, "said": f"{before}"})
        self.total.add_each(values)
        self.last.set_each([[value] for value in values])
        self.values.append_each(values)
        self.by_rest.add_each(rests, values)


def flow_of(function: type[dg.Function], rows: Rows) -> dg.Dataflow:
    flow = dg.Dataflow("batches", watermark_every="1ms", partitions=2)
    stream = flow.source(dg.from_iterable(rows, TS_SCHEMA, time="ts", out_of_orderness="3ms"))
    stream.key_by("key").process(function, TOLD, name="sums").sink(dg.to_memory())
    return flow


ROWS = st.lists(
    st.builds(event, st.sampled_from("abc"), st.integers(-3, 7), st.integers(0, 3)), min_size=1, max_size=30
).map(lambda rows: [row | {"ts": row["ts"] + number} for number, row in enumerate(rows)])


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 12))
def test_the_batch_form_is_the_row_form(rows: Rows, rows_max: int) -> None:
    one, other = run(flow_of(RowSums, rows), rows_max=rows_max), run(flow_of(BatchSums, rows), rows_max=rows_max)
    assert one.rows() == other.rows()
    assert one.state("sums") == other.state("sums")


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_so_it_is_with_values_that_expire(rows: Rows) -> None:
    one, other = run(flow_of(ExpiringRows, rows), rows_max=1), run(flow_of(ExpiringBatches, rows), rows_max=1)
    assert one.rows() == other.rows()
    assert one.state("sums") == other.state("sums")


def test_within_a_batch_values_expire_row_by_row() -> None:
    class Added(ExpiringRows):
        def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
            for key, total in zip(context.keys, self.total.add_each(batch.column("value")), strict=True):
                context.emit({"key": key, "said": f"{total}"})

    rows = [event("a", 1, 0), event("a", 1, 3), event("b", 1, 3), event("a", 1, 7), event("b", 1, 6)]
    out = results(rows, lambda s: s.key_by("key").process(Added, TOLD), partitions=1)
    assert [row["said"] for row in out] == ["1", "2", "1", "1", "2"]


class Combined(BatchSums):
    ordered = False
    least = dg.ValueState(int, default=0, combine=min)

    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        self.total.add_each(batch.column("value"))
        self.least.add_each(batch.column("value"))
        self.by_rest.add_each([0] * batch.num_rows, batch.column("value"))

    def on_end(self, context: dg.FunctionContext) -> None:
        context.emit({"key": context.key, "said": f"{self.total.get()} {self.least.get()} {self.by_rest[0]}"})


def test_the_batch_form_combines_under_chaos() -> None:
    rows = [event("abc"[number % 3], number - 50, number) for number in range(200)]
    assert_parallel_equals_sequential(flow_of(Combined, rows))
    expected = []
    for key in "abc":
        values = [row["value"] for row in rows if row["key"] == key]
        expected.append({"key": key, "said": f"{sum(values)} {min(values)} {sum(values)}"})
    assert unordered(run(flow_of(Combined, rows)).rows()) == unordered(expected)


class Mixed(dg.Function):
    """Most rows at once, and some of them one by one."""

    ordered = True
    count = dg.ValueState(int, default=0, combine=add)

    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        counts = self.count.add_each([1] * batch.num_rows)
        for position, count in enumerate(counts):
            if count % 3 == 0:
                context.at_row(position)
                self.count.set(0)
                context.set_event_timer(1_000, "reset")
                context.emit({"key": context.key, "said": f"{count}"})

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": payload})


def test_single_rows_of_a_batch_can_be_picked_out() -> None:
    rows = [event("ab"[number % 2], number, number) for number in range(6)]
    out = results(rows, lambda s: s.key_by("key").process(Mixed, TOLD), partitions=1)
    assert [(row["key"], row["said"]) for row in out] == [("a", "3"), ("b", "3"), ("a", "reset"), ("b", "reset")]


class Filtered(RowSums):
    """Hands some of its rows on to on_message."""

    def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
        assert len(context.keys) == batch.num_rows
        super().on_batch(context, batch.filter(pa.array(batch.column("value").to_numpy() % 2 == 0)))
        assert len(context.keys) == batch.num_rows


def test_a_batch_can_be_handed_on_in_part() -> None:
    rows = [event("ab"[number % 3 % 2], number, number) for number in range(12)]
    done = run(flow_of(Filtered, rows))
    assert done.rows() == run(flow_of(RowSums, [row for row in rows if row["value"] % 2 == 0])).rows()


def failing(body: Any) -> str:
    class Failing(dg.Function):
        ordered = True
        count = dg.ValueState(int, default=0, combine=add)
        values = dg.ListState(int)
        entries = dg.MapState(str, int)

        def on_batch(self, context: dg.FunctionContext, batch: pa.RecordBatch) -> None:
            body(self, context)

    with pytest.raises(dg.RowFailure) as error:
        results([event("a", 1, 1)], lambda s: s.key_by("key").process(Failing, TOLD))
    return str(error.value)


@pytest.mark.parametrize(
    "body",
    [
        lambda self, _: self.count.get(),
        lambda self, _: self.count.set(1),
        lambda self, _: self.count.set(0),
        lambda self, _: self.count.add(1),
        lambda self, _: self.values.append(1),
        lambda self, _: len(self.values),
        lambda self, _: self.entries.get("x"),
        lambda self, _: self.entries.add("x", 1),
        lambda _, context: context.key,
        lambda _, context: context.set_timer("1s"),
        lambda _, context: context.run_alone(1),
    ],
)
def test_without_a_current_key_there_is_an_error_that_says_what_to_do(body: Any) -> None:
    assert (
        "No key is current here: in on_batch use get_each(), set_each(), add_each() and the like, or "
        "context.at_row(position) before get() and set()."
    ) in failing(body)


def test_there_is_one_value_for_each_row() -> None:
    assert "add_each() takes one value for each of the 1 rows of the batch, not 2." in failing(
        lambda self, _: self.count.add_each([1, 2])
    )


def test_adding_to_a_state_that_combines_nothing_says_what_to_use_instead() -> None:
    def add_twice(self: Any, context: dg.FunctionContext) -> None:
        context.at_row(0)
        for _ in range(2):
            self.entries.add("x", 1)

    said = failing(add_twice)
    assert "declare it with combine=..., or, in a function that is ordered, use get() and set()." in said


@pytest.mark.parametrize("position", [-1, 1])
def test_a_row_that_the_batch_does_not_have_cannot_be_picked_out(position: int) -> None:
    said = failing(lambda _, context: context.at_row(position))
    assert f"at_row takes a position from 0 to 0, as there are rows, not {position}." in said


def test_outside_of_batches_there_are_no_rows() -> None:
    class Outside(Combined):
        def on_end(self, context: dg.FunctionContext) -> None:
            self.total.get_each()

    with pytest.raises(dg.RowFailure, match="There is no batch here whose rows have keys"):
        run(flow_of(Outside, [event("a", 1, 1)]))
