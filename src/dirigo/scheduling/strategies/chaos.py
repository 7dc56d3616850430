"""Whatever the protocol allows happens at random, everywhere in the pool. For tests: results must not change."""

from __future__ import annotations

from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.lessees import at_random
from dirigo.scheduling.strategy import Strategy

_ELSEWHERE = 0.5  # how often a message is sent on, or an output sent directly
_HAND_BACK = 0.15
_SCALE_IN = 0.02
_ALONE = 0.02


class Chaos(Strategy):
    """Forwards, redirects, hands back and reorders, and now and then starts a barrier, with or without an end
    of all leases of the actor."""

    def __init__(self) -> None:
        self._kept: list[RunnableMessage] = []

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        if not message.critical:
            home = context.spec(message.to).home
            if home != context.id:
                if context.rng.random() < _HAND_BACK and context.may_forward(message, home):
                    return home
            elif context.rng.random() < _ELSEWHERE:
                worker = at_random(context, context.workers)
                if worker != home and context.may_forward(message, worker):
                    return worker
        self._kept.append(message)
        return None

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        return self._kept.pop(context.rng.randrange(len(self._kept))) if self._kept else None

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        if output.critical or context.rng.random() >= _ELSEWHERE:
            return None
        return at_random(context, context.workers)

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        if context.spec(message.to).home != context.id:
            return
        if context.rng.random() < _SCALE_IN and context.lessees(message.to):
            context.scale_in(message.to)
        if not message.critical and context.rng.random() < _ALONE:
            context.run_alone(message.to, None)
