"""Owns the addition of numbers by group: exact for integers and decimals, plain floating point for floats.

A partial sum of integers or decimals has two columns: a number of the type of the sum, and a carry, which counts how often
the sum has gone round the range of that type. So a partial sum never fails, whichever rows are in it; only a total can be
too large. The carry is null where there is none, which is nearly always.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.base import Parts
from dirigo.flow.aggregates.columns.groups import Groups, Mask
from dirigo.flow.aggregates.columns.order_keys import decimal_words, decimals_of, narrow_decimals
from dirigo.flow.aggregates.columns.plain import column_of

Integers = npt.NDArray[np.int64]

_LARGEST = 2**63 - 1
_INTEGER_ROUND = 2**64  # what one carry of a sum of integers stands for
_DECIMAL_ROUND = 10**38  # what one carry of a sum of decimals stands for, in units of the last digit
_HALF = np.int64(32)
_LOW_HALF = np.int64(2**32 - 1)
_LOW_WORD = 2**64 - 1
_EXACT_FLOAT = 2**53  # a float holds all whole numbers up to this one
_CARRY = pa.int32()  # enough for four billion numbers as large as can be in one group
_EXACT = Context(prec=80)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum of numbers of this type."""
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else pa.int64()


def sum_fields(kind: pa.DataType) -> tuple[tuple[str, pa.DataType], ...]:
    """The columns of partial sums whose total is of this type."""
    return (("sum", kind),) if pa.types.is_floating(kind) else (("sum", kind), ("carry", _CARRY))


def add_values(values: pa.Array, groups: Groups) -> Parts:
    """The partial sum of each group; null for groups that have only nulls."""
    values, groups = groups.without_nulls(values)
    kind = values.type
    if pa.types.is_floating(kind):
        weights = values.cast(pa.float64()).to_numpy()
        # With no rows at all, bincount would answer with integers.
        sums = np.bincount(groups.codes, weights, groups.count).astype(np.float64, copy=False)
        return [pa.array(sums, mask=groups.missing())]
    if pa.types.is_decimal(kind):
        return _add_decimals(values, None, groups)
    return _add_integers(values.to_numpy(), None, groups)


def add_sums(parts: Sequence[pa.Array], groups: Groups) -> Parts:
    """The partial sum of each group from partial sums."""
    sums = parts[0]
    if len(parts) == 1 or parts[1].null_count == len(sums):
        return add_values(sums, groups)
    carries = parts[1].fill_null(0).to_numpy()
    if sums.null_count:
        valid = sums.is_valid()
        mask: Mask = valid.to_numpy(zero_copy_only=False)
        sums, carries, groups = sums.filter(valid), carries[mask], groups.keep(mask)
    if pa.types.is_decimal(sums.type):
        return _add_decimals(sums, carries, groups)
    return _add_integers(sums.to_numpy(), carries, groups)


def totals(parts: Sequence[pa.Array], what: str) -> pa.Array:
    """The sums, from one partial sum per group. OverflowError, naming `what`, if one does not fit its type."""
    sums = parts[0]
    if len(parts) == 1 or parts[1].null_count == len(sums) or not parts[1].fill_null(0).to_numpy().any():
        return sums
    if pa.types.is_decimal(sums.type):
        raise OverflowError(f"{what}: the sum has more than 38 digits; cast the argument to float64 first.")
    raise OverflowError(
        f"{what}: the sum is beyond the range of 64-bit integers; cast the argument to float64 or to a decimal first."
    )


def means(parts: Sequence[pa.Array], counts: Integers) -> pa.Array:
    """Each sum, from one partial sum per group, by its count; null where there is no sum.

    Of integers and decimals it is the float that is nearest to the exact quotient.
    """
    sums = parts[0]
    missing = sums.is_null().to_numpy(zero_copy_only=False)
    counts = np.maximum(counts, 1)  # where it is zero there is no sum either
    if pa.types.is_floating(sums.type):
        return pa.array(sums.fill_null(0).to_numpy() / counts, mask=missing)
    carries = parts[1].fill_null(0).to_numpy()
    if pa.types.is_decimal(sums.type):
        words = decimal_words(sums)
        low, high, scale, one_round = words[:, 0], words[:, 1], sums.type.scale, _DECIMAL_ROUND
    else:
        low = sums.fill_null(0).to_numpy()
        high, scale, one_round = low >> 63, 0, _INTEGER_ROUND
    # A quotient of two whole numbers that floats hold exactly is the nearest one. Others, which are rare, Python divides.
    unit = 10 ** max(scale, 0)
    is_exact = (low >= -_EXACT_FLOAT) & (low <= _EXACT_FLOAT) & (high == low >> 63) & (carries == 0)
    is_exact &= (counts <= _EXACT_FLOAT // unit) & (scale >= 0)
    quotients = np.where(is_exact, low, 0) / (np.where(is_exact, counts, 1) * float(unit))
    for row in np.flatnonzero(~is_exact & ~missing).tolist():
        total = (int(high[row]) << 64) + (int(low[row]) & _LOW_WORD) + int(carries[row]) * one_round
        quotients[row] = total * 10 ** max(-scale, 0) / (int(counts[row]) * unit)
    return pa.array(quotients, mask=missing)


def _add_integers(numbers: npt.NDArray[Any], carries: Integers | None, groups: Groups) -> Parts:
    sums = np.zeros(groups.count, np.int64)
    missing = groups.missing()
    if carries is None and _cannot_overflow(numbers):
        np.add.at(sums, groups.codes, numbers if numbers.dtype == np.int64 else numbers.astype(np.int64))
        return [_column(sums, missing), pa.nulls(groups.count, _CARRY)]
    # Halves are added apart, and neither can overflow. What the lower one carries belongs to the upper one, and what is in
    # the upper one beyond 32 bits is the carry of the whole.
    lower, upper = _halves(numbers)
    np.add.at(sums, groups.codes, lower)
    upper_sums = np.zeros(groups.count, np.int64)
    np.add.at(upper_sums, groups.codes, upper)
    upper_sums += sums >> _HALF
    rounds = (upper_sums + np.int64(2**31)) >> _HALF
    if carries is not None:
        np.add.at(rounds, groups.codes, carries)
    return [_column((upper_sums << _HALF) + (sums & _LOW_HALF), missing), _carries(rounds)]


def _cannot_overflow(numbers: npt.NDArray[Any]) -> bool:
    """Whether no sum of some of the numbers is beyond 64 bits."""
    if len(numbers) == 0:
        return True
    # As a rule no number is negative, and then all their bits together are no less than the largest. That is one pass.
    largest = int(np.bitwise_or.reduce(numbers))
    if largest < 0:
        largest = max(int(numbers.max()), -int(numbers.min()))
    return largest * len(numbers) <= _LARGEST


def _column(numbers: Integers, missing: Mask | None) -> pa.Array:
    return column_of(numbers) if missing is None else pa.array(numbers, mask=missing)


def _halves(numbers: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """The lower and the upper 32 bits of each number."""
    if numbers.dtype == np.uint64:
        return (numbers & np.uint64(_LOW_HALF)).astype(np.int64), (numbers >> np.uint64(32)).astype(np.int64)
    signed = numbers.astype(np.int64, copy=False)
    return signed & _LOW_HALF, signed >> _HALF


def _carries(rounds: Integers) -> pa.Array:
    none = rounds == 0
    return pa.nulls(len(rounds), _CARRY) if none.all() else pa.array(rounds, mask=none).cast(_CARRY)


def _add_decimals(values: pa.Array, carries: Integers | None, groups: Groups) -> Parts:
    kind = sum_type(values.type)
    missing = groups.missing()
    narrow = narrow_decimals(values) if carries is None else None
    if narrow is not None and _cannot_overflow(narrow):
        sums = np.zeros(groups.count, np.int64)
        np.add.at(sums, groups.codes, narrow)
        return [decimals_of(sums, kind, missing), pa.nulls(groups.count, _CARRY)]
    # Rare: sums beyond 64 bits. Each 128 bit word is added in pieces that cannot overflow, and put together in Python.
    words = decimal_words(values)
    pieces = []
    for piece in (
        words[:, 0] & _LOW_HALF,
        (words[:, 0] >> _HALF) & _LOW_HALF,
        words[:, 1] & _LOW_HALF,
        words[:, 1] >> _HALF,
        np.zeros(len(values), np.int64) if carries is None else carries,
    ):
        added = np.zeros(groups.count, np.int64)
        np.add.at(added, groups.codes, piece)
        pieces.append(added.tolist())
    decimals, rounds = [], []
    for a, b, c, d, carry in zip(*pieces, strict=True):
        total = a + (b << 32) + (c << 64) + (d << 96) + carry * _DECIMAL_ROUND
        here = abs(total) // _DECIMAL_ROUND * (1 if total > 0 else -1)  # towards zero: a sum that fits has no carry
        rounds.append(here)
        decimals.append(Decimal(total - here * _DECIMAL_ROUND).scaleb(-kind.scale, _EXACT))
    return [pa.array(decimals, kind, mask=missing), _carries(np.array(rounds, np.int64))]
