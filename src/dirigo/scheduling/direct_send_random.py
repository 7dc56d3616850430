"""DIRECTSEND for load balancing: the sender spreads messages over the instances of their target, whatever it costs."""

from __future__ import annotations

from collections.abc import Collection

from dirigo.kernel import Address, CriticalOutput, Output, SchedulingContext, WorkerId
from dirigo.scheduling.fifo import Fifo
from dirigo.scheduling.lessees import Span, selector_named
from dirigo.scheduling.reject_send import LESSEES_MAX


class DirectSendRandom(Fifo):
    """First in, first out; each output goes to the home of its target or to one of ``lessees_max`` others."""

    def __init__(self, lessees_max: int = LESSEES_MAX, selector: str = "random") -> None:
        super().__init__()
        self.span = Span(lessees_max)
        self.select = selector_named(selector)

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        if output.critical:
            return None
        others = self.span.of(context, output.to)
        return self.select(context, (context.spec(output.to).home, *others)) if others else None

    def forget_job(self, job: str) -> None:
        self.span.forget_job(job)

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.span.of(context, to)
