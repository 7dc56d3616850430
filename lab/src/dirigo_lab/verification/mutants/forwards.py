"""Mistakes with forwards, with what lessees hand back, and with critical messages born in parallel mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel.instance import Instance
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import MailboxState, MessageKind
from dirigo_lab.verification.mutants.mutant import mutant


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
    def mistaken(self: Any, message: Any, kind: MessageKind) -> None:
        pending = kind is MessageKind.PENDING and self.state is MailboxState.RUNNABLE
        original(self, message, MessageKind.FREE if pending else kind)

    return mistaken


@mutant("offered-twice", "what a strategy gives back is offered twice", Lessor, "_offer_again", "offered-again")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> None:
        for message in self.host.extras.give_back(self.host, self.address):
            self.offer(message)  # type: ignore[arg-type]
            self.offer(message)  # type: ignore[arg-type]

    return mistaken


@mutant("given-back-lost", "what a strategy gives back is not offered again", Lessor, "_offer_again", "offered-again")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor) -> None:
        self.host.extras.give_back(self.host, self.address)

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


@mutant("lose-timers", "timers set at a lessee do not move with its partial state", Instance, "take_timers", "timers")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Instance) -> tuple[Any, ...]:
        original(self)
        return ()

    return mistaken
