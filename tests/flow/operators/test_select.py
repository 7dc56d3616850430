"""select, with_columns, drop, rename and map_batches: columns chosen and computed."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dirigo as dg
from dirigo.testing import run
from flow.flows import event, results

ROWS = [event("a", 1, 0), event("b", 2, 15)]


def test_select_takes_columns_and_expressions() -> None:
    out = results(ROWS, lambda s: s.select("key", tenfold=dg.col("value") * 10, copy="value", constant=7))
    assert out == [
        {"key": "a", "tenfold": 10, "copy": 1, "constant": 7},
        {"key": "b", "tenfold": 20, "copy": 2, "constant": 7},
    ]


def test_with_columns_keeps_the_others_and_replaces_in_place() -> None:
    out = results(ROWS[:1], lambda s: s.with_columns(value=dg.col("value") + 1, more=dg.lit("x")))
    assert out == [{"key": "a", "value": 2, "ts": 0, "more": "x"}]


def test_drop_and_rename() -> None:
    out = results(ROWS[:1], lambda s: s.drop("value").rename(key="name"))
    assert out == [{"name": "a", "ts": 0}]


def test_a_renamed_time_column_stays_the_time() -> None:
    out = results(ROWS, lambda s: s.rename(ts="at").window(dg.Tumbling("10ms")).aggregate(n=dg.count()))
    assert [row["window_start"] for row in out] == [0, 10]


NAMES = {"select": "select", "drop": "drop", "replace": "with_columns"}


@pytest.mark.parametrize("step", NAMES)
def test_a_stream_without_its_time_column_has_no_time(step: str) -> None:
    def build(s: dg.Stream) -> dg.Stream:
        rest = {"select": s.select("key"), "drop": s.drop("ts"), "replace": s.with_columns(ts=dg.col("ts") + 1)}[step]
        return rest.window(dg.Tumbling("10ms")).aggregate(n=dg.count())

    with pytest.raises(
        dg.FlowError, match=rf"has no time, since '{NAMES[step]}' .*its time 'ts'.*; keep that column as it is"
    ):
        results(ROWS, build)


STAMPED = pa.table({"key": ["a", "b"], "at": pa.array([0, 15], pa.timestamp("ms", "UTC"))})


def stamped(time: str = "at") -> dg.Stream:
    return dg.Dataflow("flow").source(dg.from_iterable(STAMPED, time=time))


@pytest.mark.parametrize("target", ["timestamp[us, UTC]", "timestamp[ms]", "timestamp[s]", "int64"])
def test_a_cast_to_another_type_of_time_keeps_the_time(target: str) -> None:
    flow = dg.Dataflow("flow")
    cast = flow.source(dg.from_iterable(STAMPED.slice(0, 1), time="at")).with_columns(at=dg.col("at").cast(target))
    assert cast.time is not None
    assert cast.time.type == cast.schema.field("at").type
    cast.window(dg.Tumbling("10ms")).aggregate(n=dg.count()).sink(dg.to_memory())
    assert [row["n"] for row in run(flow).rows()] == [1]


def test_the_time_is_that_of_the_column_with_its_name_and_otherwise_the_first_with_its_values() -> None:
    both = stamped().with_columns(copy=dg.col("at").cast("timestamp[us]"))
    assert both.time is not None
    assert both.time.name == "at"
    moved = stamped().select("key", when=dg.col("at").cast("timestamp[us]"), again="at")
    assert moved.time is not None
    assert (moved.time.name, moved.time.type) == ("when", pa.timestamp("us"))
    kept = stamped().with_columns(at=dg.col("at").cast("string"), when=dg.col("at"))
    assert kept.time is not None
    assert kept.time.name == "when"


@pytest.mark.parametrize(
    "casts", [["string"], ["date32"], ["string", "timestamp[ms]"], ["timestamp[us]", "int64"], ["int64", "timestamp[us]"]]
)
def test_a_cast_to_something_else_loses_the_time_and_whoever_needs_it_says_where(casts: list[str]) -> None:
    value = dg.col("at")
    for each in casts:
        value = value.cast(each)
    lost = stamped().with_columns(at=value).filter(dg.col("key") == "a")
    assert lost.time is None
    with pytest.raises(dg.FlowError) as found:
        lost.window(dg.Tumbling("10ms"))
    assert str(found.value) == (
        "a window on 'filter': the stream 'filter' has no time, since 'with_columns' makes its time 'at' something else; "
        "keep that column as it is, rename it, or cast it to another timestamp."
    )


def test_map_batches_gets_and_gives_arrow() -> None:
    def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pc.divide(pc.cast(batch.column("value"), pa.float64()), 2.0)], ["half"])

    assert results(ROWS, lambda s: s.map_batches(halved)) == [{"half": 0.5}, {"half": 1.0}]


def test_map_batches_may_give_fewer_rows_and_columns_in_another_order_and_width() -> None:
    def small(batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = batch.filter(pc.greater(batch.column("value"), 1))
        return pa.RecordBatch.from_arrays([kept.column("ts"), kept.column("value").cast(pa.int32())], ["ts", "value"])

    assert results(ROWS, lambda s: s.map_batches(small, {"value": int, "ts": int})) == [{"value": 2, "ts": 15}]


def test_expressions_without_keywords_have_a_name_of_their_own_or_an_alias() -> None:
    out = results(
        ROWS[:1], lambda s: s.select(dg.col("key"), (dg.col("value") * 10).alias("tenfold"), dg.col("ts").cast(str), more=1)
    )
    assert out == [{"key": "a", "tenfold": 10, "ts": "0", "more": 1}]
    out = results(ROWS[:1], lambda s: s.with_columns(dg.col("value").alias("copy"), (dg.col("value") + 1).alias("value")))
    assert out == [{"key": "a", "value": 2, "ts": 0, "copy": 1}]


def test_a_time_column_under_an_alias_stays_the_time() -> None:
    out = results(
        ROWS, lambda s: s.select("key", dg.col("ts").alias("at")).window(dg.Tumbling("10ms")).aggregate(n=dg.count())
    )
    assert [row["window_start"] for row in out] == [0, 10]
    cast = dg.col("ts").cast("timestamp[ms]").alias("at")
    out = results(ROWS, lambda s: s.select("key", cast).window(dg.Tumbling("10ms")).aggregate(n=dg.count()))
    assert [row["n"] for row in out] == [1, 1]


@pytest.mark.parametrize("method", ["select", "with_columns", "key_by"])
def test_an_expression_without_a_name_and_a_name_given_twice_are_refused(method: str) -> None:
    stream = dg.Dataflow("odd").source(dg.from_iterable(ROWS))
    with pytest.raises(dg.FlowError, match=r"'value \* 2' has no name; write \(value \* 2\)\.alias\('\.\.\.'\), or name="):
        getattr(stream, method)(dg.col("value") * 2)
    with pytest.raises(dg.FlowError, match="the column 'key' is named twice; name it once"):
        getattr(stream, method)("key", key=dg.col("value"))
    with pytest.raises(dg.FlowError, match="takes names of columns and expressions, not 7"):
        getattr(stream, method)(7)
    with pytest.raises(dg.FlowError, match="alias of 'value': give the column a name"):
        dg.col("value").alias("")
    with pytest.raises(dg.FlowError, match="alias of 'value': give the column a name, a text"):
        dg.col("value").alias(3)  # type: ignore[arg-type]
    with pytest.raises(dg.FlowError, match=r"alias of count\(\): give the column a name, a text"):
        dg.count().alias(3)  # type: ignore[arg-type]


def test_a_key_may_be_computed() -> None:
    rows = [event("a", value, value) for value in range(6)]

    def build(s: dg.Stream) -> dg.Stream:
        return s.key_by("key", odd=dg.col("value") % 2).aggregate(dg.count().alias("n"), total=dg.sum("value"))

    assert results(rows, build) == [{"key": "a", "odd": 0, "n": 3, "total": 6}, {"key": "a", "odd": 1, "n": 3, "total": 9}]
    doubled = results(rows, lambda s: s.key_by((dg.col("value") // 3).alias("third")).aggregate(n=dg.count()))
    assert doubled == [{"third": 0, "n": 3}, {"third": 1, "n": 3}]
    with pytest.raises(dg.FlowError, match="there is a column 'value' already; give the computed key another name"):
        results(rows, lambda s: s.key_by(value=dg.col("value") % 2).aggregate(n=dg.count()))
