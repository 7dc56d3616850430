"""Expressions against plain Python: the same trees, computed value by value."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.expressions.expression import Expression, as_expression, col, lit, type_of, when

# An expression and what it means for one row in plain Python, where None spreads.
Pair: TypeAlias = tuple[Expression, Callable[[dict[str, Any]], Any]]

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "f": pa.float64()})
NULLABLE_INTEGERS = st.none() | st.integers(-1_000, 1_000)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"a": NULLABLE_INTEGERS, "b": NULLABLE_INTEGERS, "f": st.none() | st.integers(-99, 99).map(lambda n: n / 4)}
    ),
    max_size=6,
)


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: None if any(value is None for value in values) else function(*values)


def _column(name: str) -> Pair:
    return col(name), lambda row: row[name]


def _literal(value: int) -> Pair:
    return lit(value), lambda _: value


def _binary(function: Callable[..., Any]) -> Callable[[tuple[Pair, Pair]], Pair]:
    def build(pairs: tuple[Pair, Pair]) -> Pair:
        (left, left_meaning), (right, right_meaning) = pairs
        return function(left, right), lambda row: _spread(function)(left_meaning(row), right_meaning(row))

    return build


def _by_constant(function: Callable[..., Any]) -> Callable[[tuple[Pair, int]], Pair]:
    def build(arguments: tuple[Pair, int]) -> Pair:
        (expression, meaning), divisor = arguments
        return function(expression, divisor), lambda row: _spread(function)(meaning(row), divisor)

    return build


def _unary(function: Callable[..., Any]) -> Callable[[Pair], Pair]:
    return lambda pair: (function(pair[0]), lambda row: _spread(function)(pair[1](row)))


def _numbers(depth: int) -> st.SearchStrategy[Pair]:
    leaves = st.sampled_from(["a", "b", "f"]).map(_column) | st.integers(-5, 5).map(_literal)
    if depth == 0:
        return leaves
    inner = _numbers(depth - 1)
    divisors = st.integers(-7, 7).filter(bool)
    return st.one_of(
        leaves,
        *(st.tuples(inner, inner).map(_binary(function)) for function in (operator.add, operator.sub, operator.mul)),
        *(st.tuples(inner, divisors).map(_by_constant(function)) for function in (operator.mod, operator.floordiv)),
        *(inner.map(_unary(function)) for function in (operator.neg, abs)),
    )


def _kleene_and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _conditions(depth: int) -> st.SearchStrategy[Pair]:
    numbers = _numbers(1)
    comparisons = st.one_of(
        *(
            st.tuples(numbers, numbers).map(_binary(function))
            for function in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
        )
    )
    if depth == 0:
        return comparisons
    inner = _conditions(depth - 1)

    def both(pairs: tuple[Pair, Pair]) -> Pair:
        (left, left_meaning), (right, right_meaning) = pairs
        return left & right, lambda row: _kleene_and(left_meaning(row), right_meaning(row))

    def either(pairs: tuple[Pair, Pair]) -> Pair:
        (left, left_meaning), (right, right_meaning) = pairs
        return left | right, lambda row: _not(_kleene_and(_not(left_meaning(row)), _not(right_meaning(row))))

    def inverted(pair: Pair) -> Pair:
        return ~pair[0], lambda row: _not(pair[1](row))

    return st.one_of(
        comparisons, st.tuples(inner, inner).map(both), st.tuples(inner, inner).map(either), inner.map(inverted)
    )


def _evaluate(expression: Expression, rows: list[dict[str, Any]]) -> list[Any]:
    array = expression.evaluate(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    assert array.type == type_of(expression, SCHEMA, "x")
    values: list[Any] = array.to_pylist()
    return values


@settings(deadline=None)
@given(_numbers(3), ROWS)
def test_arithmetic_is_that_of_python(pair: Pair, rows: list[dict[str, Any]]) -> None:
    expression, meaning = pair
    assert _evaluate(expression, rows) == [meaning(row) for row in rows]


@settings(deadline=None)
@given(_conditions(2), ROWS)
def test_conditions_are_those_of_sql(pair: Pair, rows: list[dict[str, Any]]) -> None:
    expression, meaning = pair
    assert _evaluate(expression, rows) == [meaning(row) for row in rows]


@settings(deadline=None)
@given(st.lists(st.tuples(_conditions(0), _numbers(0)), min_size=1, max_size=3), _numbers(0), ROWS)
def test_choices_are_those_of_if_and_elif(
    branches: list[tuple[Pair, Pair]], default: Pair, rows: list[dict[str, Any]]
) -> None:
    cases = when(branches[0][0][0], branches[0][1][0])
    for (condition, _), (value, _) in branches[1:]:
        cases = cases.when(condition, value)

    def meaning(row: dict[str, Any]) -> Any:
        for (_, condition), (_, value) in branches:
            if condition(row):
                return value(row)
        return default[1](row)

    assert _evaluate(cases.otherwise(default[0]), rows) == [meaning(row) for row in rows]


@settings(deadline=None)
@given(_numbers(3), ROWS)
def test_the_text_of_an_expression_is_python_with_the_same_meaning(pair: Pair, rows: list[dict[str, Any]]) -> None:
    names = {"a": col("a"), "b": col("b"), "f": col("f"), "abs": abs}
    rebuilt = as_expression(eval(str(pair[0]), names))
    assert _evaluate(rebuilt, rows) == _evaluate(pair[0], rows)


@settings(deadline=None)
@given(
    st.lists(st.integers(-(2**62), 2**62), max_size=5),
    st.sampled_from([-(2**40), -7, -2, -1, 1, 2, 3, 123, 10**9 + 7, 2**61]),
)
def test_large_integers_divide_as_in_python(numbers: list[int], divisor: int) -> None:
    batch = pa.record_batch({"a": pa.array(numbers, pa.int64())})
    assert (col("a") // divisor).evaluate(batch).to_pylist() == [number // divisor for number in numbers]
    assert (col("a") % divisor).evaluate(batch).to_pylist() == [number % divisor for number in numbers]
    assert (col("a") / divisor).evaluate(batch).to_pylist() == pytest.approx([number / divisor for number in numbers])


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), max_size=5), st.sampled_from([-2.5, -0.1, 0.1, 0.25, 3.0, 1e6]))
def test_fractions_divide_as_in_python(numbers: list[float], divisor: float) -> None:
    batch = pa.record_batch({"f": pa.array(numbers, pa.float64())})
    assert (col("f") // divisor).evaluate(batch).to_pylist() == [number // divisor for number in numbers]
    assert (col("f") % divisor).evaluate(batch).to_pylist() == [number % divisor for number in numbers]
    assert all(map(math.isfinite, (col("f") / divisor).evaluate(batch).to_pylist()))


@settings(deadline=None)
@given(st.lists(st.integers(-(10**18), 10**18), max_size=5))
def test_products_of_decimals_are_exact(numbers: list[int]) -> None:
    product = (lit(Decimal("0.908")) * col("a")).evaluate(pa.record_batch({"a": pa.array(numbers, pa.int64())}))
    assert list(map(Fraction, product.to_pylist())) == [Fraction(908, 1_000) * number for number in numbers]


TEXTS = st.lists(st.text(alphabet="ab/&=c ", max_size=8), max_size=5)


@settings(deadline=None)
@given(TEXTS, st.text(alphabet="ab/", min_size=1, max_size=2), st.integers(0, 3))
def test_text_is_treated_as_in_python(texts: list[str], part: str, index: int) -> None:
    batch = pa.record_batch({"t": pa.array(texts, pa.string())})
    text = col("t")

    def part_of(value: str) -> str | None:
        parts = value.split(part)
        return parts[index] if index < len(parts) else None

    for expression, function in (
        (text.contains(part), lambda value: part in value),
        (text.starts_with(part), lambda value: value.startswith(part)),
        (text.ends_with(part), lambda value: value.endswith(part)),
        (text.count_of(part), lambda value: value.count(part)),
        (text.replace(part, "xyz"), lambda value: value.replace(part, "xyz")),
        (text.split_part(part, index), part_of),
        (part + text, lambda value: part + value),
        (text.length(), len),
        (text.upper(), str.upper),
    ):
        assert expression.evaluate(batch).to_pylist() == [function(value) for value in texts], str(expression)


PATTERNS = [
    "(a)(b)",
    "(a|b)+/(c?)",
    "(?:a)(b)",
    "([(a]+)(b|=)",
    r"(\()?(a)",
    "(?P<x>a)([^/]*)",
    "((a)b)",
    "[]a](b)",
    "[^]](a)",
]


@settings(deadline=None)
@given(TEXTS, st.sampled_from(PATTERNS), st.data())
def test_groups_are_extracted_as_in_python(texts: list[str], pattern: str, data: st.DataObject) -> None:
    group = data.draw(st.integers(0, re.compile(pattern).groups))
    batch = pa.record_batch({"t": pa.array(texts, pa.string())})
    found = [re.search(pattern, text) for text in texts]
    # A group without a part in the match is empty here; Python says None.
    expected = [None if match is None else match[group] or "" for match in found]
    assert col("t").extract(pattern, group).evaluate(batch).to_pylist() == expected
    assert col("t").matches(pattern).evaluate(batch).to_pylist() == [match is not None for match in found]


@settings(deadline=None)
@given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), max_size=6))  # noqa: DTZ001
def test_times_are_treated_as_in_python(naive: list[datetime]) -> None:
    times = [moment.replace(microsecond=moment.microsecond // 1_000 * 1_000, tzinfo=UTC) for moment in naive]
    batch = pa.record_batch({"t": pa.array(times, pa.timestamp("ms", "UTC"))})
    time, epoch, step = col("t"), datetime(1970, 1, 1, tzinfo=UTC), timedelta(minutes=7)
    for text in ("%Y-%m-%d", "%H", "%H:%M", "%Y-%m-%d %H:%M:%S"):
        assert time.format_time(text).evaluate(batch).to_pylist() == [moment.strftime(text) for moment in times]
    assert time.floor_time(step).evaluate(batch).to_pylist() == [epoch + (moment - epoch) // step * step for moment in times]
    assert time.hour().evaluate(batch).to_pylist() == [moment.hour for moment in times]
    assert time.day_of_week().evaluate(batch).to_pylist() == [moment.weekday() for moment in times]
