"""The random numbers of java.util.Random, drawn for many seeds at once.

The JDK documents the algorithm: a linear congruential generator of 48 bits. Nexmark draws every event from a generator of
its own, so the states of many events form one array, and each draw is a few operations on that array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# The 48 bits are kept in the upper part of 64: arithmetic modulo 2**64 then drops what must be dropped, and a shift
# to the right yields the most significant bits without a mask.
_UNUSED_BITS = 16
_STATE_BITS = 64
_SCRAMBLE = np.uint64(0x5DEECE66D)
_MULTIPLIER = np.uint64(0x5DEECE66D)
_INCREMENT = np.uint64(0xB << _UNUSED_BITS)

_BITS_MOST = 31  # Java's own draws of 32 bits are signed; nothing here needs them
_VALUES_31_BITS = 1 << 31
_DOUBLE_UNIT = np.float64(2.0**-53)


class JavaRandoms:
    """One java.util.Random per seed; every method draws from all of them and returns one value for each."""

    __slots__ = ("_state",)

    def __init__(self, seeds: Integers) -> None:
        state = seeds.astype(np.uint64)
        state ^= _SCRAMBLE
        state <<= np.uint64(_UNUSED_BITS)
        self._state = state

    def __len__(self) -> int:
        return len(self._state)

    def at(self, rows: NDArray[np.intp]) -> JavaRandoms:
        """Copies of the generators of some rows. Draws from them do not move these here; see `put`."""
        chosen = JavaRandoms.__new__(JavaRandoms)
        chosen._state = self._state[rows]
        return chosen

    def put(self, rows: NDArray[np.intp], chosen: JavaRandoms) -> None:
        """Continue, in these rows, from where the copies have got to."""
        self._state[rows] = chosen._state

    def next(self, bits: int) -> Integers:
        """`next(bits)`: whole numbers of that many bits, 1 to 31, never negative."""
        if not 1 <= bits <= _BITS_MOST:
            raise ValueError(f"one draw gives 1 to {_BITS_MOST} bits here, not {bits}")
        self._advance()
        return (self._state >> np.uint64(_STATE_BITS - bits)).view(np.int64)

    def next_int(self, bound: int) -> Integers:
        """`nextInt(bound)`: whole numbers from 0 to bound - 1."""
        if not 1 <= bound < _VALUES_31_BITS:
            raise ValueError(f"a bound is 1 to {_VALUES_31_BITS - 1}, not {bound}")
        if bound == 1:
            self._advance()
            return np.zeros(len(self._state), np.int64)
        if bound & (bound - 1) == 0:  # Java's special case for powers of two: the topmost bits
            return self.next(bound.bit_length() - 1)
        # Dividing 32-bit numbers by one constant is much faster than taking remainders of 64-bit ones.
        drawn = self.next(_BITS_MOST).astype(np.uint32)
        multiple = drawn // np.uint32(bound)
        multiple *= np.uint32(bound)
        drawn -= multiple
        values = drawn.astype(np.int64)
        self._redraw(values, multiple > np.uint32(_VALUES_31_BITS - bound), bound)
        return values

    def next_int_below(self, bounds: Integers) -> Integers:
        """`nextInt(bound)` with a bound of its own for every generator."""
        if len(bounds) == 0:
            return np.zeros(0, np.int64)
        lowest, highest = int(bounds.min()), int(bounds.max())
        if lowest == highest:
            return self.next_int(lowest)
        if lowest < 1 or highest >= _VALUES_31_BITS:
            raise ValueError(f"a bound is 1 to {_VALUES_31_BITS - 1}; here they are {lowest} to {highest}")
        drawn = self.next(_BITS_MOST)
        remainders = drawn % bounds
        is_power_of_two = (bounds & (bounds - 1)) == 0
        values = np.where(is_power_of_two, (bounds * drawn) >> _BITS_MOST, remainders)
        self._redraw(values, ~is_power_of_two & (drawn - remainders > _VALUES_31_BITS - bounds), bounds)
        return values

    def next_double(self) -> Floats:
        """`nextDouble()`: from 0 inclusive to 1 exclusive, multiples of 2**-53."""
        mantissa = self.next(26)
        mantissa <<= 27
        mantissa += self.next(27)
        return mantissa.astype(np.float64) * _DOUBLE_UNIT

    def _advance(self) -> None:
        self._state *= _MULTIPLIER
        self._state += _INCREMENT

    def _redraw(self, values: Integers, is_rejected: NDArray[np.bool_], bound: int | Integers) -> None:
        """Draw again where the number fell into the incomplete last multiple of the bound, as Java does."""
        if not is_rejected.any():
            return
        rows = np.flatnonzero(is_rejected)
        again = self.at(rows)
        values[rows] = again.next_int(bound) if isinstance(bound, int) else again.next_int_below(bound[rows])
        self.put(rows, again)
