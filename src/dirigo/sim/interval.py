"""Intervals of virtual time in which something stands still: a clogged link, a frozen worker.

An interval includes its beginning and excludes its end, so at its end things move again.
"""

from __future__ import annotations


class Intervals(list[tuple[float, float]]):
    """Intervals (from, to) by their beginnings; they may overlap. A list, so that testing for none costs next to nothing."""

    __slots__ = ()

    def add(self, from_t: float, to_t: float) -> None:
        if not from_t < to_t:
            raise ValueError(f"an interval must end after it begins, but this one goes from {from_t} to {to_t}")
        self.append((from_t, to_t))
        self.sort()  # by beginning, which makes one pass enough below

    def open_at(self, t: float) -> float:
        """The first moment from ``t`` on that is in no interval."""
        for begin, end in self:
            if begin <= t < end:
                t = end
        return t

    def end_of_work(self, t: float, seconds: float) -> float:
        """When work of this length is done that begins at ``t`` and rests during every interval."""
        t = self.open_at(t)
        for begin, end in self:
            if t <= begin and begin < t + seconds:
                seconds -= begin - t
                t = end
            elif begin <= t < end:
                t = end  # an overlapping one
        return t + seconds
