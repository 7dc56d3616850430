"""Where keys go: the same in every process, evenly, and the same for equal values of different form."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dirigo.flow.exchange.partitions import partition_of, split

_MANY = 1_000_003


def _places(*columns: pa.Array) -> list[int]:
    return [int(place) for place in partition_of(columns, _MANY)]


_TEXTS = ["", "a", "b", "ab", "ba", "\x00", "a\x00", "x" * 255, "x" * 256, "x" * 257, "x" * 300, "é"]

_COLUMNS = {
    "int64": pa.array([0, 1, -1, 2**40, None]),
    "double": pa.array([0.5, -1.25, float("inf"), float("nan"), None]),
    "bool": pa.array([True, False, None]),
    "string": pa.array([*_TEXTS, None]),
    "binary": pa.array([b"\xff\xfe", b"", None]),
    "timestamp": pa.array([0, 1_700_000_000_000, None], pa.timestamp("ms", "UTC")),
    "date32": pa.array([0, 19_000, None], pa.date32()),
    "time": pa.array([0, 1, None], pa.time32("s")),
    "duration": pa.array([0, 1, None], pa.duration("us")),
    "decimal": pa.array([Decimal("0.908"), Decimal("-12345678901234567890.123"), Decimal("0.000"), None]),
    "list": pa.array([[1, 2], [], None]),
    "struct": pa.array([{"a": 1}, {"a": None}, None]),
    "null": pa.nulls(2),
}

# Changing any of these moves the keys of jobs that are stored or running.
_GOLDEN: dict[str, list[int]] = {
    "int64": [883313, 566563, 893945, 124473, 389890],
    "double": [954449, 638894, 143041, 777978, 389890],
    "bool": [566563, 883313, 389890],
    "string": [883313, 605992, 794869, 63076, 840007, 728648, 785116, 483055, 213173, 414052, 660169, 448609, 389890],
    "binary": [673654, 883313, 389890],
    "timestamp": [883313, 36534, 389890],
    "date32": [883313, 729065, 389890],
    "time": [883313, 323246, 389890],
    "duration": [883313, 234844, 389890],
    "decimal": [537201, 257709, 883313, 389890],
    "list": [916721, 612831, 389890],
    "struct": [589399, 374015, 389890],
    "null": [389890, 389890],
    "two columns": [204989, 836500],
}


@pytest.mark.parametrize("name", _COLUMNS)
def test_partitions_never_change(name: str) -> None:
    assert _places(_COLUMNS[name]) == _GOLDEN[name]


def test_partitions_of_two_columns_never_change() -> None:
    assert _places(pa.array([1, 2]), pa.array(["a", None])) == _GOLDEN["two columns"]
    assert _places(pa.array([1, 2]), pa.array([2, 1])) != _places(pa.array([2, 1]), pa.array([1, 2]))


@pytest.mark.parametrize("name", _COLUMNS)
def test_a_slice_is_partitioned_as_in_the_whole(name: str) -> None:
    column = pa.concat_arrays([_COLUMNS[name]] * 3)
    whole = _places(column)
    for start in range(len(column)):
        assert _places(column.slice(start)) == whole[start:]
        assert _places(column.slice(start, 2)) == whole[start : start + 2]
    assert _places(column.slice(len(column))) == []


@pytest.mark.parametrize("name", [name for name in _COLUMNS if name not in ("list", "struct", "null")])
def test_a_dictionary_makes_no_difference(name: str) -> None:
    column = pa.concat_arrays([_COLUMNS[name]] * 2)
    assert _places(column.dictionary_encode()) == _places(column)
    assert _places(column.dictionary_encode(null_encoding="encode").slice(1)) == _places(column.slice(1))


def _same(one: pa.Array, other: pa.Array) -> bool:
    return _places(one) == _places(other)


def test_equal_values_of_different_types_go_together() -> None:
    numbers = [0, 1, 5, 100, None]
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()):
        assert _same(pa.array(numbers, kind), pa.array(numbers, pa.int64())), kind
    assert _same(pa.array([-5], pa.int32()), pa.array([-5], pa.int64()))
    assert _same(pa.array([-0.0]), pa.array([0.0]))
    assert _same(pa.array([0.5], pa.float32()), pa.array([0.5]))
    assert _same(pa.array([np.uint64(0xFFF8000000000001)]).view(pa.float64()), pa.array([float("nan")]))
    for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()):
        assert _same(pa.array(_TEXTS).cast(kind), pa.array(_TEXTS)), kind
    assert _same(pa.array([b"abc"], pa.binary(3)), pa.array(["abc"]))
    for unit in ("s", "ms", "us"):
        assert _same(
            pa.array([-7, 1_700_000_000], pa.timestamp("s")).cast(pa.timestamp(unit)), _seconds([-7, 1_700_000_000])
        )
    assert _same(pa.array([365], pa.date32()).cast(pa.date64()), pa.array([365], pa.date32()))
    amounts = [Decimal("1.5"), Decimal("-0.5"), Decimal(0), Decimal("-1234567890123456789.5"), None]
    assert _same(pa.array(amounts, pa.decimal128(30, 1)), pa.array(amounts, pa.decimal128(38, 9)))


def _seconds(numbers: list[int]) -> pa.Array:
    return pa.array(numbers, pa.timestamp("s")).cast(pa.timestamp("ns", "UTC"))


def _unevenness(columns: list[pa.Array], partitions: int) -> float:
    """How far the counts are from equal, in standard deviations of what throwing dice would give."""
    places = partition_of(columns, partitions)
    assert places.min() >= 0
    assert places.max() < partitions
    counts = np.bincount(places, minlength=partitions)
    mean = len(places) / partitions
    square = float(((counts - mean) ** 2 / mean).sum())
    return (square - (partitions - 1)) / float(np.sqrt(2 * (partitions - 1)))


@pytest.mark.parametrize("partitions", [2, 3, 8, 64, 100, 1024])
def test_keys_are_spread_evenly(partitions: int) -> None:
    numbers = np.arange(100_000)
    for column in (
        pa.array(numbers),
        pa.array(numbers * 1000),
        pa.array(numbers * 2**32),
        pa.array(-numbers),
        pa.array(numbers / 3),
        pa.array(numbers).cast(pa.timestamp("s")),
        pa.array(numbers).cast(pa.decimal128(30, 2)),
        pa.array([str(number) for number in numbers]),
        pa.array([f"user-{number:08}" for number in numbers]),
        pa.array([f"{number:08}" + "x" * 20 for number in numbers]),
    ):
        assert abs(_unevenness([column], partitions)) < 6, column.type
    assert abs(_unevenness([pa.array(numbers % 300), pa.array(numbers // 300)], partitions)) < 6


@given(st.lists(st.none() | st.text(max_size=5) | st.just("y" * 400), max_size=20), st.integers(0, 5))
def test_a_text_goes_where_it_goes_alone(texts: list[str | None], skipped: int) -> None:
    column = pa.array(texts, pa.string()).slice(skipped)
    assert _places(column) == [_places(pa.array([text], pa.string()))[0] for text in texts[skipped:]]


def test_much_text_is_hashed_in_pieces_with_the_same_result() -> None:
    texts = [chr(97 + number % 26) * (number % 400) for number in range(3000)]
    whole = _places(pa.array(texts))
    assert whole == [place for start in range(0, 3000, 7) for place in _places(pa.array(texts[start : start + 7]))]


def test_texts_differing_only_in_length_or_order_go_apart() -> None:
    assert len(set(_places(pa.array(_TEXTS)))) == len(_TEXTS)


def test_no_column_and_no_partition_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        partition_of([], 4)
    with pytest.raises(ValueError, match="0 partitions"):
        partition_of([pa.array([1])], 0)


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 3))
def test_split_keeps_all_rows_in_order(numbers: list[int], skipped: int) -> None:
    batch = pa.record_batch(
        {"row": pa.array(range(len(numbers)), pa.int64()), "text": pa.array(map(str, numbers), pa.string())}
    )
    batch, places = batch.slice(skipped), np.array(numbers[skipped:], np.int64)
    parts = split(batch, places, 6)
    expected: dict[int, list[dict[str, Any]]] = {}
    for row, place in zip(batch.to_pylist(), places.tolist(), strict=True):
        expected.setdefault(place, []).append(row)
    assert {place: part.to_pylist() for place, part in parts} == expected
    assert len(parts) == len(expected)


@pytest.mark.parametrize("partitions", [200, 300, 100_000])
def test_split_into_many_parts(partitions: int) -> None:
    places = np.random.default_rng(1).integers(0, partitions, 1000)
    parts = split(pa.record_batch({"place": places}), places, partitions)
    assert sum(part.num_rows for _, part in parts) == 1000
    assert all(set(part.column("place").to_pylist()) == {place} for place, part in parts)


def test_a_batch_that_stays_together_is_not_copied() -> None:
    batch = pa.record_batch({"x": [1, 2]})
    assert split(batch, np.array([3, 3]), 4)[0][1] is batch
