"""A strategy for measurements: one function's messages go to so many lessees, one after the other; then one stays at home.

So everybody has a partial state at the next barrier, which is what a barrier is measured with. What strategies otherwise
take into account, large states above all, is left out on purpose.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import cast

from dirigo.kernel import Lane, RunnableMessage, SchedulingContext, Worker, WorkerId, job_of, operator_of
from dirigo.scheduling import Strategy
from dirigo_lab.experiments.overhead.barrier_clock import BarrierClock


class ForwardingInTurn(Strategy):
    """First in, first out; the lessor of one operator forwards all but every so manyth message."""

    def __init__(self, operator: str, lessees: int, marks: Path | None = None) -> None:
        """``marks``: a folder to which each worker's barrier clock writes, on real workers."""
        self._operator = operator
        self._lessees = lessees
        self._marks = marks
        self._clock: BarrierClock | None = None
        self._turn = 0
        self._queue: deque[RunnableMessage] = deque()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        if message.critical:
            self._queue.append(message)
            return None
        if self._marks is not None:
            self._keep_time(context, message, self._marks)
        address = message.to
        home = context.spec(address).home
        if home == context.id and operator_of(address) == self._operator and message.lane is Lane.INPUT:  # type: ignore[union-attr]
            lessees = [worker for worker in context.workers if worker != home][: self._lessees]
            worker = (*lessees, home)[self._turn % (len(lessees) + 1)]
            self._turn += 1
            if context.may_forward(message, worker):  # not if it is the home itself
                return worker
        self._queue.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:  # noqa: ARG002
        return self._queue.popleft() if self._queue else None

    def _keep_time(self, context: SchedulingContext, message: RunnableMessage, marks: Path) -> None:
        """Have barriers timed here, and write down what was timed: messages come between barriers, when nobody waits."""
        if self._clock is None:
            self._clock = BarrierClock(time.time, job_of(message.to), marks / f"{context.id}.jsonl")
            # A strategy should see its worker only through the context. This one is there to measure, jobs cannot bring an
            # observer of their own, and the worker has none otherwise.
            cast(Worker, context).observer = self._clock
        self._clock.write()
