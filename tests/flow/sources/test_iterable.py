"""Rows out of Python iterables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import BadRow, Source, from_iterable


@dataclass
class Bid:
    price: int
    bidder: str


class Point(NamedTuple):
    x: float
    y: float


def read_all(source: Source, rows_max: int = 1000) -> tuple[list[dict[str, Any]], list[BadRow]]:
    (split,) = source.splits(3)
    rows: list[dict[str, Any]] = []
    bad: list[BadRow] = []
    while not split.ended:
        piece = split.read(rows_max)
        if piece is not None:
            assert piece.rows.schema == source.schema
            assert piece.rows.num_rows + len(piece.bad) <= rows_max
            rows += piece.rows.to_pylist()
            bad += piece.bad
    split.close()
    return rows, bad


def test_dicts_come_out_as_they_are() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    source = from_iterable(rows)
    assert source.schema == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert source.is_bounded
    assert read_all(source) == (rows, [])


def test_a_list_can_be_read_again() -> None:
    source = from_iterable([{"a": 1}])
    assert read_all(source) == read_all(source) == ([{"a": 1}], [])


def test_an_empty_list_with_a_schema_ends_at_once() -> None:
    assert read_all(from_iterable([], {"a": int})) == ([], [])


def test_dataclasses_and_named_tuples_bring_their_schema() -> None:
    bids = from_iterable([Bid(1, "x"), Bid(2, "y")])
    assert bids.schema == pa.schema([("price", pa.int64()), ("bidder", pa.string())])
    assert read_all(bids)[0] == [{"price": 1, "bidder": "x"}, {"price": 2, "bidder": "y"}]
    assert read_all(from_iterable([Point(1.0, 2.0)]))[0] == [{"x": 1.0, "y": 2.0}]


def test_tuples_need_a_schema() -> None:
    assert read_all(from_iterable([(1, "x")], {"a": int, "b": str}))[0] == [{"a": 1, "b": "x"}]
    with pytest.raises(FlowError, match="give schema="):
        from_iterable([(1, "x")])


def test_batches_and_tables_come_in_parts() -> None:
    table = pa.table({"a": list(range(10))})
    batch = pa.record_batch({"a": [10, 11]})
    rows, bad = read_all(from_iterable([table, batch]), rows_max=4)
    assert [row["a"] for row in rows] == list(range(12))
    assert bad == []


def test_one_table_or_batch_is_given_as_it_is() -> None:
    table = pa.table({"a": pa.chunked_array([[1, 2], [], [3]], pa.int64())})
    for rows, expected in ((table, [1, 2, 3]), (pa.record_batch({"a": [4, 5]}), [4, 5]), (table.slice(0, 0), [])):
        source = from_iterable(rows)
        assert source.schema == pa.schema([("a", pa.int64())])
        for _ in range(2):
            found, bad = read_all(source, rows_max=2)
            assert ([row["a"] for row in found], bad) == (expected, [])
    assert read_all(from_iterable(lambda: table))[0] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_batch_of_other_types_is_cast_and_its_misfits_are_bad_rows() -> None:
    narrow = pa.record_batch({"a": pa.array([1, 2], pa.int32())})
    wrong = pa.record_batch({"a": ["x"]})
    rows, bad = read_all(from_iterable([narrow, wrong], {"a": int}))
    assert rows == [{"a": 1}, {"a": 2}]
    assert [each.row for each in bad] == ["{'a': 'x'}"]


def test_two_columns_of_the_same_name_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    complaint = "numbers: the schema has the column 'x' more than once; rename one of them."
    for schema in (None, {"x": int}):
        for rows in (twice, twice.to_batches()[0]):
            with pytest.raises(FlowError, match=complaint):
                from_iterable(rows, schema, name="numbers")
        with pytest.raises(FlowError, match=complaint):
            read_all(from_iterable([twice], schema, name="numbers"))
        with pytest.raises(FlowError, match=complaint):
            read_all(from_iterable([pa.table({"x": [1]}), twice], schema, name="numbers"))
        with pytest.raises(FlowError, match=complaint):
            read_all(from_iterable(lambda: twice, schema, name="numbers"))


@pytest.mark.parametrize("rows_max", [1, 2, 1000])
@pytest.mark.parametrize(
    ("values", "kind", "good", "bad"),
    [
        (pa.array([1.0, 1.5, 2.0]), pa.int64(), [1, 2], [2]),
        (pa.array(["1", "b", "2"]), pa.int64(), [1, 2], [2]),
        (pa.array([b"a", b"\xff", b"c"]), pa.string(), ["a", "c"], [2]),
        (pa.array([1, 2**40, None, 3]), pa.int32(), [1, None, 3], [2]),
        (pa.array([[1.0], [1.5], [], None]), pa.list_(pa.int64()), [[1], [], None], [2]),
        (pa.array([b"2", b"\xff"]).dictionary_encode(), pa.string(), ["2"], [2]),
        (pa.array([1, 2]), pa.string(), ["1", "2"], []),
    ],
)
def test_whether_a_row_of_a_batch_can_be_cast_is_up_to_that_row(
    values: pa.Array, kind: pa.DataType, good: list[Any], bad: list[int], rows_max: int
) -> None:
    table = pa.table({"x": values})
    rows, errors = read_all(from_iterable(table, pa.schema([("x", kind)]), name="numbers"), rows_max)
    assert [row["x"] for row in rows] == good
    assert [error.error.partition(":")[0] for error in errors] == [f"numbers, row {number}" for number in bad]


@pytest.mark.parametrize("rows_max", [1, 2, 1000])
def test_times_of_a_batch_are_cut_to_the_unit_of_their_column(rows_max: int) -> None:
    table = pa.table({"at": pa.array([1_000, 1_500, None], pa.timestamp("us", "UTC"))})
    source = from_iterable(table, pa.schema([("at", pa.timestamp("ms", "UTC"))]))
    rows, errors = read_all(source, rows_max)
    assert [row["at"] for row in rows] == [datetime(1970, 1, 1, 0, 0, 0, 1_000, UTC)] * 2 + [None]
    assert errors == []


def test_a_bad_row_does_not_take_others_with_it() -> None:
    rows: list[Any] = [{"a": 1}, {"a": "two"}, {"a": 3}, {"b": 4}, None, {"a": 5}]
    good, bad = read_all(from_iterable(rows, {"a": int}))
    assert good == [{"a": 1}, {"a": 3}, {"a": 5}]
    assert [each.row for each in bad] == ["{'a': 'two'}", "{'b': 4}", "None"]
    assert bad[0].error.startswith("rows, row 2: ")
    assert bad[2].error.startswith("rows, row 5: ")


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.one_of(st.integers(0, 9), st.just("bad"))), rows_max=st.integers(1, 20))
def test_every_row_comes_out_once_good_or_bad(values: list[int | str], rows_max: int) -> None:
    good, bad = read_all(from_iterable([{"a": value} for value in values], {"a": int}), rows_max)
    assert [row["a"] for row in good] == [value for value in values if value != "bad"]
    assert len(bad) == values.count("bad")


def test_very_many_bad_rows_are_no_trouble() -> None:
    begin = time.perf_counter()
    good, bad = read_all(from_iterable([{"a": "x"}] * 4096, {"a": int}), rows_max=4096)
    assert (len(good), len(bad)) == (0, 4096)
    assert time.perf_counter() - begin < 5


def test_a_bad_row_among_the_first_does_not_spoil_the_schema() -> None:
    source = from_iterable([{"a": 1}, {"a": "x"}, {"a": 2}])
    good, bad = read_all(source)
    assert good == [{"a": 1}, {"a": 2}]
    assert len(bad) == 1


def test_a_generator_loses_no_row_to_the_peeking_and_is_read_once() -> None:
    source = from_iterable({"a": number} for number in range(250))
    assert [row["a"] for row in read_all(source)[0]] == list(range(250))
    with pytest.raises(FlowError, match="only once"):
        source.splits(1)


def test_a_function_is_called_for_every_reading() -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield from ({"a": number} for number in range(150))

    source = from_iterable(rows)
    assert len(read_all(source)[0]) == len(read_all(source)[0]) == 150


def test_slow_rows_come_as_they_come() -> None:
    def slow() -> Iterator[dict[str, int]]:
        for number in range(3):
            yield {"a": number}
            time.sleep(0.01)

    (split,) = from_iterable(slow, {"a": int}).splits(1)
    first = split.read(1000)
    assert first is not None
    assert first.rows.num_rows < 3
    split.close()


def test_closing_ends_the_generator() -> None:
    closed = []

    def rows() -> Iterator[dict[str, int]]:
        try:
            yield {"a": 1}
            yield {"a": 2}
        finally:
            closed.append(True)

    (split,) = from_iterable(rows(), {"a": int}).splits(1)
    split.read(1)
    split.close()
    split.close()
    assert closed == [True]
    assert split.ended


def test_common_options_are_checked() -> None:
    rows = [{"at": datetime(2026, 1, 1, tzinfo=UTC), "ms": 5, "text": "x"}]
    source = from_iterable(rows, time="at", out_of_orderness="2s", idle_after="1m", name="bids")
    assert (source.time, source.out_of_orderness_ms, source.idle_after_ms, source.name) == ("at", 2000, 60_000, "bids")
    assert from_iterable(rows, time="ms").time == "ms"
    with pytest.raises(FlowError, match="did you mean 'at'"):
        from_iterable(rows, time="att")
    with pytest.raises(FlowError, match="'text' has type string"):
        from_iterable(rows, time="text")
    with pytest.raises(FlowError, match="out_of_orderness"):
        from_iterable(rows, out_of_orderness="soon")


@pytest.mark.parametrize("rows", ["text", {"a": 1}, 5])
def test_what_is_no_collection_of_rows_is_refused(rows: Any) -> None:
    with pytest.raises(FlowError, match="no collection of rows"):
        from_iterable(rows)


def test_no_rows_and_no_schema_is_refused() -> None:
    with pytest.raises(FlowError, match="no rows to work the columns out"):
        from_iterable([])
