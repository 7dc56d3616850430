"""The processor cores that all simulated workers of one machine share: what the runtime itself computes has to wait for one.

Work that is emulated by sleeping needs none. Whoever asks first gets the core that is free first, and keeps it.
"""

from __future__ import annotations

from heapq import heapreplace

_FREE_LEAST = 0.1  # of each core, however many look for something to do


class Cores:
    """So many of them, for so many workers. ``idle_share``: of a core, for each that looks for something to do."""

    __slots__ = ("_free_at", "_idle_part", "_workers", "working")

    def __init__(self, count: int, workers: int = 0, idle_share: float = 0.0) -> None:
        self._free_at = [0.0] * count
        self._workers = workers
        self._idle_part = idle_share / count
        self.working = 0  # workers that run a message now, most of them asleep

    def take(self, begin: float, seconds: float) -> float:
        """When something that could begin at a time, and computes for so long, is done."""
        free = max(_FREE_LEAST, 1.0 - self._idle_part * (self._workers - self.working))
        done = max(begin, self._free_at[0]) + seconds / free
        heapreplace(self._free_at, done)
        return done
