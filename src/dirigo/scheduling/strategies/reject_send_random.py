"""REJECTSEND for load balancing: the lessor keeps or forwards each message, at random or round-robin."""

from __future__ import annotations

from collections import deque

from dirigo.kernel import Lane, RunnableMessage, SchedulingContext, StrategyExtras, WorkerId
from dirigo.scheduling.lessees import LesseesAllowed, selector_named
from dirigo.scheduling.strategies.reject_send import LESSEES_MAX
from dirigo.scheduling.strategy import Strategy


class RejectSendRandom(Strategy, StrategyExtras):
    """First in, first out; each message at the home of its actor or at one of ``lessees_max`` others, all equally likely."""

    def __init__(self, lessees_max: int = LESSEES_MAX, selector: str = "random") -> None:
        self.span = LesseesAllowed(lessees_max)
        self.select = selector_named(selector)
        self._queue: deque[RunnableMessage] = deque()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        if not message.critical and message.lane is Lane.INPUT:  # type: ignore[union-attr]
            home = context.spec(message.to).home
            if home == context.id:
                worker = self.select(context, (home, *self.span.of(context, message.to)))
                if worker != home and context.may_forward(message, worker):
                    return worker
        self._queue.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self._queue.popleft() if self._queue else None

    def forget_job(self, job: str) -> None:
        self.span.forget_job(job)
