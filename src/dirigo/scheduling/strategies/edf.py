"""The earliest deadline first, over all functions of all jobs; nothing is ever sent elsewhere.

A critical message is offered only once its actor has done all that precedes it, and what precedes it was due earlier; so it
neither needs nor gets a rank of its own, and a job with many barriers does not push others aside.
"""

from __future__ import annotations

from heapq import heappop, heappush

from dirigo.kernel import RunnableMessage, SchedulingContext
from dirigo.scheduling.deadlines import due
from dirigo.scheduling.strategy import Strategy


class Edf(Strategy):
    """One heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, RunnableMessage]] = []
        self._count = 0  # first come, first served among equals

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._count += 1
        heappush(self._heap, (due(message), self._count, message))

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return heappop(self._heap)[2] if self._heap else None
