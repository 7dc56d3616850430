"""How expressions are shown, and what is said about those that make no sense."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy, deepcopy
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dirigo.flow.errors import FlowError
from dirigo.flow.expressions.expression import Expression, col, lit, type_of, udf, when

A, B, TEXT = col("a"), col("b"), col("text")
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.float64(), "text": pa.string(), "price": pa.int64()})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("price") * lit(0.908) > 100, "price * 0.908 > 100"),
        (col("price") * Decimal("0.908"), "price * 0.908"),
        ((A + B) * A - (B - 1), "(a + b) * a - (b - 1)"),
        (A - B - 1, "a - b - 1"),
        (A - (B - 1), "a - (b - 1)"),
        (A * (B * 2), "a * (b * 2)"),
        ((A > 1) & ((B < 2) | ~(A == 3)), "(a > 1) & ((b < 2) | ~(a == 3))"),
        ((A > 1) == (B > 1), "(a > 1) == (b > 1)"),
        (-(A + 1), "-(a + 1)"),
        (-A * 2, "-a * 2"),
        (abs(A - 1), "abs(a - 1)"),
        (A * -1, "a * -1"),
        ((A + B).is_null(), "(a + b).is_null()"),
        (TEXT.lower() == "x", "text.lower() == 'x'"),
        (TEXT.split_part("/", 3), "text.split_part('/', 3)"),
        (A.is_in([1, 2]), "a.is_in([1, 2])"),
        (A.cast(float), "a.cast(double)"),
        (A.floor_time("90s"), "a.floor_time('1m30s')"),
        (A + datetime(2020, 1, 1, tzinfo=UTC), "a + 2020-01-01T00:00:00+00:00"),
    ],
)
def test_expressions_are_shown_as_they_are_written(expression: Expression, text: str) -> None:
    assert str(expression) == text
    assert repr(expression) == f"<{text}>"


def test_an_expression_has_no_truth_value() -> None:
    message = r"'a > 1' has no single truth value; combine conditions with & \| ~ and put each in parentheses"
    with pytest.raises(FlowError, match=message):
        bool(A > 1)
    with pytest.raises(FlowError, match=message):
        _ = A > 1 and B > 1
    with pytest.raises(FlowError, match="'a == 1' has no single truth value"):
        _ = A in [1, 2]
    with pytest.raises(FlowError, match=r"cannot be iterated; .* give the name of the column as text"):
        list(A)


@pytest.mark.parametrize(
    ("written", "meant"), [("isnull", "is_null"), ("startswith", "starts_with"), ("is_not_nul", "is_not_null")]
)
def test_an_unknown_method_is_named_with_the_nearest(written: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"an expression has no '{written}'; did you mean '{meant}'"):
        getattr(A + 1, written)


def test_an_unknown_method_without_a_near_one_is_just_unknown() -> None:
    with pytest.raises(AttributeError, match=r"^an expression has no 'xyzzy'$"):
        getattr(A, "xyzzy")  # noqa: B009 - a type checker knows that it is missing
    assert not hasattr(A, "__arrow_array__")


def test_expressions_survive_copying_and_pickling() -> None:
    assert str(copy(A + 1)) == str(deepcopy(A + 1)) == str(pickle.loads(pickle.dumps(A + 1))) == "a + 1"


def test_expressions_hash_by_identity() -> None:
    assert len({A: 1, col("a"): 2}) == 2


def test_an_unknown_column_is_named_with_the_nearest() -> None:
    with pytest.raises(FlowError) as caught:
        type_of(col("prise") + 1, SCHEMA, "filter")
    expected = "filter: there is no column 'prise'; did you mean 'price'? The columns are a, b, text, price."
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ((A + TEXT) * 2 > 5, "filter: 'a + text' cannot be computed: this operation does not exist for int64, string."),
        (A & B, "filter: 'a & b' cannot be computed: this operation does not exist for int64, double."),
        (A.lower(), "filter: 'a.lower()' cannot be computed: this operation does not exist for int64."),
        (TEXT.hour(), "filter: 'text.hour()' cannot be computed: this operation does not exist for string."),
        (TEXT.floor_time("1s"), "filter: 'text.floor_time('1s')' cannot be computed: only times"),
        (TEXT.format_time("%H"), "filter: 'text.format_time('%H')' cannot be computed: only times"),
        (when(A, 1).otherwise(2), "filter: 'when(a, 1).otherwise(2)' cannot be computed: a condition must be true or false"),
        (
            when(A > 1, 1).otherwise("x"),
            "filter: 'when(a > 1, 1).otherwise('x')' cannot be computed: the values to choose from",
        ),
        (udf(lambda array: array.nothing, A, name="odd"), "filter: 'odd(a)' cannot be computed: AttributeError"),
        (udf(lambda _: [1, 2], A, name="long"), "filter: The function of 'long(a)' returned 2 values for 0 rows"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_any_row_comes(expression: Expression, message: str) -> None:
    with pytest.raises(FlowError) as caught:
        type_of(expression, SCHEMA, "filter")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_types_are_known_before_any_row_comes() -> None:
    assert type_of(A / 2, SCHEMA, "x") == pa.float64()
    assert type_of(A > 2, SCHEMA, "x") == pa.bool_()
    assert type_of(lit("x"), SCHEMA, "x") == pa.string()
    assert type_of(TEXT.extract("(a)", 1), SCHEMA, "x") == pa.string()
    assert type_of(TEXT.split_part("/", 1), SCHEMA, "x") == pa.string()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: col(5), "col: 5 is not the name of a column"),  # type: ignore[arg-type]
        (lambda: lit(object()), "has no column type"),
        (lambda: lit(2**70), "has no column type"),
        (lambda: A + when(A > 1, 2), "'when(a > 1, 2)' does not say what holds otherwise; end it with .otherwise(...)."),
        (lambda: lit(when(A > 1, 2).when(B > 1, 3)), "'when(a > 1, 2).when(b > 1, 3)' does not say"),
        (lambda: A == None, "use .is_null()"),  # noqa: E711
        (lambda: A != None, "use .is_null()"),  # noqa: E711
        (lambda: A.is_in("abc"), "put it in brackets"),
        (lambda: A.is_in([1, None]), "None is not a value to look for"),
        (lambda: A.is_in([1, "x"]), "the values are of different types"),
        (lambda: A.cast("in64"), "did you mean 'int64'?"),
        (lambda: TEXT.matches("(a"), "is not a regular expression that RE2 accepts"),
        (lambda: TEXT.extract("(a)", 2), "has only 1 group, so there is no group 2"),
        (lambda: TEXT.extract("[(]a", 1), "has no group"),
        (lambda: TEXT.extract("(a)(b)", 3), "has only 2 groups"),
        (lambda: TEXT.extract("(a)", -1), "the group -1 is not a number from 0 on"),
        (lambda: TEXT.split_part("", 1), "the separator is empty"),
        (lambda: TEXT.split_part("/", "1"), "the index '1' is not a number"),  # type: ignore[arg-type]
        (lambda: TEXT.contains(B), "is not a text"),  # type: ignore[arg-type]
        (lambda: TEXT.count_of(""), "empty"),
        (lambda: TEXT.replace("", "x"), "empty"),
        (lambda: A.floor_time("0s"), "no time at all"),
        (lambda: udf("lower", A), "cannot be called"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_refused_when_the_expression_is_written(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(FlowError) as caught:
        build()
    assert message in str(caught.value)
