"""Strategies that do whatever the protocol allows, at random, and now and then start barriers of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from random import Random

from dirigo.kernel import Address, CriticalOutput, Output, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling.deadlines import is_input_of
from dirigo_lab.verification.checker import Ledger
from dirigo_lab.verification.guided import Freedom, Guided
from dirigo_lab.verification.random.world import Mind


class Injections:
    """The critical messages that strategies, or nobody in particular, injected in a run."""

    def __init__(self, ledgers: Mapping[Address, Ledger]) -> None:
        self._ledgers = ledgers
        self.all: list[tuple[Address, str]] = []
        self.first = 0  # the number of the first one

    def one_more(self, address: Address) -> str:
        """The payload of one more, which from now on has to run exactly once."""
        payload = f"injected {self.first + len(self.all)}"
        self.all.append((address, payload))
        self._ledgers[address].asked(payload)
        return payload


class Restless(Guided):
    """Now and then starts a barrier, in any hook."""

    def __init__(self, rng: Random, mind: Mind, freedom: Freedom, local: list[Address], injections: Injections) -> None:
        super().__init__(_chooser(rng, mind.stay), freedom)
        self._rng = rng
        self._whim = mind.whims if local else 0.0
        self._whims_left = mind.whims_max
        self._local = local  # actors whose lessor is here
        self._injections = injections

    def _maybe(self, context: SchedulingContext) -> None:
        if self._whim and self._rng.random() < self._whim and self._whims_left:
            self._whims_left -= 1
            address = self._rng.choice(self._local)
            if self._rng.random() < 0.6:
                context.scale_in(address)
            else:
                context.run_alone(address, self._injections.one_more(address))

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        self._maybe(context)
        return super().enqueue(context, message)

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        self._maybe(context)
        return super().get_next_message(context)

    def pre_apply(self, context: SchedulingContext, message: RunnableMessage) -> None:
        self._maybe(context)
        super().pre_apply(context, message)

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        self._maybe(context)
        return super().prepare_send(context, sender, output)

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return tuple(worker for worker in self.freedom.direct.get(to, ()) if self.choose(2))

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        inputs = [index for index, message in enumerate(self.kept) if is_input_of(message, actor)]
        return [self.drop(index) for index in reversed(inputs) if self.choose(2)]

    def drop(self, index: int) -> RunnableMessage:
        """No longer keep a message."""
        return self.kept.pop(index)

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        self._maybe(context)
        super().post_apply(context, message, elapsed_s)


class ByPriority(Restless):
    """Each message gets a random priority when it comes, and keeps it; whether the protocol blocks it now is not asked."""

    def __init__(self, rng: Random, mind: Mind, freedom: Freedom, local: list[Address], injections: Injections) -> None:
        super().__init__(rng, mind, freedom, local, injections)
        self._priorities: list[float] = []  # of what is kept
        self.held = 0

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        elsewhere = super().enqueue(context, message)
        if elsewhere is None:
            self._priorities.append(self._rng.random())
        return elsewhere

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        self._maybe(context)
        if not self.kept:
            return None
        message = self.drop(self._priorities.index(min(self._priorities)))
        self.held += not context.may_run(message)
        return message

    def drop(self, index: int) -> RunnableMessage:
        del self._priorities[index]
        return super().drop(index)


def _chooser(rng: Random, stay: float) -> Callable[[int], int]:
    """Chooses the first option with the given probability, and any one otherwise."""
    random = rng.random
    return lambda n: 0 if random() < stay else int(random() * n)
