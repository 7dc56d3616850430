"""First in, first out, over all functions of all jobs; nothing is ever sent elsewhere. The baseline."""

from __future__ import annotations

from collections import deque

from dirigo.kernel import Address, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.deadlines import is_input_of
from dirigo.scheduling.strategy import Strategy


class Fifo(Strategy):
    """One queue."""

    def __init__(self) -> None:
        self._queue: deque[RunnableMessage] = deque()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self._queue.append(message)
        return None

    def take_inputs(self, actor: Address) -> list[RunnableMessage]:
        """Keep no longer what has come to an actor from upstream."""
        taken = [message for message in self._queue if is_input_of(message, actor)]
        if taken:
            self._queue = deque(message for message in self._queue if not is_input_of(message, actor))
        return taken

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self._queue.popleft() if self._queue else None
