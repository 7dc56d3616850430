"""union: streams with the same columns put together."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.rows.common_types import common_type
from dirigo.testing import run
from flow.flows import TS_SCHEMA, event, results, run_inline, unordered


def test_a_union_has_all_rows_of_all_streams() -> None:
    flow = dg.Dataflow("union")
    first, second, third = (flow.source(dg.from_iterable([event(key, 1, 0)])) for key in "abc")
    out = dg.to_memory()
    first.union(second, third).sink(out)
    run_inline(flow)
    assert unordered(out.rows) == unordered([event(key, 1, 0) for key in "abc"])


def test_a_stream_in_a_union_with_itself_comes_twice() -> None:
    rows = [event("a", 1, 0), event("b", 2, 5)]
    assert unordered(results(rows, lambda s: s.union(s))) == unordered(rows * 2)


def test_branches_of_one_stream_come_together_again() -> None:
    rows = [event("a", value, value) for value in range(20)]

    def build(s: dg.Stream) -> dg.Stream:
        small, large = s.split(dg.col("value") < 7)
        return small.union(large.key_by("value").process(Same, TS_SCHEMA, time="ts"))

    assert unordered(results(rows, build)) == unordered(rows)


class Same(dg.Function):
    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        context.emit(row)


def test_windows_behind_a_union_count_the_rows_of_all_streams() -> None:
    flow = dg.Dataflow("union", watermark_every="1ms")
    early = flow.source(dg.from_iterable([event("a", 1, ts) for ts in range(0, 30, 2)], time="ts"))
    other = flow.source(dg.from_iterable([event("a", 1, ts) for ts in range(1, 30, 2)], time="ts"))
    out = dg.to_memory()
    early.union(other).key_by("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count()).sink(out)
    run_inline(flow, 1)
    assert [(row["window_start"], row["n"]) for row in out.rows] == [(0, 10), (10, 10), (20, 10)]


def of(flow: dg.Dataflow, time: str | None = None, **columns: pa.Array) -> dg.Stream:
    return flow.source(dg.from_iterable(pa.table(columns), time=time))


def test_columns_are_matched_by_name() -> None:
    flow = dg.Dataflow("union")
    one = of(flow, a=pa.array([1]), b=pa.array(["x"]))
    other = of(flow, b=pa.array(["y"]), a=pa.array([2]))
    one.union(other).sink(dg.to_memory())
    found = run(flow).table()
    assert found.schema.names == ["a", "b"]
    assert unordered(found.to_pylist()) == unordered([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])


def test_types_that_hold_each_other_are_made_one() -> None:
    flow = dg.Dataflow("union")
    one = of(flow, n=pa.array([1], pa.int32()), t=pa.array(["x"], pa.string_view()), e=pa.array([None], pa.null()))
    other = of(flow, n=pa.array([2**40]), t=pa.array(["y"]), e=pa.array([1.5]))
    more = of(flow, n=pa.array([3], pa.int8()), t=pa.array(["z"]), e=pa.array([2.5]))
    united = one.union(other)
    united.add(more)
    united.sink(dg.to_memory())
    found = run(flow).table()
    assert found.schema.types == [pa.int64(), pa.string(), pa.float64()]
    assert sorted(found.column("n").to_pylist()) == [1, 3, 2**40]
    assert sorted(found.column("t").to_pylist()) == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.uint8(), pa.int8(), pa.int16()),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.int64(), None),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int64(), pa.float64(), None),
        (pa.bool_(), pa.int64(), None),
        (pa.int64(), pa.string(), None),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string(), pa.binary(), None),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 2), None),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ms", "UTC")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("ms"), None),
        (pa.timestamp("ms"), pa.int64(), None),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.date32(), pa.timestamp("s"), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), None),
    ],
    ids=str,
)
def test_the_type_of_both_loses_nothing(one: pa.DataType, other: pa.DataType, common: pa.DataType | None) -> None:
    assert common_type(one, other) == common_type(other, one) == common


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"a": [1]}, "union: 'rows_2' has no column 'b' like the others of the union; add it, or drop it from them."),
        (
            {"a": [1], "b": ["x"], "c": [1]},
            "union: 'rows_2' has a column 'c' that the others of the union do not have; drop it, or add it there.",
        ),
        (
            {"a": ["1"], "b": ["x"]},
            (
                "union: 'rows_2' has the column 'a' as string and the others of the union as int64, which does not hold all "
                "of its values; cast one of them: with_columns(a=dg.col('a').cast(...))."
            ),
        ),
    ],
)
def test_a_sentence_says_which_column_differs(columns: dict[str, list[object]], sentence: str) -> None:
    flow = dg.Dataflow("union")
    one, other = of(flow, a=pa.array([1]), b=pa.array(["x"])), flow.source(dg.from_iterable(pa.table(columns)))
    with pytest.raises(dg.FlowError) as found:
        one.union(other)
    assert str(found.value) == sentence


def test_what_is_added_later_does_not_change_the_types_of_a_union() -> None:
    flow = dg.Dataflow("union")
    narrow, wide = of(flow, a=pa.array([1], pa.int32())), of(flow, a=pa.array([1]))
    with pytest.raises(dg.FlowError, match="has the column 'a' as int64 and the others of the union as int32"):
        narrow.union().add(wide)
    assert wide.union(narrow).schema.types == [pa.int64()]


def test_a_union_of_times_of_several_units_keeps_the_time() -> None:
    flow = dg.Dataflow("union", watermark_every="1ms")
    coarse = of(flow, "at", at=pa.array([0, 10], pa.timestamp("ms", "UTC")), key=pa.array([1, 1]))
    fine = of(flow, "at", key=pa.array([1, 1]), at=pa.array([5_000, 15_000], pa.timestamp("us", "UTC")))
    counts = coarse.union(fine).key_by("key").window(dg.Tumbling("10ms")).aggregate(n=dg.count())
    counts.sink(dg.to_memory())
    assert sorted(row["n"] for row in run(flow).rows()) == [2, 2]
