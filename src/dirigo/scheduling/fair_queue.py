"""What can wait, in an order that is fair between jobs: each gets on by what its messages cost, divided by its weight.

First come, first served would let a job with a long backlog stand before everybody who comes later. Here a message begins,
in the queue's own time, where its job's last message ended, or where the queue is now if its job has nothing in it. So the
next job's message stands beside the first of a backlog, not behind the last.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from dirigo.kernel import Address, RunnableMessage


class Waiting(NamedTuple):
    """A message in the queue."""

    rank: float
    number: int  # first come, first served among equals
    begins: float  # in the queue's own time
    message: RunnableMessage
    cost_s: float
    handicap_s: float
    since: float  # when it was found to be late; infinite if its job has had its share

    @property
    def is_only_late(self) -> bool:
        return self.since < inf


class FairQueue:
    """The messages of all jobs at one worker that nobody is bound to serve now."""

    __slots__ = ("_count", "_ends", "_heap", "_now", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0  # of work
        self._heap: list[Waiting] = []
        self._count = 0
        self._now = 0.0  # the queue's own time: where the message began that was served last
        self._ends: dict[str, float] = {}  # job -> where its last message ends

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(
        self,
        message: RunnableMessage,
        job: str,
        weight: float,
        cost_s: float,
        *,
        handicap_s: float = 0.0,
        since: float = 0.0,
    ) -> None:
        """Among messages that begin at about the same time, the one with the smaller handicap is first."""
        begins = max(self._now, self._ends.get(job, 0.0))
        self._ends[job] = begins + cost_s / weight
        self._count += 1
        self.seconds += cost_s
        heappush(self._heap, Waiting(begins + handicap_s, self._count, begins, message, cost_s, handicap_s, since))

    @property
    def first(self) -> Waiting:
        return self._heap[0]

    def pop(self) -> Waiting:
        entry = heappop(self._heap)
        if self._heap:
            self._now = max(self._now, entry.begins)
            self.seconds -= entry.cost_s
        else:  # nobody is ahead of anybody
            self._now = self.seconds = 0.0
            self._ends.clear()
        return entry

    def take(self, is_meant: Callable[[Waiting], bool]) -> list[Waiting]:
        """Remove some messages, in their order. All others keep their places."""
        taken = sorted(entry for entry in self._heap if is_meant(entry))
        if taken:
            gone = {entry.number for entry in taken}
            self._heap = [entry for entry in self._heap if entry.number not in gone]
            heapify(self._heap)
            self.seconds = sum(entry.cost_s for entry in self._heap)
        return taken

    def hurry(self, actor: Address, share: float, is_meant: Callable[[RunnableMessage], bool]) -> None:
        """Leave those messages of an actor that are meant only this share of their handicap."""
        if any(entry.message.to == actor and is_meant(entry.message) for entry in self._heap):
            self._heap = [
                entry._replace(rank=min(entry.rank, entry.begins + share * entry.handicap_s))
                if entry.message.to == actor and is_meant(entry.message)
                else entry
                for entry in self._heap
            ]
            heapify(self._heap)
