"""DIRECTSEND for load balancing: the sender spreads messages over the instances of their target, whatever it costs."""

from __future__ import annotations

from collections.abc import Collection

from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, StrategyExtras, WorkerId
from dirigo.scheduling.lessees import LesseesAllowed, selector_named
from dirigo.scheduling.strategies.fifo import Fifo
from dirigo.scheduling.strategies.reject_send import LESSEES_MAX
from dirigo.scheduling.strategies.returned_messages import ReturnedMessages


class DirectSendRandom(Fifo, StrategyExtras):
    """First in, first out; each output goes to the home of its target or to one of ``lessees_max`` others."""

    def __init__(self, lessees_max: int = LESSEES_MAX, selector: str = "random") -> None:
        super().__init__()
        self.span = LesseesAllowed(lessees_max)
        self.select = selector_named(selector)
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
        return self.select(context, (context.spec(message.to).home, *others)) if others else None

    def forget_job(self, job: str) -> None:
        self.span.forget_job(job)

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.span.of(context, to)
