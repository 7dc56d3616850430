"""A strategy for checking the protocol: whatever it allows may happen, and somebody else chooses.

``choose(n)`` returns a number below n. The explorer tries every choice; random runs draw one. Results must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from dirigo.kernel import Address, CriticalOutput, Output, Role, RunnableMessage, SchedulingContext, StrategyExtras, WorkerId
from dirigo.scheduling.deadlines import is_input_of
from dirigo.scheduling.strategy import Strategy

Chooser = Callable[[int], int]


@dataclass(frozen=True)
class Freedom:
    """What may be chosen, per actor: the narrower, the smaller the world."""

    forward: Mapping[Address, tuple[WorkerId, ...]] = field(default_factory=dict)  # to which lessees the lessor forwards
    direct: Mapping[Address, tuple[WorkerId, ...]] = field(default_factory=dict)  # to which lessees upstreams send
    hand_back: frozenset[Address] = frozenset()  # whose lessees may refuse
    at_once: bool = False  # upstreams ask for all lessees that they may send to in one registration
    gives_back: bool = False  # what was kept is offered again after a barrier
    blind: bool = False  # choose among all that is kept, also what the protocol blocks at the moment


class Guided(Strategy, StrategyExtras):
    """Forwards, redirects, hands back and reorders as ``choose`` says."""

    def __init__(self, choose: Chooser, freedom: Freedom) -> None:
        self.choose = choose
        self.freedom = freedom
        self.kept: list[RunnableMessage] = []

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        options = self._elsewhere(context, message)
        if options:
            choice = self.choose(len(options) + 1)
            if choice:
                return options[choice - 1]
        self.kept.append(message)
        return None

    def _elsewhere(self, context: SchedulingContext, message: RunnableMessage) -> list[WorkerId]:
        if message.critical:
            return []
        candidates: tuple[WorkerId, ...]
        if context.role(message.to) is Role.LESSEE:
            candidates = (context.spec(message.to).home,) if message.to in self.freedom.hand_back else ()
        else:
            candidates = self.freedom.forward.get(message.to, ())
        return [worker for worker in candidates if context.may_forward(message, worker)]

    def get_next_message(self, context: SchedulingContext) -> RunnableMessage | None:
        blind = self.freedom.blind
        options = [index for index, message in enumerate(self.kept) if blind or context.may_run(message)]
        if not options:
            return None
        return self.kept.pop(options[self.choose(len(options)) if len(options) > 1 else 0])

    def give_back(self, context: SchedulingContext, actor: Address) -> Collection[RunnableMessage]:
        given = [message for message in self.kept if self.freedom.gives_back and is_input_of(message, actor)]
        self.kept = [message for message in self.kept if not any(message is each for each in given)]
        return given

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        options = () if output.critical else self.freedom.direct.get(output.to, ())
        if not options:
            return None
        choice = self.choose(len(options) + 1)
        return options[choice - 1] if choice else None

    def also_wanted(self, context: SchedulingContext, sender: Address, to: Address) -> Collection[WorkerId]:
        return self.freedom.direct.get(to, ()) if self.freedom.at_once else ()
