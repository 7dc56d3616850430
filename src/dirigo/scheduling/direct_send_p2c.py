"""DIRECTSEND by the power of two choices: of two instances of the target, the sender takes the less loaded.

The sender knows how much waits elsewhere from what other workers tell along with their messages, and reckons with what it
has sent since. Messages run in the order of their deadlines, because what waits is measured in seconds of work anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from dirigo.kernel import Address, CriticalOutput, Output, SchedulingContext, WorkerId
from dirigo.scheduling.by_deadline import URGENT_S, ByDeadline
from dirigo.scheduling.deadlines import due
from dirigo.scheduling.lessees import Span, less_loaded_of_two
from dirigo.scheduling.reject_send import LESSEES_MAX


class DirectSendP2C(ByDeadline):
    """Spreads outputs over the home of their target and ``lessees_max`` others."""

    def __init__(self, lessees_max: int = LESSEES_MAX) -> None:
        super().__init__()
        self.span = Span(lessees_max)

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        if output.critical:
            return None
        others = self.span.of(context, output.to)
        if not others:
            return None
        is_urgent = due(output) - context.now < URGENT_S
        worker = less_loaded_of_two(context, (context.spec(output.to).home, *others), is_urgent=is_urgent)
        context.add_load(worker, self.costs.guessed_s(output.to, context.rows(output)))  # type: ignore[arg-type]
        return worker

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.span.of(context, to)

    def forget_job(self, job: str) -> None:
        super().forget_job(job)
        self.span.forget_job(job)
