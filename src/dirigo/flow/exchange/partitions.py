"""Owns the assignment of rows to partitions by key: the same in every process and run, and the cutting of a batch by it.

The numbers are part of what is stored and sent: a change of any constant here moves keys to other partitions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dirigo.flow.rows.own_memory import cut

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x6A09E667F3BCC909)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_NOT_A_NUMBER = np.uint64(0x7FF8000000000000)

# Only this many bytes of a value count (and its length), so that a column of documents costs no more than one of names.
_BYTES_HASHED = 256
_BYTES_AT_ONCE = 1 << 18
_BASE = 0x5851F42D4C957F2D
_BASE_INVERSE = pow(_BASE, -1, 1 << 64)

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

# A prime whose products of two remainders fit into 64 bits; see _hash_decimals.
_PRIME = (1 << 31) - 1


def partition_of(columns: Sequence[pa.Array], partitions: int) -> npt.NDArray[np.int64]:
    """The partition, from 0 to partitions - 1, of each row.

    Rows with equal values are in one partition, whatever the width of the integers, the unit of the times, the scale of the
    decimals, and with or without a dictionary.
    """
    if not columns:
        raise ValueError("partition_of needs at least one column")
    if not 0 < partitions < 1 << 31:
        raise ValueError(f"there cannot be {partitions} partitions")
    if partitions == 1:
        return np.zeros(len(columns[0]), np.int64)
    mixed = _mix(_hash(columns[0]) + _SEED)
    for column in columns[1:]:
        mixed = _mix(mixed * _SEED + _hash(column))
    # The upper half, scaled to the number of partitions: evenly spread like a remainder, without the division.
    return (((mixed >> np.uint64(32)) * np.uint64(partitions)) >> np.uint64(32)).view(np.int64)


def split(batch: pa.RecordBatch, numbers: npt.NDArray[Any], partitions: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each partition that has any, in their order and apart. `numbers` is the partition of each row."""
    counts = np.bincount(numbers, minlength=partitions)
    present = np.flatnonzero(counts).tolist()
    if len(present) <= 1:
        return [(number, batch) for number in present]
    # numpy sorts 8 and 16 bit numbers by counting, several times quicker than by comparing.
    small = np.uint8 if partitions <= 1 << 8 else np.uint16 if partitions <= 1 << 16 else np.int64
    order = np.argsort(numbers.astype(small), kind="stable")
    sorted_batch = batch.take(pa.array(order))
    ends = np.cumsum(counts)
    return [(number, cut(sorted_batch, int(ends[number] - counts[number]), int(counts[number]))) for number in present]


def _mix(hashes: Hashes) -> Hashes:
    """Spread every bit of the input over the whole word (the finishing step of the SplitMix64 generator)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def _hash(column: pa.Array) -> Hashes:
    """A 64 bit word per row, equal for equal values; not yet mixed."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _hash(column.storage)
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL, np.uint64)
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(column)
    hashes = _hash_values(column)
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _hash_values(column: pa.Array) -> Hashes:
    """As _hash; whatever stands in the rows that are null."""
    kind = column.type
    if pa.types.is_integer(kind):
        return _words(_without_nulls(column, 0))
    if pa.types.is_boolean(kind):
        return _words(_without_nulls(column, False).cast(pa.int64()))
    if pa.types.is_floating(kind):
        return _hash_floats(column)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        return _hash_times(column, _NANOSECONDS[kind.unit])
    if pa.types.is_date32(kind):
        return _hash_times(column, 86_400 * 10**9)
    if pa.types.is_date64(kind):
        return _hash_times(column, 10**6)
    if pa.types.is_decimal128(kind):
        return _hash_decimals(column)
    if pa.types.is_decimal(kind):
        return _hash_values(column.cast(pa.decimal128(min(kind.precision, 38), kind.scale)))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(column.view(pa.binary()))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _hash_bytes(column.cast(pa.binary()))
    if kind in (pa.string_view(), pa.binary_view()):
        return _hash_bytes(column.cast(pa.string() if kind == pa.string_view() else pa.binary()).view(pa.binary()))
    return _hash_objects(column)


def _without_nulls(column: pa.Array, filler: Any) -> pa.Array:
    return column.fill_null(pa.scalar(filler, column.type)) if column.null_count else column


def _words(column: pa.Array) -> Hashes:
    numbers = column.to_numpy()
    words: Hashes = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False).view(np.uint64)
    return words


def _hash_floats(column: pa.Array) -> Hashes:
    numbers = _without_nulls(column.cast(pa.float64()), 0.0).to_numpy() + 0.0  # -0.0 becomes 0.0
    hashes = np.where(np.isnan(numbers), _NOT_A_NUMBER, numbers.view(np.uint64))
    # A whole number is the same key as the integer it equals.
    whole = (np.trunc(numbers) == numbers) & (np.abs(numbers) < 2.0**63)
    hashes[whole] = numbers[whole].astype(np.int64).view(np.uint64)
    return hashes


def _hash_times(column: pa.Array, nanoseconds: int) -> Hashes:
    # Far from the epoch the product wraps around; it does so alike for every unit, so equal times stay equal.
    width = pa.int64() if column.type.bit_width == 64 else pa.int32()
    return _words(_without_nulls(column.view(width), 0)) * np.uint64(nanoseconds)


def _hash_decimals(column: pa.Array) -> Hashes:
    """The unscaled integer times the inverse of 10**scale, modulo a prime: 1.5 and 1.50 have the same remainder."""
    words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
    prime = np.uint64(_PRIME)
    low, high = words[:, 0] % prime, words[:, 1] % prime
    remainder = (low + high * np.uint64((1 << 64) % _PRIME)) % prime
    # The words are a two's complement: a negative number stands for itself plus 2**128.
    negative = words[:, 1] >> np.uint64(63) != 0
    remainder = np.where(negative, (remainder + prime - np.uint64((1 << 128) % _PRIME)) % prime, remainder)
    return remainder * np.uint64(pow(10, -column.type.scale, _PRIME)) % prime


def _hash_bytes(column: pa.Array) -> Hashes:
    lengths = np.diff(_offsets(column))
    if len(lengths) and int(lengths.max()) > _BYTES_HASHED:
        column = pc.binary_slice(column, 0, _BYTES_HASHED)
    # No value is longer than _BYTES_HASHED now, so this many rows always have less than _BYTES_AT_ONCE.
    step = _BYTES_AT_ONCE // _BYTES_HASHED
    if len(column) <= step or int(lengths.sum()) <= _BYTES_AT_ONCE:
        polynomials = _polynomials(column)
    else:
        polynomials = np.concatenate([_polynomials(column.slice(start, step)) for start in range(0, len(column), step)])
    return polynomials + lengths.view(np.uint64) * np.uint64(_BASE)


def _offsets(column: pa.Array) -> npt.NDArray[np.int64]:
    if len(column) == 0:
        return np.zeros(1, np.int64)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)


def _polynomials(column: pa.Array) -> Hashes:
    """A polynomial of the bytes of each value, from one multiplication and one sum over the whole data buffer.

    Each byte is multiplied with a power that its place in the buffer has, and each sum is then divided by the power of the
    place where its value begins.
    """
    offsets = _offsets(column)
    polynomials = np.zeros(len(column), np.uint64)
    total = int(offsets[-1] - offsets[0])
    if total == 0:
        return polynomials
    powers, inverses = _powers(total)
    weighted = np.frombuffer(column.buffers()[2], np.uint8, total, int(offsets[0])) * powers[:total]
    # reduceat would give an empty value the byte of its neighbour: only the others are summed.
    full = np.flatnonzero(np.diff(offsets))
    starts = offsets[full] - offsets[0]
    polynomials[full] = np.add.reduceat(weighted, starts) * inverses[starts]
    return polynomials


_power_tables: tuple[Hashes, Hashes] = (np.ones(1, np.uint64), np.ones(1, np.uint64))


def _powers(length: int) -> tuple[Hashes, Hashes]:
    """At least `length` powers of the base and of its inverse modulo 2**64."""
    global _power_tables
    powers, inverses = _power_tables
    while len(powers) < length:
        size = len(powers)
        powers = np.concatenate([powers, powers * np.uint64(pow(_BASE, size, 1 << 64))])
        inverses = np.concatenate([inverses, inverses * np.uint64(pow(_BASE_INVERSE, size, 1 << 64))])
    _power_tables = (powers, inverses)
    return _power_tables


def _hash_dictionary(column: pa.DictionaryArray) -> Hashes:
    indices = column.indices
    if len(column.dictionary) == 0:
        return np.full(len(column), _NULL, np.uint64)
    hashes: Hashes = _hash(column.dictionary)[_without_nulls(indices, 0).to_numpy()]
    if indices.null_count:
        hashes = np.where(indices.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _hash_objects(column: pa.Array) -> Hashes:
    """Lists, structs and whatever else has no form above: by their Python text."""
    known: dict[str, int] = {}
    hashes = np.empty(len(column), np.uint64)
    for row, value in enumerate(column.to_pylist()):
        text = str(value)
        number = known.get(text)
        if number is None:
            number = known[text] = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        hashes[row] = number
    return hashes
