"""Rows that a function makes out of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dirigo.flow.errors import FlowError
from dirigo.flow.sources import Split, from_generator


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


def read_numbers(split: Split, rows_max: int) -> list[int]:
    found: list[int] = []
    while not split.ended:
        piece = split.read(rows_max)
        if piece is not None:
            assert piece.rows.num_rows + len(piece.bad) <= rows_max
            found += piece.rows.column("n").to_pylist()
    return found


@settings(max_examples=60, deadline=None)
@given(total=st.integers(0, 100), wanted=st.integers(1, 7), block=st.integers(1, 30), rows_max=st.integers(1, 40))
def test_splits_cover_every_row_exactly_once(total: int, wanted: int, block: int, rows_max: int) -> None:
    splits = from_generator(numbers, {"n": int}, total, block=block).splits(wanted)
    assert 1 <= len(splits) <= wanted
    found = [read_numbers(split, rows_max) for split in splits]
    assert sorted(number for each in found for number in each) == list(range(total))
    assert all(each == sorted(each) for each in found)


def test_blocks_are_dealt_out_in_turn() -> None:
    first, second = from_generator(numbers, {"n": int}, 10, block=3).splits(2)
    assert read_numbers(first, 100) == [0, 1, 2, 6, 7, 8]
    assert read_numbers(second, 100) == [3, 4, 5, 9]


def test_without_total_there_is_no_end() -> None:
    source = from_generator(numbers, {"n": int})
    assert not source.is_bounded
    first, second = source.splits(2)
    first.read(4096)
    piece = first.read(4096)
    assert piece is not None
    assert piece.rows.column("n")[0].as_py() == 8192
    assert not first.ended
    for split in (first, second):
        split.close()
        assert split.ended


def test_mappings_with_bad_rows_among_them() -> None:
    def rows(first: int, count: int) -> Sequence[Mapping[str, Any]]:
        return [{"n": "x" if number % 3 == 1 else number} for number in range(first, first + count)]

    (split,) = from_generator(rows, {"n": int}, 10).splits(1)
    good: list[int] = []
    bad: list[str] = []
    while not split.ended:
        piece = split.read(2)
        assert piece is not None
        assert piece.rows.num_rows + len(piece.bad) <= 2
        good += piece.rows.column("n").to_pylist()
        bad += [each.error for each in piece.bad]
    assert good == [0, 2, 3, 5, 6, 8, 9]
    assert [error.split(":")[0] for error in bad] == ["generator, row 1", "generator, row 4", "generator, row 7"]


def test_a_function_that_makes_too_few_rows_is_told_so() -> None:
    def nothing(first: int, count: int) -> Sequence[Mapping[str, Any]]:
        return []

    (split,) = from_generator(nothing, {"n": int}, 5).splits(1)
    with pytest.raises(FlowError, match="asked for 5 rows from number 0 and made 0"):
        split.read(10)


@pytest.mark.parametrize(("options", "words"), [({"total": -1}, "total is -1"), ({"block": 0}, "block is 0")])
def test_senseless_numbers_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FlowError, match=words):
        from_generator(numbers, {"n": int}, **options)


def test_at_least_one_split_must_be_wanted() -> None:
    with pytest.raises(FlowError, match="at least one"):
        from_generator(numbers, {"n": int}).splits(0)
