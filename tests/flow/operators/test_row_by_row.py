"""map, flat_map, filter and split: one row after the other, by Python functions and by expressions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dirigo as dg
from flow.flows import event, results, run_inline, unordered

ROWS = [event("a", 1, 0), event("b", -2, 5), event("a", 3, 12)]


@dataclass
class Doubled:
    key: str
    twice: int


def doubled(row: dg.Row) -> Doubled:
    return Doubled(row.key, row.value * 2)


def test_map_gives_one_row_for_each() -> None:
    out = results(ROWS, lambda s: s.map(lambda row: {"twice": row.value * 2}, {"twice": int}))
    assert out == [{"twice": 2}, {"twice": -4}, {"twice": 6}]


def test_map_takes_its_columns_from_the_return_annotation() -> None:
    assert results(ROWS[:1], lambda s: s.map(doubled)) == [{"key": "a", "twice": 2}]


def test_map_without_columns_is_refused() -> None:
    with pytest.raises(dg.FlowError, match=r"^map: say which columns the function returns, for example schema="):
        results(ROWS, lambda s: s.map(lambda row: row))


def test_map_may_change_the_type_of_the_time_column() -> None:
    def with_datetime(row: dg.Row) -> dict[str, Any]:
        return {"ts": datetime.fromtimestamp(row.ts / 1000, tz=None).astimezone(), "value": row.value}

    out = results(
        [event("a", 1, 1_000), event("a", 2, 1_999), event("a", 4, 2_000)],
        lambda s: (
            s.map(with_datetime, {"ts": pa.timestamp("us", "UTC"), "value": int})
            .window(dg.Tumbling("1s"))
            .aggregate(total=dg.sum("value"))
            .select("total")
        ),
    )
    assert out == [{"total": 3}, {"total": 4}]


def test_a_stream_whose_time_became_text_has_no_time() -> None:
    with pytest.raises(dg.FlowError, match="has no time"):
        results(
            ROWS,
            lambda s: s.map(lambda row: {"ts": str(row.ts)}, {"ts": str}).window(dg.Tumbling("1s")).aggregate(n=dg.count()),
        )


def test_flat_map_gives_any_number_of_rows() -> None:
    def repeated(row: dg.Row) -> list[tuple[str, int]] | None:
        return None if row.value < 0 else [(row.key, number) for number in range(row.value)]

    out = results(ROWS, lambda s: s.flat_map(repeated, {"key": str, "number": int}))
    assert out == [{"key": "a", "number": number} for number in (0, 0, 1, 2)]


def test_flat_map_takes_generators() -> None:
    def pairs(row: dg.Row) -> Any:
        yield {"n": row.value}
        yield {"n": -row.value}

    assert [row["n"] for row in results(ROWS, lambda s: s.flat_map(pairs, {"n": int}))] == [1, -1, -2, 2, 3, -3]


@pytest.mark.parametrize("condition", [dg.col("value") > 0, lambda row: row.value > 0])
def test_filter_keeps_rows_by_expression_and_by_function(condition: Any) -> None:
    assert results(ROWS, lambda s: s.filter(condition)) == [ROWS[0], ROWS[2]]


def test_filter_drops_rows_for_which_the_condition_is_null() -> None:
    rows = [{"n": 1}, {"n": None}, {"n": 5}]
    assert results(rows, lambda s: s.filter(dg.col("n") > 0), schema={"n": int}, time=None) == [{"n": 1}, {"n": 5}]


@pytest.mark.parametrize(
    "condition", [dg.col("n") > 2, lambda row: row.n is not None and row.n > 2], ids=["expression", "function"]
)
@settings(deadline=None, max_examples=20)
@given(numbers=st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=30), rows_max=st.integers(1, 8))
def test_split_sends_every_row_to_exactly_one_side(condition: Any, numbers: list[int | None], rows_max: int) -> None:
    flow = dg.Dataflow("split")
    yes, no = flow.source(dg.from_iterable([{"n": n} for n in numbers], {"n": int})).split(condition)
    yes_out, no_out = dg.to_memory(), dg.to_memory()
    yes.sink(yes_out)
    no.sink(no_out)
    run_inline(flow, rows_max)
    assert [row["n"] for row in yes_out.rows] == [n for n in numbers if n is not None and n > 2]
    assert [row["n"] for row in no_out.rows] == [n for n in numbers if n is None or n <= 2]


def test_split_asks_its_function_once_per_row() -> None:
    asked: list[int] = []

    def is_positive(row: dg.Row) -> bool:
        asked.append(row.value)
        return bool(row.value > 0)

    flow = dg.Dataflow("split")
    yes, no = flow.source(dg.from_iterable(ROWS)).split(is_positive)
    yes.sink(dg.to_memory())
    no.sink(dg.to_memory())
    run_inline(flow)
    assert asked == [1, -2, 3]


def test_one_side_of_a_split_may_be_left_alone_and_keeps_its_time() -> None:
    out = results(ROWS, lambda s: s.split(dg.col("value") > 0)[1].window(dg.Tumbling("10ms")).aggregate(n=dg.count()))
    assert out == [{"n": 1, "window_start": 0, "window_end": 10}]


def test_functions_behind_a_window_run_too() -> None:
    # They are not fused to the window, which runs alone, but get an actor of their own.
    out = results(
        ROWS,
        lambda s: (
            s.key_by("key")
            .window(dg.Tumbling("10ms"))
            .aggregate(n=dg.count())
            .map(lambda row: {"text": f"{row.key}{row.n}"}, {"text": str})
            .filter(lambda row: row.text != "b1")
        ),
    )
    assert unordered(out) == unordered([{"text": "a1"}, {"text": "a1"}])
