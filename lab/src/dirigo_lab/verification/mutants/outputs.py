"""Mistakes in the order in which outputs leave, around critical messages that are born on the way and what runs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dirigo.kernel.instance import Instance
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import MailboxState
from dirigo.kernel.outbox import Outbox, Route
from dirigo.kernel.round import Round
from dirigo_lab.verification.mutants.mutant import mutant


@mutant(
    "overtake-in-later-execution",
    "outputs of later executions leave at once although a critical message waits",
    Instance,
    "release",
    "born-in-a-barrier",
    "two-born",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Instance, outputs: Any) -> None:
        self.withholding = False
        original(self, outputs)

    return mistaken


@mutant(
    "overtake-at-lessee",
    "a lessee sends later outputs itself although it has handed a critical message over",
    Lessee,
    "intend",
    "born-then-more",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, outputs: Any) -> None:
        original(self, outputs)
        self.withholding = False

    return mistaken


@mutant(
    "overtake-in-execution",
    "outputs that follow a critical message in the same execution leave at once",
    Instance,
    "release",
    "born-on-lessee",
    "born-in-a-barrier",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Instance, outputs: Any) -> None:
        original(self, sorted(outputs, key=lambda output: output.critical))

    return mistaken


@mutant(
    "handed-over-in-any-order",
    "what a lessee hands over leaves in another order than it was produced",
    Lessor,
    "_plan",
    "born-then-more",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, current: Round) -> None:
        for intent in sorted(self.handed_over, key=lambda each: -each.seq):
            self.withheld.extend(output for output in intent.outputs if output.to != self.address)
            self.alone.extend(output for output in intent.outputs if output.to == self.address)  # type: ignore[misc]
        self.handed_over.clear()
        original(self, current)

    return mistaken


@mutant(
    "alone-first",
    "what runs alone runs before outputs that were withheld",
    Lessor,
    "_plan",
    "alone-behind-born",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, current: Round) -> None:
        current.agenda.extend(self.alone)
        self.alone.clear()
        original(self, current)

    return mistaken


@mutant("forget-to-withhold", "a lessor goes on withholding after its barrier", Lessor, "_plan", "two-born", "no-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, current: Round) -> None:
        withholding = self.withholding
        original(self, current)
        self.withholding = withholding

    return mistaken


@mutant(
    "one-number-for-all",
    "SYNC_ONEs are numbered over all targets, not per target",
    Outbox,
    "_send_program",
    "ones-to-two",
)
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Outbox, route: Route) -> None:
        route.ones = max(each.ones for each in self.routes.values())
        original(self, route)

    return mistaken


@mutant("inject-in-next-round", "what is injected in CRITICAL waits for the next round", Lessor, "inject", "injected")
def _(_original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, output: Any) -> None:
        self.withholding = True
        self.intend((output,))

    return mistaken


@mutant("inject-and-go-on", "what is emitted after an injected message leaves before it", Lessor, "inject", "injected")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, output: Any) -> None:
        original(self, output)
        self.withholding = False

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
            self.settle()  # as if the reply had not named it
            self.handed_over.append(intent)
            self.settle()

    return mistaken


@mutant("intents-last", "what the actor asked for runs after the barriers from upstream", Lessor, "_plan", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, current: Round) -> None:
        barriers, current.barriers = current.barriers, []
        for barrier in barriers:
            current.agenda.extend(barrier.runs(self.address, self.worker, self.host.now))
        original(self, current)
        current.barriers = barriers

    return mistaken


@mutant("alone-in-next-round", "running alone from CRITICAL takes another round", Lessor, "release", "alone-in-critical")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessor, outputs: Any) -> None:
        alone = next((i for i, output in enumerate(outputs) if output.to == self.address), len(outputs))
        original(self, outputs[:alone])
        if outputs[alone:]:
            self.intend(tuple(outputs[alone:]))

    return mistaken


@mutant("critical-from-lessee", "a lessee sends a critical message itself", Lessee, "intend", "born-on-lessee")
def _(original: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(self: Lessee, outputs: Any) -> None:
        for output in outputs:
            self.outbox.emit(output)

    return mistaken
