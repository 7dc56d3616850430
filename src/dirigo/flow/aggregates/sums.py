"""Owns the addition of numbers by group: exact for integers and decimals, plain floating point for floats."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dirigo.flow.aggregates.groups import Groups
from dirigo.flow.aggregates.ordering import decimal_words, decimals_of, narrow_decimals

_LARGEST = 2**63 - 1
_HALF = np.int64(32)
_LOW_HALF = np.int64(2**32 - 1)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of a sum of numbers of this type."""
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else pa.int64()


def add_by_group(values: pa.Array, groups: Groups, what: str) -> pa.Array:
    """The sum of each group; null for groups that have only nulls. OverflowError, naming `what`, if a sum does not fit."""
    values, groups = groups.without_nulls(values)
    missing = groups.missing()
    kind = values.type
    if pa.types.is_floating(kind):
        weights = values.cast(pa.float64()).to_numpy()
        # With no rows at all, bincount would answer with integers.
        return pa.array(np.bincount(groups.codes, weights, groups.count).astype(np.float64, copy=False), mask=missing)
    if pa.types.is_decimal(kind):
        return _add_decimals(values, groups, missing, what)
    try:
        numbers = (values if kind == pa.int64() else values.cast(pa.int64())).to_numpy()
    except pa.ArrowInvalid as error:
        raise OverflowError(_too_large(what)) from error
    totals = _add_integers(numbers, groups)
    if totals is None:
        raise OverflowError(_too_large(what))
    return pa.array(totals, mask=missing)


def _too_large(what: str) -> str:
    return f"{what}: the sum is beyond the range of 64-bit integers; cast the argument to float64 or to a decimal first."


def _add_integers(numbers: npt.NDArray[np.int64], groups: Groups) -> npt.NDArray[np.int64] | None:
    """The exact sums, or None if one of them does not fit into 64 bits."""
    totals = np.zeros(groups.count, np.int64)
    if len(numbers) == 0:
        return totals
    largest = max(int(numbers.max()), -int(numbers.min()))
    if largest * len(numbers) <= _LARGEST:
        np.add.at(totals, groups.codes, numbers)
        return totals
    # Halves are added apart, neither can overflow, and what the lower one carries shows whether the whole fits.
    upper = np.zeros(groups.count, np.int64)
    np.add.at(upper, groups.codes, numbers >> _HALF)
    np.add.at(totals, groups.codes, numbers & _LOW_HALF)
    upper += totals >> _HALF
    if int(upper.max()) >= 2**31 or int(upper.min()) < -(2**31):
        return None
    return (upper << _HALF) + (totals & _LOW_HALF)


def _add_decimals(values: pa.Array, groups: Groups, missing: npt.NDArray[np.bool_] | None, what: str) -> pa.Array:
    kind = sum_type(values.type)
    narrow = narrow_decimals(values)
    if narrow is not None:
        totals = _add_integers(narrow, groups)
        if totals is not None:
            return decimals_of(totals, kind, missing)
    # Rare: numbers beyond 64 bits. Each 128 bit word is added in pieces that cannot overflow, and put together in Python.
    words = decimal_words(values)
    pieces = []
    for piece in (
        words[:, 0] & _LOW_HALF,
        (words[:, 0] >> _HALF) & _LOW_HALF,
        words[:, 1] & _LOW_HALF,
        words[:, 1] >> _HALF,
    ):
        totals = np.zeros(groups.count, np.int64)
        np.add.at(totals, groups.codes, piece)
        pieces.append(totals.tolist())
    exact = Context(prec=80)
    sums = [
        Decimal(a + (b << 32) + (c << 64) + (d << 96)).scaleb(-kind.scale, exact) for a, b, c, d in zip(*pieces, strict=True)
    ]
    try:
        return pa.array(sums, kind, mask=missing)
    except pa.ArrowInvalid as error:
        raise OverflowError(f"{what}: the sum has more than 38 digits; cast the argument to float64 first.") from error
