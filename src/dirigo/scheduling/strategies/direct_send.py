"""DIRECTSEND, driven by objectives: the sender spreads messages over the instances of their target, and leaves out for a
while those that were late.

An instance that is late with a message tells the strategy that sent it. Bad news takes a hop, and stays true for less long
than it is believed: this is what the paper finds wanting in it under skew.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dirigo.kernel import Address, CriticalOutput, Lane, Output, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.lessees import LesseesAllowed, selector_named
from dirigo.scheduling.strategies.by_deadline import ByDeadline
from dirigo.scheduling.strategies.reject_send import LESSEES_MAX
from dirigo.scheduling.strategies.returned_messages import ReturnedMessages

PAUSE_S = 0.1
_LATE = "late"


class DirectSend(ByDeadline):
    """The sender chooses among the home of the target and ``lessees_max`` others, none of which was late in ``pause_s``.

    ``home_first``: others are sent to only while the home is left out, which is how the paper compares the two modes.
    """

    def __init__(
        self,
        lessees_max: int = LESSEES_MAX,
        *,
        pause_s: float = PAUSE_S,
        selector: str = "random",
        home_first: bool = False,
    ) -> None:
        super().__init__()
        self.home_first = home_first
        self.span = LesseesAllowed(lessees_max)
        self.pause_s = pause_s
        self.select = selector_named(selector)
        self.given_back = ReturnedMessages()
        self._paused: dict[tuple[Address, WorkerId], float] = {}  # instance -> until when nothing is sent there
        self._paused_until = 0.0  # of all of them
        self._told: dict[tuple[Address, Address, WorkerId], float] = {}  # whom it was told about: once per pause is enough

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        worker = self.given_back.elsewhere(context, message, self._choose)
        return super().enqueue(context, message) if worker is None else worker

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        return self.given_back.note(self.take_inputs(actor))

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        if output.critical:
            return None
        if self.home_first and self._paused.get((output.to, context.spec(output.to).home), 0.0) <= context.now:
            return None
        return self._choose(context, output)

    def _choose(self, context: SchedulingContext, message: RunnableMessage | Output | CriticalOutput) -> WorkerId | None:
        to = message.to
        others = self.span.of(context, to)
        if not others:
            return None
        now, paused = context.now, self._paused
        instances = (context.spec(to).home, *others)
        if now < self._paused_until:
            instances = tuple(worker for worker in instances if paused.get((to, worker), 0.0) <= now)
            if not instances:
                return None  # all were late: the lessor is as good as any, and needs no lease
        return self.select(context, instances)

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.span.of(context, to)

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        super().post_apply(context, message, elapsed_s)
        if context.now > message.deadline and not message.critical and message.lane is Lane.INPUT:  # type: ignore[union-attr]
            key = (message.to, message.sender, message.origin)  # type: ignore[union-attr]
            if self._told.get(key, 0.0) <= context.now:
                self._told[key] = context.now + self.pause_s
                context.tell_sender(message, _LATE)  # type: ignore[arg-type]

    def note_received(self, context: SchedulingContext, actor: Address, worker: WorkerId, note: Any) -> None:
        if note == _LATE:
            self._paused_until = self._paused[actor, worker] = context.now + self.pause_s

    def forget_job(self, job: str) -> None:
        super().forget_job(job)
        self.span.forget_job(job)
        prefix = f"{job}/"
        self._paused = {key: until for key, until in self._paused.items() if not key[0].startswith(prefix)}
        self._told = {key: until for key, until in self._told.items() if not key[0].startswith(prefix)}
