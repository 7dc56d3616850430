"""Joins: in windows of all kinds, by nearness in time, of whole streams, and with a table; against nested loops."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from dirigo.flow.operators.joins.matching import pairs
from flow.flows import Rows, results, run_inline, unordered

LEFT = pa.schema([("id", pa.int64()), ("left", pa.int64()), ("ts", pa.int64())])
RIGHT = pa.schema([("id", pa.int64()), ("right", pa.int64()), ("ts", pa.int64())])
IDS = st.integers(0, 3)


def sides(name: str, ids: st.SearchStrategy[int | None] = IDS) -> st.SearchStrategy[Rows]:
    row = st.fixed_dictionaries({"id": ids, name: st.integers(0, 99), "ts": st.integers(0, 30)})
    return st.lists(row, max_size=10).map(lambda rows: sorted(rows, key=lambda each: each["ts"]))


def joined(left: Rows, right: Rows, rows_max: int = 100, out_of_orderness: str = "0ms", **join: Any) -> Rows:
    flow = dg.Dataflow("join", watermark_every="1ms", partitions=2)
    one = flow.source(dg.from_iterable(left, LEFT, time="ts", out_of_orderness=out_of_orderness))
    other = flow.source(dg.from_iterable(right, RIGHT, time="ts", out_of_orderness=out_of_orderness))
    out = dg.to_memory()
    one.join(other, on="id", **join).sink(out)
    run_inline(flow, rows_max)
    return out.rows


def nested_loops(left: Rows, right: Rows, how: str) -> Rows:
    """The join of two tables in SQL."""

    def match(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return one["id"] is not None and one["id"] == other["id"]

    pairs = [(one, other) for one in left for other in right if match(one, other)]
    if how == "semi":
        return [one for one in left if any(match(one, other) for other in right)]
    if how == "anti":
        return [one for one in left if not any(match(one, other) for other in right)]
    rows = [{**one, "right": other["right"], "ts_right": other["ts"]} for one, other in pairs]
    if how in ("left", "outer"):
        lonely = [one for one in left if not any(match(one, other) for other in right)]
        rows += [{**one, "right": None, "ts_right": None} for one in lonely]
    if how in ("right", "outer"):
        lonely = [other for other in right if not any(match(one, other) for one in left)]
        rows += [
            {"id": other["id"], "left": None, "ts": None, "right": other["right"], "ts_right": other["ts"]}
            for other in lonely
        ]
    return rows


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
@settings(deadline=None, max_examples=12)
@given(data=st.data(), every=st.sampled_from([5, 10]), rows_max=st.integers(1, 10))
def test_a_window_join_joins_the_rows_of_each_window(how: Any, data: st.DataObject, every: int, rows_max: int) -> None:
    ids = IDS if how == "inner" else st.none() | IDS
    left, right = data.draw(sides("left", ids)), data.draw(sides("right", ids))
    out = joined(left, right, rows_max, window=dg.Sliding("10ms", every=f"{every}ms"), how=how)
    expected: Rows = []
    for start in range(-10, 40, every):
        within = [[row for row in side if start <= row["ts"] < start + 10] for side in (left, right)]
        expected += [
            {**row, "window_start": start, "window_end": start + 10} for row in nested_loops(within[0], within[1], how)
        ]
    assert unordered(out) == unordered(expected)


@pytest.mark.parametrize("how", ["left", "right", "outer", "semi", "anti"])
def test_a_row_without_a_key_has_no_partner_where_that_has_a_meaning(how: Any) -> None:
    left: Rows = [{"id": None, "left": 1, "ts": 1}, {"id": 2, "left": 2, "ts": 2}]
    right: Rows = [{"id": None, "right": 3, "ts": 1}, {"id": 2, "right": 4, "ts": 2}]
    out = joined(left, right, window=dg.Tumbling("10ms"), how=how)
    found = sorted((row["id"] or 0, row["left"] or 0, row.get("right") or 0) for row in out)
    assert (
        found
        == {
            "left": [(0, 1, 0), (2, 2, 4)],
            "right": [(0, 0, 3), (2, 2, 4)],
            "outer": [(0, 0, 3), (0, 1, 0), (2, 2, 4)],
            "semi": [(2, 2, 0)],
            "anti": [(0, 1, 0)],
        }[how]
    )


@pytest.mark.parametrize("bounds", [{"window": dg.Tumbling("10ms")}, {"within": ("5ms", "5ms")}, {}])
def test_a_row_without_a_key_is_bad_in_an_inner_join(bounds: dict[str, Any]) -> None:
    for left, right in (([{"id": None, "left": 1, "ts": 1}], []), ([], [{"id": None, "right": 1, "ts": 1}])):
        with pytest.raises(dg.RowFailure, match=r"operator 'join' cannot handle the row .*the key 'id' is null"):
            joined(left, right, **bounds)


@pytest.mark.parametrize("how", ["left", "anti"])
def test_a_part_of_a_key_that_is_null_is_no_key(how: Any) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("ts", pa.int64())])
    flow = dg.Dataflow("join")
    rows = [{"a": 1, "b": None, "ts": 1}, {"a": None, "b": "x", "ts": 1}, {"a": 1, "b": "x", "ts": 1}]
    one, other = (flow.source(dg.from_iterable(rows, schema, time="ts")) for _ in range(2))
    out = dg.to_memory()
    one.join(other, on=["a", "b"], window=dg.Tumbling("10ms"), how=how).sink(out)
    run_inline(flow)
    partners = {(row["a"], row["b"]): row.get("ts_right") for row in out.rows}
    lonely = {(1, None): None, (None, "x"): None}
    assert partners == (lonely if how == "anti" else {**lonely, (1, "x"): 1})


def test_a_null_among_the_values_of_a_dictionary_equals_nothing() -> None:
    one = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None]))
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array([None, "y", "x"]))
    assert [each.tolist() for each in pairs([one], [other])] == [[0], [2]]
    assert [each.tolist() for each in pairs([one], [one])] == [[0], [0]]


@pytest.mark.parametrize("bounds", [{"window": dg.Tumbling("10ms")}, {"within": ("5ms", "5ms")}, {}])
def test_not_a_number_equals_nothing_and_both_zeros_are_one(bounds: dict[str, Any]) -> None:
    flow = dg.Dataflow("join")
    sources = (
        dg.from_iterable([{"x": x, "ts": 1} for x in numbers], {"x": float, "ts": int}, time="ts")
        for numbers in ([float("nan"), 0.0, 1.5], [float("nan"), -0.0, 2.5])
    )
    one, other = (flow.source(source) for source in sources)
    out = dg.to_memory()
    one.join(other, on="x", **bounds).sink(out)
    run_inline(flow)
    assert [row["x"] for row in out.rows] == [0.0]


def test_a_join_in_windows_can_follow_windows_whose_columns_are_renamed() -> None:
    flow = dg.Dataflow("join")
    left = flow.source(dg.from_iterable([{"id": 1, "left": 5, "ts": 3}], LEFT, time="ts"))
    right = flow.source(dg.from_iterable([{"id": 1, "right": 5, "ts": 4}], RIGHT, time="ts"))
    counts = right.key_by("id").window(dg.Tumbling("10ms")).aggregate(n=dg.count())
    out, semi = dg.to_memory(), dg.to_memory()
    left.join(counts.rename(window_start="first", window_end="last"), on="id", window=dg.Tumbling("10ms")).sink(out)
    left.join(counts, on="id", window=dg.Tumbling("10ms"), how="semi").sink(semi)  # has no columns of the right side
    run_inline(flow)
    (row,) = out.rows
    assert (row["n"], row["first"], row["last"], row["window_start"], row["window_end"]) == (1, 0, 10, 0, 10)
    assert semi.rows == [{"id": 1, "left": 5, "ts": 3, "window_start": 0, "window_end": 10}]


def test_the_windows_of_a_join_of_times_in_seconds_are_as_fine_as_they_are_long() -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("s", "UTC"))])
    flow = dg.Dataflow("join")
    one, other = (
        flow.source(dg.from_iterable([{"id": 1, "ts": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}], schema, time="ts"))
        for _ in range(2)
    )
    out = dg.to_memory()
    one.join(other, on="id", window=dg.Tumbling("400ms")).sink(out)
    run_inline(flow)
    (row,) = out.rows
    assert (row["window_start"].microsecond, row["window_end"].microsecond) == (800_000, 200_000)


@settings(deadline=None, max_examples=25)
@given(
    left=sides("left"),
    right=sides("right"),
    before=st.integers(0, 8),
    after=st.integers(0, 8),
    rows_max=st.integers(1, 10),
    shuffled=st.booleans(),
)
def test_an_interval_join_gives_every_pair_near_in_time_once(
    left: Rows, right: Rows, before: int, after: int, rows_max: int, shuffled: bool
) -> None:
    order = (lambda rows: rows[::-1]) if shuffled else list
    out = joined(order(left), order(right), rows_max, "30ms", within=(f"{before}ms", f"{after}ms"))
    expected = [
        {**one, "right": other["right"], "ts_right": other["ts"]}
        for one in left
        for other in right
        if one["id"] == other["id"] and one["ts"] - before <= other["ts"] <= one["ts"] + after
    ]
    assert unordered(out) == unordered(expected)


def test_rows_as_old_as_the_watermark_are_joined_with_those_before_it() -> None:
    left = [{"id": 1, "left": number, "ts": 5} for number in range(3)]
    right = [{"id": 1, "right": number, "ts": 5} for number in range(3)]
    out = joined(left, right, rows_max=1, within=("0ms", "0ms"))
    assert sorted((row["left"], row["right"]) for row in out) == [(one, other) for one in range(3) for other in range(3)]


@settings(deadline=None, max_examples=25)
@given(left=sides("left"), right=sides("right"), rows_max=st.integers(1, 10))
def test_an_unbounded_join_gives_every_pair_once(left: Rows, right: Rows, rows_max: int) -> None:
    assert unordered(joined(left, right, rows_max)) == unordered(nested_loops(left, right, "inner"))


def test_a_stream_can_be_joined_with_itself() -> None:
    rows = [{"id": number % 3, "ts": number} for number in range(9)]
    out = results(rows, lambda s: s.join(s, on="id"), schema={"id": int, "ts": int}, rows_max=2)
    assert len(out) == 27


def test_keys_may_have_different_names_and_widths() -> None:
    flow = dg.Dataflow("join")
    orders = flow.source(dg.from_iterable([{"seller": 1}, {"seller": 2}], pa.schema([("seller", pa.int32())])))
    people = flow.source(dg.from_iterable([{"id": 2, "name": "B"}, {"id": 1 << 40, "name": "C"}], {"id": int, "name": str}))
    out = dg.to_memory()
    orders.join(people, on={"seller": "id"}).sink(out)
    run_inline(flow)
    assert out.rows == [{"seller": 2, "id": 2, "name": "B"}]


@pytest.mark.parametrize(("one", "other"), [(pa.int32(), pa.int64()), (pa.uint64(), pa.int64()), (pa.int8(), pa.uint16())])
def test_an_outer_join_of_keys_of_different_widths_keeps_both(one: pa.DataType, other: pa.DataType) -> None:
    flow = dg.Dataflow("join")
    largest = 1 << 40 if other == pa.int64() else 1 << 15
    fields = [("ts", pa.int64())]
    left = flow.source(
        dg.from_iterable([{"id": 1, "ts": 0}, {"id": 2, "ts": 0}], pa.schema([("id", one), *fields]), time="ts")
    )
    right = flow.source(
        dg.from_iterable([{"id": 2, "ts": 0}, {"id": largest, "ts": 0}], pa.schema([("id", other), *fields]), time="ts")
    )
    out = dg.to_memory()
    left.join(right, on="id", window=dg.Tumbling("1s"), how="outer").sink(out)
    run_inline(flow)
    assert sorted(int(row["id"]) for row in out.rows) == [1, 2, largest]


def test_several_keys_must_all_be_equal() -> None:
    flow = dg.Dataflow("join")
    left = flow.source(dg.from_iterable([{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]))
    right = flow.source(dg.from_iterable([{"a": 1, "b": "y", "c": 7}, {"a": 2, "b": "y", "c": 8}]))
    out = dg.to_memory()
    left.join(right, on=["a", "b"]).sink(out)
    run_inline(flow)
    assert out.rows == [{"a": 1, "b": "y", "c": 7}]


def test_the_suffix_tells_columns_of_one_name_apart() -> None:
    out = joined([{"id": 1, "left": 2, "ts": 3}], [{"id": 1, "right": 4, "ts": 5}], suffix="_of_other")
    assert out == [{"id": 1, "left": 2, "ts": 3, "right": 4, "ts_of_other": 5}]


def test_windows_follow_a_window_join() -> None:
    flow = dg.Dataflow("join", watermark_every="1ms")
    left = flow.source(dg.from_iterable([{"id": 1, "left": ts, "ts": ts} for ts in range(40)], LEFT, time="ts"))
    right = flow.source(dg.from_iterable([{"id": 1, "right": ts, "ts": ts} for ts in range(40)], RIGHT, time="ts"))
    out = dg.to_memory()
    pairs = left.join(right, on="id", window=dg.Tumbling("5ms")).rename(window_start="from_", window_end="until")
    pairs.window(dg.Tumbling("10ms")).aggregate(n=dg.count()).sink(out)
    run_inline(flow, 1)
    assert [row["n"] for row in out.rows] == [50, 50, 50, 50]


# --- tables ------------------------------------------------------------------------------------------------------------

TABLE = [{"id": 1, "name": "one"}, {"id": 1, "name": "uno"}, {"id": 3, "name": "three"}, {"id": None, "name": "nobody"}]
NUMBERS = [{"id": 3, "n": 30}, {"id": 1, "n": 10}, {"id": 2, "n": 20}, {"id": None, "n": 0}]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(3, 30, "three"), (1, 10, "one"), (1, 10, "uno")]),
        ("left", [(3, 30, "three"), (1, 10, "one"), (1, 10, "uno"), (2, 20, None), (None, 0, None)]),
        ("semi", [(3, 30), (1, 10)]),
        ("anti", [(2, 20), (None, 0)]),
    ],
)
@pytest.mark.parametrize("as_table", [False, True])
def test_join_table_looks_every_row_up(how: Any, expected: list[tuple[Any, ...]], as_table: bool) -> None:
    table: Any = pa.Table.from_pylist(TABLE) if as_table else TABLE
    out = results(
        NUMBERS, lambda s: s.join_table(table, on="id", how=how), schema={"id": int, "n": int}, time=None, rows_max=10
    )
    assert sorted(map(repr, (tuple(row.values()) for row in out))) == sorted(map(repr, expected))


def test_join_table_with_several_keys_and_an_empty_table() -> None:
    table = [{"x": 1, "y": "a", "z": 5.0}, {"x": 1, "y": None, "z": 6.0}]
    rows = [{"x": 1, "b": "a"}, {"x": 1, "b": None}, {"x": 2, "b": "a"}]
    schema = {"x": int, "b": str}
    out = results(rows, lambda s: s.join_table(table, on={"x": "x", "b": "y"}), schema=schema, time=None)
    assert out == [{"x": 1, "b": "a", "y": "a", "z": 5.0}]
    empty = pa.Table.from_pylist(table).slice(0, 0)
    assert results(rows, lambda s: s.join_table(empty, on={"x": "x"}), schema=schema, time=None) == []
    kept = results(rows, lambda s: s.join_table(empty, on={"x": "x"}, how="left"), schema=schema, time=None)
    assert [(row["x"], row["z"]) for row in kept] == [(1, None), (1, None), (2, None)]


@pytest.mark.parametrize("on", ["x", ["x", "y"]])
def test_not_a_number_is_in_no_table(on: Any) -> None:
    table = [{"x": float("nan"), "y": "same", "n": 1}, {"x": 0.0, "y": "same", "n": 2}]
    rows = [{"x": float("nan"), "y": "same"}, {"x": -0.0, "y": "same"}]
    out = results(rows, lambda s: s.join_table(table, on=on), schema={"x": float, "y": str}, time=None)
    assert [row["n"] for row in out] == [2]


def test_join_table_keeps_the_time() -> None:
    rows = [{"id": 1, "ts": 5}, {"id": 3, "ts": 25}]
    out = results(
        rows,
        lambda s: s.join_table(TABLE, on="id").window(dg.Tumbling("10ms")).aggregate(n=dg.count()),
        schema={"id": int, "ts": int},
    )
    assert [(row["n"], row["window_start"]) for row in out] == [(2, 0), (1, 20)]
