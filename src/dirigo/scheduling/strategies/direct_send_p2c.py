"""DIRECTSEND by the power of two choices: of two instances of the target, the sender takes the less loaded.

The sender knows how much waits elsewhere from what other workers tell along with their messages, and reckons with what it
has sent since. Messages run in the order of their deadlines, because what waits is measured in seconds of work anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.deadlines import due
from dirigo.scheduling.lessees import LesseesAllowed, less_loaded_of_two
from dirigo.scheduling.strategies.by_deadline import URGENT_S, ByDeadline
from dirigo.scheduling.strategies.reject_send import LESSEES_MAX
from dirigo.scheduling.strategies.returned_messages import ReturnedMessages


class DirectSendP2C(ByDeadline):
    """Spreads outputs over the home of their target and ``lessees_max`` others."""

    def __init__(self, lessees_max: int = LESSEES_MAX) -> None:
        super().__init__()
        self.span = LesseesAllowed(lessees_max)
        self.given_back = ReturnedMessages()

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        worker = self.given_back.elsewhere(context, message, self._choose)
        return super().enqueue(context, message) if worker is None else worker

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        return self.given_back.note(self.take_inputs(actor))

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        return None if output.critical else self._choose(context, output)

    def _choose(self, context: SchedulingContext, message: RunnableMessage | Output | CriticalOutput) -> WorkerId | None:
        others = self.span.of(context, message.to)
        if not others:
            return None
        is_urgent = due(message) - context.now < URGENT_S
        worker = less_loaded_of_two(context, (context.spec(message.to).home, *others), is_urgent=is_urgent)
        context.add_load(worker, self.costs.guessed_s(message.to, context.rows(message)))  # type: ignore[arg-type]
        return worker

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.span.of(context, to)

    def forget_job(self, job: str) -> None:
        super().forget_job(job)
        self.span.forget_job(job)
