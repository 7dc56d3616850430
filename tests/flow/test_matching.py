"""Matching rows of two tables by key, against nested loops and against DuckDB's words for joins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.operators.joins.matching import JoinShape, expand, pairs
from flow.flows import unordered

KEYS = st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from(["x", "y"])), max_size=12)


def arrays(keys: list[tuple[int | None, str | None]]) -> list[pa.Array]:
    return [pa.array([a for a, _ in keys], pa.int64()), pa.array([b for _, b in keys], pa.string())]


@given(left=KEYS, right=KEYS)
def test_pairs_are_all_rows_with_equal_keys_and_null_equals_nothing(left: list[Any], right: list[Any]) -> None:
    one, other = pairs(arrays(left), arrays(right))
    expected = [
        (position, place)
        for position, key in enumerate(left)
        for place, candidate in enumerate(right)
        if key == candidate and None not in key
    ]
    assert sorted(zip(one.tolist(), other.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [(pa.int8(), pa.int64()), (pa.int64(), pa.int8()), (pa.uint64(), pa.int64()), (pa.int32(), pa.uint32())],
)
def test_keys_of_different_widths_are_equal_as_numbers(one: pa.DataType, other: pa.DataType) -> None:
    left, right = pa.array([1, 100, 7], one), pa.array([100, 127, 1], other)
    found = [(a, b) for a, b in zip(*(each.tolist() for each in pairs([left], [right])), strict=True)]
    assert sorted(found) == [(0, 2), (1, 0)]


def test_a_large_key_on_one_side_does_not_overflow_the_other() -> None:
    small, large = pa.array([1], pa.int8()), pa.array([1 << 40, 1], pa.int64())
    assert [each.tolist() for each in pairs([small], [large])] == [[0], [1]]
    huge = pa.array([(1 << 64) - 1], pa.uint64())
    assert [each.tolist() for each in pairs([huge], [pa.array([-1], pa.int64())])] == [[], []]


def test_expand_turns_ranges_into_pairs() -> None:
    left, right = expand(np.array([2, 0, 1]), np.array([1, 0, 2]), np.array([5, 6, 7]))
    assert (left.tolist(), right.tolist()) == ([0, 2, 2], [7, 6, 7])


LEFT = pa.schema([("k", pa.int64()), ("a", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("b", pa.string())])
SIDES = st.lists(st.tuples(st.none() | st.integers(0, 3), st.sampled_from("pqr")), max_size=8)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
@settings(deadline=None, max_examples=30)
@given(left=SIDES, right=SIDES)
def test_joins_are_those_of_sql(how: Any, left: list[Any], right: list[Any]) -> None:
    shape = JoinShape("join", LEFT, RIGHT, ["k"], ["k"], how)
    one = pa.RecordBatch.from_pylist([dict(zip("ka", row, strict=True)) for row in left], schema=LEFT)
    other = pa.RecordBatch.from_pylist([dict(zip("kb", row, strict=True)) for row in right], schema=RIGHT)
    joined = shape.join(one, other)
    assert joined.schema == shape.schema
    matched = [(a, b) for a in left for b in right if a[0] is not None and a[0] == b[0]]
    only_left = [a for a in left if a[0] is None or all(a[0] != b[0] for b in right)]
    only_right = [b for b in right if b[0] is None or all(a[0] != b[0] for a in left)]
    expected: list[dict[str, Any]]
    if how in ("semi", "anti"):
        rows = only_left if how == "anti" else [a for a in left if a not in only_left]
        expected = [{"k": k, "a": a} for k, a in rows]
    else:
        expected = [{"k": a[0], "a": a[1], "b": b[1]} for a, b in matched]
        expected += [{"k": k, "a": a, "b": None} for k, a in only_left if how in ("left", "outer")]
        expected += [{"k": k, "a": None, "b": b} for k, b in only_right if how in ("right", "outer")]
    assert unordered(joined.to_pylist()) == unordered(expected)


def test_keys_of_different_names_are_both_kept() -> None:
    shape = JoinShape("join", LEFT, pa.schema([("id", pa.int64()), ("a", pa.string())]), ["k"], ["id"])
    assert shape.schema.names == ["k", "a", "id", "a_right"]
