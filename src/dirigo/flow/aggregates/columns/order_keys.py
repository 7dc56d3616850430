"""Owns order as plain integers: any column that can be sorted becomes int64 numbers in the same order, and back.

With it the largest of each group is one numpy call for numbers, times, decimals and texts alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ranks = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LOWEST = np.int64(-(2**63))


def is_orderable(kind: pa.DataType) -> bool:
    """Whether columns of this type can be sorted."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


class Ordering:
    """The ranks of one column without nulls. Ranks of different columns must not be compared: see `decode`."""

    __slots__ = ("_kind", "_sorted_values", "ranks")

    def __init__(self, values: pa.Array) -> None:
        self._kind = values.type
        self._sorted_values: pa.Array | None = None
        self.ranks: Ranks = self._encode(values)

    def decode(self, ranks: Ranks, missing: Mask | None) -> pa.Array:
        """The values of some of the ranks; null where `missing`, whatever the rank is there."""
        kind = self._kind
        types = pa.types
        if self._sorted_values is not None:
            if missing is not None:
                ranks = np.where(missing, 0, ranks)
            return self._sorted_values.take(pa.array(ranks, mask=missing))
        if types.is_floating(kind):
            return pa.array(_float_of_rank(ranks), pa.float64(), mask=missing).cast(kind)
        if types.is_boolean(kind):
            return pa.array(ranks != 0, mask=missing)
        if types.is_decimal(kind):
            return decimals_of(ranks, kind, missing)
        if kind == pa.int64():
            return pa.array(ranks, mask=missing)
        if kind == pa.uint64():
            return pa.array((ranks ^ _LOWEST).view(np.uint64), mask=missing)
        if types.is_integer(kind):
            return pa.array(ranks.astype(kind.to_pandas_dtype()), mask=missing)
        if kind.bit_width == 32:
            return pa.array(ranks.astype(np.int32), mask=missing).view(kind)
        return pa.array(ranks, mask=missing).view(kind)

    def _encode(self, values: pa.Array) -> Ranks:
        kind = self._kind
        types = pa.types
        ranks: Ranks
        if types.is_integer(kind):
            numbers = values.to_numpy()
            if numbers.dtype == np.uint64:
                ranks = numbers.view(np.int64) ^ _LOWEST
            else:
                ranks = numbers.astype(np.int64, copy=False)
            return ranks
        if types.is_floating(kind):
            return _rank_of_float(values.cast(pa.float64()).to_numpy())
        if types.is_boolean(kind):
            ranks = values.to_numpy(zero_copy_only=False).astype(np.int64)
            return ranks
        if types.is_temporal(kind):
            ranks = values.view(pa.int64() if kind.bit_width == 64 else pa.int32()).to_numpy().astype(np.int64, copy=False)
            return ranks
        if types.is_decimal128(kind):
            narrow = narrow_decimals(values)
            if narrow is not None:
                return narrow
        encoded = values.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        self._sorted_values = encoded.dictionary.take(pa.array(order))
        ranks = place.take(encoded.indices.to_numpy())
        return ranks


def decimal_words(values: pa.Array) -> npt.NDArray[np.int64]:
    """The 128 bit integers of a decimal128 column as two columns of words, low and high."""
    if len(values) == 0:
        return np.zeros((0, 2), np.int64)
    return np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset).reshape(-1, 2)


def narrow_decimals(values: pa.Array) -> Ranks | None:
    """The unscaled integers of a decimal128 column without nulls, if all of them fit into 64 bits."""
    words = decimal_words(values)
    low = np.ascontiguousarray(words[:, 0])
    return low if bool((words[:, 1] == low >> 63).all()) else None


def decimals_of(unscaled: Ranks, kind: pa.DataType, missing: Mask | None) -> pa.Array:
    """A decimal128 column of unscaled 64 bit integers."""
    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    decimals = pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(words)])
    if missing is None:
        return decimals
    return pc.if_else(pa.array(missing), pa.scalar(None, kind), decimals)


def _rank_of_float(numbers: npt.NDArray[np.float64]) -> Ranks:
    """The bits of a float, read as an integer, are in order once those of negative numbers are flipped. NaN is largest."""
    numbers = numbers + 0.0  # -0.0 becomes 0.0: they are equal
    odd = np.isnan(numbers)
    if odd.any():
        numbers[odd] = np.nan  # there are many NaNs, with and without a sign
    bits = numbers.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _float_of_rank(ranks: Ranks) -> npt.NDArray[Any]:
    return (ranks ^ ((ranks >> 63) & np.int64(2**63 - 1))).view(np.float64)
