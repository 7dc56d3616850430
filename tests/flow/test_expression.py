"""What each expression computes, shown on small batches."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression, as_expression, col, lit, type_of, udf, when

A, B, PRICE, TEXT, FLAG, TIME = col("a"), col("b"), col("price"), col("text"), col("flag"), col("time")
BATCH = pa.record_batch(
    {
        "a": pa.array([7, -7, 0, None]),
        "b": pa.array([2, 2, 5, 1], pa.int32()),
        "price": pa.array([1.5, -0.5, 2.0, None]),
        "text": pa.array(["Ab/c/", "x&id=7&id=8", "", None]),
        "flag": pa.array([True, False, None, True]),
        "time": pa.array([0, 1_600_000_000_123, -1, None]).cast(pa.timestamp("ms", "UTC")),
    }
)


def values(expression: Expression) -> list[Any]:
    array = expression.evaluate(BATCH)
    assert isinstance(array, pa.Array)
    assert len(array) == BATCH.num_rows
    assert array.type == type_of(expression, BATCH.schema, "select")
    assert pickle.loads(pickle.dumps(expression)).evaluate(BATCH).equals(array)
    result: list[Any] = array.to_pylist()
    return result


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (A + B, [9, -5, 5, None]),
        (1 + A, [8, -6, 1, None]),
        (A - B, [5, -9, -5, None]),
        (1 - A, [-6, 8, 1, None]),
        (A * B, [14, -14, 0, None]),
        (A / B, [3.5, -3.5, 0.0, None]),
        (7 / B, [3.5, 3.5, 1.4, 7.0]),
        (A % B, [1, 1, 0, None]),
        (A % -2, [-1, -1, 0, None]),
        (7 % B, [1, 1, 2, 0]),
        (A // B, [3, -4, 0, None]),
        (A // -2, [-4, 3, 0, None]),
        (7 // B, [3, 3, 1, 7]),
        (PRICE // 0.5, [3.0, -1.0, 4.0, None]),
        (-A, [-7, 7, 0, None]),
        (abs(A), [7, 7, 0, None]),
        (A == 7, [True, False, False, None]),
        (A != 7, [False, True, True, None]),
        (A < 0, [False, True, False, None]),
        (A <= 0, [False, True, True, None]),
        (A > 0, [True, False, False, None]),
        (A >= 0, [True, False, True, None]),
        (0 < A, [True, False, False, None]),  # noqa: SIM300
        ((A > 0) & FLAG, [True, False, False, None]),
        ((A > 0) | FLAG, [True, False, None, True]),
        (~FLAG, [False, True, None, False]),
        (FLAG & True, [True, False, None, True]),
        (lit(5), [5, 5, 5, 5]),
        (lit(None), [None] * 4),
        (lit(1) + 2, [3, 3, 3, 3]),
        (lit("a") + "b", ["ab"] * 4),
        (A + np.int64(1), [8, -6, 1, None]),
        (np.float64(2.0) * A, [14.0, -14.0, 0.0, None]),
    ],
)
def test_operators(expression: Expression, expected: list[Any]) -> None:
    assert values(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (A.is_null(), [False, False, False, True]),
        (A.is_not_null(), [True, True, True, False]),
        (A.fill_null(3), [7, -7, 0, 3]),
        (A.fill_null(0.5), [7.0, -7.0, 0.0, 0.5]),
        (A.fill_null(B), [7, -7, 0, 1]),
        (A.cast(float), [7.0, -7.0, 0.0, None]),
        (A.cast("string"), ["7", "-7", "0", None]),
        (A.between(0, 7), [True, False, True, None]),
        (A.between(-B, B), [False, False, True, None]),
        (A.is_in([7, 0]), [True, False, True, None]),
        (A.is_in([]), [False, False, False, None]),
        (B.is_in({5}), [False, False, True, False]),
        (TEXT.is_in(["", "y"]), [False, False, True, None]),
        (TIME.is_in([datetime(1970, 1, 1, tzinfo=UTC)]), [True, False, False, None]),
    ],
)
def test_nulls_types_and_membership(expression: Expression, expected: list[Any]) -> None:
    assert values(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (TEXT + "!", ["Ab/c/!", "x&id=7&id=8!", "!", None]),
        ("<" + TEXT, ["<Ab/c/", "<x&id=7&id=8", "<", None]),
        (TEXT.lower(), ["ab/c/", "x&id=7&id=8", "", None]),
        (TEXT.upper(), ["AB/C/", "X&ID=7&ID=8", "", None]),
        (TEXT.length(), [5, 11, 0, None]),
        (TEXT.contains("/c"), [True, False, False, None]),
        (TEXT.starts_with("A"), [True, False, False, None]),
        (TEXT.ends_with("8"), [False, True, False, None]),
        (TEXT.matches("^A?b?$|[0-9]"), [False, True, True, None]),
        (TEXT.extract("(&|^)id=([^&]*)", 2), [None, "7", None, None]),
        (TEXT.extract("(&|^)id=([^&]*)", 1), [None, "&", None, None]),
        (TEXT.extract("id=[0-9]"), [None, "id=7", None, None]),
        (TEXT.extract("(?P<key>id)=(?:[0-9])&([()a-z]+)", 2), [None, "id", None, None]),
        (TEXT.extract(r"[\](]*\(?(?i)(a)", 1), ["A", None, None, None]),
        (TEXT.split_part("/", 0), ["Ab", "x&id=7&id=8", "", None]),
        (TEXT.split_part("/", 1), ["c", None, None, None]),
        (TEXT.split_part("/", 2), ["", None, None, None]),
        (TEXT.split_part("/", 3), [None] * 4),
        (TEXT.count_of("id"), [0, 2, 0, None]),
        (TEXT.replace("id", "key"), ["Ab/c/", "x&key=7&key=8", "", None]),
    ],
)
def test_text(expression: Expression, expected: list[Any]) -> None:
    assert values(expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (TIME.hour(), [0, 12, 23, None]),
        (TIME.minute(), [0, 26, 59, None]),
        (TIME.year(), [1970, 2020, 1969, None]),
        (TIME.day_of_week(), [3, 6, 2, None]),
        (TIME.format_time("%Y-%m-%d"), ["1970-01-01", "2020-09-13", "1969-12-31", None]),
        (TIME.format_time("%H:%M"), ["00:00", "12:26", "23:59", None]),
        (TIME.format_time("%H:%M:%S 100%%"), ["00:00:00 100%", "12:26:40 100%", "23:59:59 100%", None]),
        (TIME.format_time("no time"), ["no time", "no time", "no time", None]),
        (TIME.cast(date).format_time("%d.%m."), ["01.01.", "13.09.", "31.12.", None]),
        (TIME.floor_time("10s").cast("timestamp[s, UTC]").cast("int64"), [0, 1_600_000_000, -10, None]),
        (TIME.between(datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)), [False, True, False, None]),
        (TIME - TIME, [timedelta(0)] * 3 + [None]),
        ((TIME + timedelta(seconds=2)).format_time("%S"), ["02", "42", "01", None]),
    ],
)
def test_time(expression: Expression, expected: list[Any]) -> None:
    assert values(expression) == expected


def test_literals_of_times_keep_the_unit_of_the_column() -> None:
    assert type_of(TIME + timedelta(seconds=1), BATCH.schema, "x") == pa.timestamp("ms", "UTC")
    assert type_of(TIME.fill_null(datetime(2020, 1, 1, tzinfo=UTC)), BATCH.schema, "x") == pa.timestamp("ms", "UTC")


def test_filling_a_narrow_column_keeps_it_narrow() -> None:
    assert type_of(B.fill_null(0), BATCH.schema, "x") == pa.int32()


def test_decimals_are_exact() -> None:
    product = lit(Decimal("0.908")) * A
    assert type_of(product, BATCH.schema, "select") == pa.decimal128(23, 3)
    assert values(product) == [Decimal("6.356"), Decimal("-6.356"), Decimal("0.000"), None]
    assert values((product > Decimal("6.355")) & (product < 7)) == [True, False, False, None]
    assert values(product % 2) == [Decimal("0.356"), Decimal("1.644"), Decimal(0), None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_times_of_every_unit_and_zone_are_formatted_and_floored(unit: str, zone: str | None) -> None:
    moments = pa.array([datetime(2020, 5, 17, 22, 40, 41, tzinfo=UTC), None, datetime(1961, 1, 2, 3, 4, 5, tzinfo=UTC)])
    array = pc.cast(moments, pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    batch = pa.record_batch({"time": array})
    local = pc.cast(array, pa.timestamp("s", zone)).to_pylist()
    for text in ("%Y-%m-%d", "%H", "%H:%M", "%Y %H:%M:%S"):
        expected = [None if moment is None else moment.strftime(text) for moment in local]
        assert TIME.format_time(text).evaluate(batch).to_pylist() == expected
    floored = TIME.floor_time("7s").evaluate(batch)
    assert floored.type == array.type
    seconds = pc.cast(floored, pa.timestamp("s", zone)).cast(pa.int64()).to_pylist()
    assert seconds == [
        None if second is None else second // 7 * 7 for second in pc.cast(local_seconds(array), pa.int64()).to_pylist()
    ]


def local_seconds(array: pa.Array) -> pa.Array:
    return pc.cast(array, pa.timestamp("s", array.type.tz))


def test_flooring_seconds_to_fractions_of_them_gives_milliseconds() -> None:
    batch = pa.record_batch({"time": pa.array([1, 2]).cast(pa.timestamp("s"))})
    assert TIME.floor_time("1500ms").evaluate(batch).cast(pa.int64()).to_pylist() == [0, 1_500]


def test_when_chooses_the_first_condition_that_holds() -> None:
    sign = when(A > 0, "plus").when(A < 0, "minus").otherwise("none")
    assert values(sign) == ["plus", "minus", "none", "none"]
    assert str(sign) == "when(a > 0, 'plus').when(a < 0, 'minus').otherwise('none')"
    assert values(when(A > 0, None).otherwise(A)) == [None, -7, 0, None]
    assert values(when(FLAG, A).otherwise(PRICE)) == [7.0, -0.5, 2.0, None]
    assert values(when(A > 0, Decimal("0.1")).otherwise(1)) == [Decimal("0.1"), 1, 1, 1]
    assert values(when(True, 1).otherwise(2)) == [1, 1, 1, 1]


def _as_numpy(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False) * 2


@pytest.mark.parametrize(
    "fn",
    [_as_numpy, lambda array: pc.multiply(array, 2), lambda array: pa.chunked_array([pc.multiply(array, 2)])],
)
def test_functions_get_arrays_and_return_arrays(fn: Callable[..., Any]) -> None:
    doubled = udf(fn, B, name="twice")
    assert doubled.evaluate(BATCH).to_pylist() == [4, 4, 10, 2]
    assert doubled.name == "twice"
    assert str(doubled + 1) == "twice(b) + 1"
    assert doubled.columns == {"b"}


def test_functions_get_literals_as_arrays_too() -> None:
    assert values_of_function(lambda left, right: pc.add(left, right), A, 1) == [8, -6, 1, None]
    assert values_of_function(lambda array: pa.scalar(len(array), pa.int64()), A) == [4] * 4


def values_of_function(fn: Callable[..., Any], *expressions: Any) -> list[Any]:
    result: list[Any] = udf(fn, *expressions).evaluate(BATCH).to_pylist()
    return result


def test_a_function_that_loses_rows_is_refused() -> None:
    with pytest.raises(FlowError, match="returned 3 values for 4 rows"):
        udf(lambda array: array[:3], A, name="short").evaluate(BATCH)


def test_columns_and_names_are_known() -> None:
    assert (A + B * A > 1).columns == {"a", "b"}
    assert lit(1).columns == frozenset()
    assert A.name == "a"
    assert A.cast(float).fill_null(0).name == "a"
    assert (A + 1).name is None


def test_dictionary_encoded_and_large_text_work_like_plain_text() -> None:
    text = pa.array(["Ab", None, "Ab"])
    for kind in (text.dictionary_encode(), text.cast(pa.large_string())):
        batch = pa.record_batch({"text": kind})
        for expression, expected in (
            (TEXT.lower(), ["ab", None, "ab"]),
            (TEXT + "c", ["Abc", None, "Abc"]),
            (TEXT == "Ab", [True, None, True]),
            (TEXT.is_in(["Ab"]), [True, None, True]),
            (TEXT.length(), [2, None, 2]),
        ):
            assert expression.evaluate(batch).to_pylist() == expected


def test_division_by_zero_is_infinite_for_fractions_and_an_error_for_integers() -> None:
    assert values(PRICE / 0)[:2] == [math.inf, -math.inf]
    with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
        (A // 0).evaluate(BATCH)
    with pytest.raises(pa.ArrowInvalid, match="divide by zero"):
        (A % 0).evaluate(BATCH)


def test_integers_do_not_wrap_around() -> None:
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        (A * 2**62).evaluate(BATCH)


def test_lengths_of_lists_and_bytes() -> None:
    batch = pa.record_batch({"a": pa.array([[1, 2], [], None]), "b": pa.array([b"x", b"", None])})
    assert A.length().evaluate(batch).to_pylist() == [2, 0, None]
    assert B.length().evaluate(batch).to_pylist() == [1, 0, None]


def test_plain_values_become_literals_and_expressions_stay() -> None:
    assert as_expression(A) is A
    assert as_expression("a").evaluate(BATCH).to_pylist() == ["a"] * 4
    assert lit(pa.scalar(5, pa.int8())).evaluate(BATCH).type == pa.int8()
