"""The processor cores that all simulated workers of one machine share: what the runtime itself computes has to wait for one.

Work that is emulated by sleeping needs none. Whoever asks first gets the core that is free first, and keeps it.
"""

from __future__ import annotations

from heapq import heapreplace


class Cores:
    """So many of them."""

    __slots__ = ("_free_at",)

    def __init__(self, count: int) -> None:
        self._free_at = [0.0] * count

    def take(self, begin: float, seconds: float) -> float:
        """When something that could begin at a time, and computes for so long, is done."""
        done = max(begin, self._free_at[0]) + seconds
        heapreplace(self._free_at, done)
        return done
