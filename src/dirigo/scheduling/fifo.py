"""First in, first out, over all functions of all jobs; nothing is ever sent elsewhere. The baseline."""

from __future__ import annotations

from collections import deque

from dirigo.kernel import Executable, SchedulingContext
from dirigo.scheduling.strategy import Strategy


class Fifo(Strategy):
    """One queue."""

    def __init__(self) -> None:
        self._queue: deque[Executable] = deque()

    def enqueue(self, context: SchedulingContext, message: Executable) -> None:
        self._queue.append(message)

    def get_next_message(self, context: SchedulingContext) -> Executable | None:
        return self._queue.popleft() if self._queue else None
