"""Chaos for flows: whatever the protocol allows happens at random. Results must not change."""

from __future__ import annotations

from random import Random

from dirigo.kernel import FunctionSpec, RunnableMessage, SchedulingContext, WorkerId
from dirigo.scheduling import Chaos, Freedom
from dirigo.sim.delay import uniform
from dirigo.sim.network import DeliveryOrder, Network

_BARRIERS = 0.02  # how often, per message, leases end before their time, and how often an actor has to run alone


def disorderly_network() -> Network:
    """Every message takes its own time, control messages come twice now and then."""
    return Network(delay=uniform(0.0001, 0.02), order=DeliveryOrder.NONE, duplicates=0.05)


def freedom(specs: list[FunctionSpec], workers: list[WorkerId]) -> Freedom:
    """Every function that may run elsewhere may run everywhere, forwarded or sent directly."""
    elsewhere = {
        spec.address: tuple(worker for worker in workers if worker != spec.home) for spec in specs if not spec.ordered
    }
    return Freedom(forward=elsewhere, direct=elsewhere, hand_back=frozenset(elsewhere), blind=True)


class Disorder(Chaos):
    """Forwards, redirects, hands back and reorders at random, and now and then starts a barrier, with or without an end of
    all leases of the actor."""

    def __init__(self, rng: Random, freedom: Freedom) -> None:
        super().__init__(rng.randrange, freedom)
        self._rng = rng

    def post_apply(self, context: SchedulingContext, message: RunnableMessage, elapsed_s: float) -> None:
        if context.spec(message.to).home != context.id:
            return
        if self._rng.random() < _BARRIERS and context.lessees(message.to):
            context.scale_in(message.to)
        if not message.critical and self._rng.random() < _BARRIERS:
            context.run_alone(message.to, None)

    def enqueue(self, context: SchedulingContext, message: RunnableMessage) -> WorkerId | None:
        elsewhere = super().enqueue(context, message)
        if elsewhere is not None and context.spec(message.to).home == elsewhere and self._rng.random() < 0.7:
            self.kept.append(message)  # a lessee hands back little, or hardly anything would run at one
            return None
        return elsewhere
