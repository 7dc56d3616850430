"""Owns the numbering of equal rows: which rows of some columns belong to one group, found without a loop over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[Any]

# A table indexed by value is quicker than hashing while it is not much longer than the column itself.
_TABLE_PER_ROW = 4
_TABLE_AT_LEAST = 1024

# Many numbers are hashed quicker by numpy than by Arrow, in so many calls that few are not.
_HASHED_ROWS_LEAST = 8192
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio: neighbours end up far apart

_LARGEST_CODE = 2**62

# With so few doubles in the sample, a batch of a few thousand rows has at least two groups for every three rows.
_SAMPLED_ROWS_LEAST = 1024
_SAMPLE_ROWS = 256
_SAMPLE_DISTINCT_LEAST = 248


class Grouping:
    """Rows numbered by group, groups by their first rows: as many groups as rows means codes 0, 1, 2...

    codes: the group number of each row. count: how many groups. firsts: the row where each group occurs first, ascending.
    """

    __slots__ = ("codes", "count", "firsts")

    def __init__(self, codes: Integers, count: int, firsts: Integers) -> None:
        self.codes = codes
        self.count = count
        self.firsts = firsts

    @classmethod
    def of(cls, columns: Sequence[pa.Array], rows: int) -> Grouping:
        """Group rows that are equal in every column. Nulls equal each other, and so do NaNs, and 0.0 and -0.0."""
        if rows == 0:
            return cls(np.zeros(0, np.int64), 0, np.zeros(0, np.int64))
        if not columns:
            return cls(np.zeros(rows, np.int64), 1, np.zeros(1, np.int64))
        table = _TABLE_PER_ROW * rows + _TABLE_AT_LEAST
        codes, bound, firsts = _codes(columns[0], table)
        for column in columns[1:]:
            if firsts is not None and bound == rows:
                break  # every row already is a group of its own
            more, more_bound, more_firsts = _codes(column, table)
            if bound == 1 or (more_firsts is not None and more_bound == rows):
                codes, bound, firsts = more, more_bound, more_firsts
                continue
            if bound * more_bound > _LARGEST_CODE:
                # Both bounds are then made no larger than the number of rows, whose product does fit.
                codes, bound = _dense(codes, bound, table)
                more, more_bound = _dense(more, more_bound, table)
            codes = codes * more_bound + more
            bound *= more_bound
            firsts = None
        return cls._of_codes(codes, bound, table) if firsts is None else cls(codes, bound, firsts)

    @classmethod
    def all_apart(cls, rows: int) -> Grouping:
        """Every row a group of its own."""
        numbers = np.arange(rows)
        return cls(numbers, rows, numbers)

    @classmethod
    def _of_codes(cls, codes: Integers, bound: int, table: int) -> Grouping:
        if bound <= table:
            return cls._of_first_row(_first_rows(codes, bound).take(codes))
        return cls._of_numbers(codes)

    @classmethod
    def _of_numbers(cls, numbers: Integers) -> Grouping:
        """Groups of equal numbers, whatever the numbers are."""
        if len(numbers) >= _HASHED_ROWS_LEAST:
            return cls._of_first_row(_first_rows_by_hash(numbers))
        codes, count = _dictionary_codes(pa.array(numbers))
        return cls(codes, count, _first_rows(codes, count))

    @classmethod
    def _of_first_row(cls, first_row: Integers) -> Grouping:
        """Groups out of the first row of each row's group."""
        rows = len(first_row)
        numbers = np.arange(rows)
        firsts = (first_row == numbers).nonzero()[0]
        if len(firsts) == rows:
            return cls(numbers, rows, numbers)
        group_of_row = np.empty(rows, np.int64)
        group_of_row[firsts] = numbers[: len(firsts)]
        return cls(group_of_row.take(first_row), len(firsts), firsts)


def mostly_distinct(columns: Sequence[pa.Array], rows: int) -> bool:
    """Whether hardly any two rows seem to be equal, judged by a sample; always no for few rows."""
    if rows < _SAMPLED_ROWS_LEAST or not columns:
        return False
    # From the middle: a stream often is not yet itself in its first rows.
    sample = [column.slice(rows // 2, _SAMPLE_ROWS) for column in columns]
    return Grouping.of(sample, _SAMPLE_ROWS).count >= _SAMPLE_DISTINCT_LEAST


def _first_rows(codes: Integers, bound: int) -> Integers:
    """The first row of each code; whatever for codes that do not occur."""
    rows = len(codes)
    table = np.empty(bound, np.int64)
    # Written last row to first, and the last writing stays. The copy is there because numpy is slow with reversed views.
    table[codes[::-1].copy()] = np.arange(rows - 1, -1, -1)
    return table


def _first_rows_by_hash(numbers: Integers) -> Integers:
    """For each row the first row with the same number, whatever the numbers are.

    Each place of a table belongs to the number that occurs first among those that hash to it. The rows of all others, which
    are few, are grouped apart: all rows of a number are among them, or none.
    """
    rows = len(numbers)
    bits = (_TABLE_PER_ROW * rows).bit_length()
    places = (numbers.view(np.uint64) * _HASH_FACTOR >> np.uint64(64 - bits)).view(np.int64)
    first_row = _first_rows(places, 1 << bits).take(places)
    others = (numbers.take(first_row) != numbers).nonzero()[0]
    if len(others):
        codes, count = _dictionary_codes(pa.array(numbers.take(others)))
        first_row[others] = others.take(_first_rows(codes, count).take(codes))
    return first_row


def _dense(codes: Integers, bound: int, table: int) -> tuple[Integers, int]:
    if bound <= len(codes):
        return codes, bound
    grouping = Grouping._of_codes(codes, bound, table)
    return grouping.codes, grouping.count


def _codes(column: pa.Array, table: int) -> tuple[Integers, int, Integers | None]:
    """Numbers from 0 that are equal for equal values, and a bound above them.

    If they number the groups already, also the first row of each.
    """
    column = _plain(column)
    numbers = _numbers(column)
    if numbers is not None:
        low, high = int(numbers.min()), int(numbers.max())
        if high - low >= table:
            grouping = Grouping._of_numbers(numbers)
            return grouping.codes, grouping.count, grouping.firsts
        if low == 0:
            return numbers.astype(np.int64, copy=False), high + 1, None
        return (numbers - numbers.dtype.type(low)).astype(np.int64, copy=False), high - low + 1, None
    codes, count = _dictionary_codes(column)
    return codes, count, _first_rows(codes, count)


def _plain(column: pa.Array) -> pa.Array:
    """The column with one form for each value: no dictionary that may list a value twice, no wrapper, no second zero."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(column.storage)
    if pa.types.is_floating(kind):
        # Adding 0.0 turns -0.0 into 0.0 and leaves every other number as it is.
        return pc.add(column, pa.scalar(0.0, kind))
    return column


def _numbers(column: pa.Array) -> Integers | None:
    """The values as 64 bit integers, or None where there is no such form."""
    kind = column.type
    if column.null_count:
        return None
    numbers: Integers
    if pa.types.is_integer(kind):
        numbers = column.to_numpy()
    elif pa.types.is_temporal(kind) and kind.bit_width in (32, 64) and kind != pa.month_day_nano_interval():
        numbers = column.view(pa.int64() if kind.bit_width == 64 else pa.int32()).to_numpy()
    elif pa.types.is_boolean(kind):
        numbers = column.to_numpy(zero_copy_only=False).view(np.uint8)
    else:
        return None
    return numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.int64)


def _dictionary_codes(column: pa.Array) -> tuple[Integers, int]:
    """The number of each row's group, and how many groups there are."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        # Lists, structs and maps have no hash in Arrow. Their Python text is the same for equal values.
        texts = [None if value is None else repr(value) for value in column.to_pylist()]
        encoded = pa.array(texts, pa.string()).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
