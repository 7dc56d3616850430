"""Counted channels: what an instance knows of one ordered pair (sending instance, itself).

Ids on a channel are contiguous from 1. Because every id is sent exactly once, counting what is done is enough to know that
everything up to a cut is done; no window of ids has to be kept while messages arrive in order.
"""

from __future__ import annotations


class Inbound:
    """The receiving end: which ids came, and how many of them are done (executed here, or handed over by a forward)."""

    __slots__ = ("ahead", "arrived", "done")

    def __init__(self) -> None:
        self.arrived = 0  # every id up to this one has come
        self.ahead: set[int] | None = None  # ids that overtook a smaller one
        self.done = 0

    def admit(self, seq: int) -> bool:
        """Note an arrival; False if this id has come before."""
        if seq == self.arrived + 1:
            self.arrived = seq
            if self.ahead:
                while self.arrived + 1 in self.ahead:
                    self.arrived += 1
                    self.ahead.discard(self.arrived)
                self.ahead = self.ahead or None
            return True
        if seq <= self.arrived or (self.ahead is not None and seq in self.ahead):
            return False
        if self.ahead is None:
            self.ahead = set()
        self.ahead.add(seq)
        return True
