"""Rows are numbered by the equality of their values, whatever their type and however the column lies in memory."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.flow.rows.grouping import Grouping, mostly_distinct

_COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    (pa.int64(), st.integers(1000, 1005)),
    (pa.uint64(), st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), -2.0])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "b", "ab", "\x00"])),
    (pa.binary(), st.sampled_from([b"", b"a", b"\x00"])),
    (pa.timestamp("ms", "UTC"), st.integers(0, 5).map(lambda n: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=n))),
    (pa.date32(), st.sampled_from([date(1969, 1, 1), date(2024, 2, 29)])),
    (pa.decimal128(20, 2), st.sampled_from([Decimal("1.50"), Decimal("-1.50"), Decimal("0.00")])),
    (pa.list_(pa.int64()), st.lists(st.integers(0, 1), max_size=2)),
]


@st.composite
def _rows(draw: st.DrawFn) -> tuple[list[pa.Array], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(_COLUMNS), max_size=3))
    count = draw(st.integers(0, 30))
    arrays, values = [], []
    for kind, strategy in kinds:
        column = draw(st.lists(st.none() | strategy, min_size=count, max_size=count))
        before = draw(st.integers(0, 3))
        arrays.append(pa.array([None] * before + column + column[:1], kind).slice(before, count))
        values.append([tuple(value) if isinstance(value, list) else value for value in column])
    return arrays, list(zip(*values, strict=True)) if values else [()] * count


@given(_rows())
def test_groups_are_those_of_a_dictionary_numbered_by_first_row(case: tuple[list[pa.Array], list[tuple[Any, ...]]]) -> None:
    columns, rows = case
    numbers: dict[tuple[Any, ...], int] = {}
    expected = [numbers.setdefault(row, len(numbers)) for row in rows]
    grouping = Grouping.of(columns, len(rows))
    assert grouping.codes.tolist() == expected
    assert grouping.count == len(numbers)
    assert grouping.firsts.tolist() == [expected.index(number) for number in range(len(numbers))]


@pytest.mark.parametrize("spread", [1, 2**40])
def test_many_rows_of_two_columns_are_grouped_alike_by_table_and_by_hashing(spread: int) -> None:
    random = np.random.default_rng(1)
    first, second = random.integers(0, 40, 5000), random.integers(0, 50, 5000)
    grouping = Grouping.of([pa.array(first * spread), pa.array(second * spread - 7)], 5000)
    pairs = first * 50 + second
    assert grouping.count == len(np.unique(pairs))
    assert (pairs[grouping.firsts][grouping.codes] == pairs).all()
    assert (np.diff(grouping.firsts) > 0).all()


def test_columns_with_very_many_combinations_do_not_overflow() -> None:
    columns = [pa.array(np.arange(3000) * 2**40 % (2**61 - 1)) for _ in range(7)]
    doubled = [pa.concat_arrays([column, column]) for column in columns]
    grouping = Grouping.of(doubled, 6000)
    assert grouping.codes.tolist() == [*range(3000), *range(3000)]
    near = [pa.array(np.repeat(np.arange(2000), 2)) for _ in range(7)]
    assert Grouping.of(near, 4000).codes.tolist() == np.repeat(np.arange(2000), 2).tolist()


def test_not_a_number_is_one_group() -> None:
    assert Grouping.of([pa.array([float("nan"), 1.0, float("nan")])], 3).codes.tolist() == [0, 1, 0]


def test_a_dictionary_that_lists_a_value_twice_makes_no_second_group() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["a", "b", "a"]))
    assert Grouping.of([column], 4).codes.tolist() == [0, 1, 0, 2]


def test_without_columns_all_rows_are_one_group() -> None:
    assert Grouping.of([], 3).codes.tolist() == [0, 0, 0]
    assert Grouping.of([], 3).count == 1
    assert Grouping.of([], 0).count == 0
    assert Grouping.of([pa.array([], pa.int64())], 0).count == 0


def test_no_column_is_lost_among_many() -> None:
    numbers = np.arange(1024)
    # Eight columns of 1024 values have 2**80 combinations: the first column would vanish from a 64 bit number.
    first = pa.array(np.concatenate([numbers, (numbers + 1) % 1024]))
    others = [pa.array(np.concatenate([numbers, numbers])) for _ in range(7)]
    assert Grouping.of([first, *others], 2048).count == 2048


def test_a_column_whose_range_is_the_number_of_rows_does_not_decide_alone() -> None:
    assert Grouping.of([pa.array([1, 2, 1]), pa.array([0, 0, 2])], 3).codes.tolist() == [0, 1, 2]


@pytest.mark.parametrize("spread", [1, 2**40, 2**63 - 1], ids=["dense", "sparse", "as sparse as can be"])
def test_many_numbers_are_grouped_as_few_are(spread: int) -> None:
    """Above some thousands of rows numbers are hashed in another way."""
    rng = np.random.default_rng(spread % 1000)
    pool = rng.integers(-spread, spread, 6_000)
    numbers = rng.choice(pool, 20_000)
    grouping = Grouping.of([pa.array(numbers)], len(numbers))
    seen: dict[int, int] = {}
    assert grouping.codes.tolist() == [seen.setdefault(number, len(seen)) for number in numbers.tolist()]
    assert grouping.count == len(seen)
    assert numbers[grouping.firsts].tolist() == list(seen)


def test_numbers_that_all_hash_to_one_place_are_still_told_apart() -> None:
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)  # so that number times factor is small, and its highest bits are zero
    numbers = np.array([(small * inverse) % 2**64 for small in range(10_000)] * 2, dtype=np.uint64).view(np.int64)
    grouping = Grouping.of([pa.array(numbers)], len(numbers))
    assert grouping.count == 10_000
    assert grouping.codes.tolist() == [*range(10_000), *range(10_000)]


@pytest.mark.parametrize(("keys", "expected"), [(10, False), (1_000, False), (1_000_000, True)])
def test_a_sample_shows_whether_rows_are_mostly_distinct(keys: int, expected: bool) -> None:
    numbers = pa.array(np.random.default_rng(1).integers(0, keys, 4096))
    assert mostly_distinct([numbers], 4096) is expected
    assert not mostly_distinct([numbers.slice(0, 100)], 100), "few rows are always grouped"
