"""Mistakes with forwards, with what lessees hand back, and with critical messages born in parallel mode."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from dirigo.kernel.instance import Instance
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import Kind, MailboxState
from dirigo.kernel.round import Round
from dirigo.sim.verification.mutants.mutant import mutant


@mutant("forward-in-round", "the lessor forwards while it drains", Lessor, "may_forward", "chain", "two-barriers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, message: Any, worker: int) -> bool:
        state = self.state
        if state is MailboxState.DRAINING:
            self.state = MailboxState.RUNNABLE
        try:
            return bool(original(self, message, worker))
        finally:
            self.state = state

    return mistaken


@mutant(
    "forward-pending", "a pending message is offered, and forwarded", Instance, "admit", "incomplete-sync-one", "sync-one"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Any, message: Any, kind: Kind) -> None:
        pending = kind is Kind.PENDING and self.state is MailboxState.RUNNABLE
        original(self, message, Kind.FREE if pending else kind)

    return mistaken


@mutant("offered-twice", "what a strategy gives back is offered twice", Lessor, "_offer_again", "offered-again")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> None:
        for message in self.host.strategy.give_back(self.host, self.address):
            self.offer(message)  # type: ignore[arg-type]
            self.offer(message)  # type: ignore[arg-type]

    return mistaken


@mutant("given-back-lost", "what a strategy gives back is not offered again", Lessor, "_offer_again", "offered-again")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> None:
        self.host.strategy.give_back(self.host, self.address)

    return mistaken


@mutant("offered-in-round", "what is kept is offered again while a round drains", Lessor, "_start_round", "offered-again")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        started = bool(original(self))
        if started:
            state, self.state = self.state, MailboxState.RUNNABLE
            self._offer_again()
            self.state = state
        return started

    return mistaken


@mutant(
    "returns-overtaken", "the lessor does not wait for what is on its way back", Lessor, "_returns_are_done", "handed-back"
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> bool:
        return all(channel.done >= channel.arrived for channel in self.leases.returns.values())

    return mistaken


@mutant("intent-overtaken", "a lessee's intents are put off to a round of their own", Lessor, "on_intent", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, intent: Any) -> None:
        runnable_before = self.state is MailboxState.RUNNABLE
        channel = self.leases.return_channel(intent.origin)
        if runnable_before:
            original(self, intent)
        elif channel.admit(intent.seq):
            channel.done += 1
            others, self.intents = self.intents, deque()
            self.settle()  # as if the reply had not named it
            self.intents = deque([*others, *self.intents, intent.outputs])
            self.settle()

    return mistaken


@mutant("intents-last", "what the actor asked for runs after the barriers from upstream", Lessor, "_plan", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, current: Round) -> None:
        for barrier in current.barriers:
            current.agenda.extend(barrier.runs(self.address, self.worker, self.host.now))
        while self.intents:
            current.agenda.extend(self.intents.popleft())

    return mistaken


@mutant("alone-in-next-round", "running alone from CRITICAL takes another round", Lessor, "withhold", "alone-in-critical")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, outputs: self.intend(outputs)


@mutant("critical-from-lessee", "a lessee sends a critical message itself", Lessee, "intend", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, outputs: Any) -> None:
        for output in outputs:
            self.outbox.emit(output)

    return mistaken


@mutant("lose-timers", "timers set at a lessee do not move with its partial state", Instance, "take_timers", "timers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Instance) -> tuple[Any, ...]:
        original(self)
        return ()

    return mistaken
