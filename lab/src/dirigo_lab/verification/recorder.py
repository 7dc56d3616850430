"""An observer that turns what a worker does into facts for the ledgers of the actors concerned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dirigo.kernel import Address, CriticalOutput, CriticalRun, Data, Granularity, Output, RunnableMessage, Worker, WorkerId
from dirigo.kernel.interface.message import Message
from dirigo.kernel.mailbox import ADMIT, MailboxState, Transition, Verdict
from dirigo_lab.verification.checker import (
    ALONE,
    CRITICAL,
    DATA,
    Fact,
    Ledger,
    ViolationError,
    control_facts,
    data_fact,
)
from dirigo_lab.verification.snapshots.naming import CaptureInWorld, is_void
from dirigo_lab.verification.world import World, readable, seen


class Recorder:
    """Collects (actor, fact) pairs; whoever drives the worker takes them after each call."""

    def __init__(self, world: World, facts: list[tuple[Address, Fact]]) -> None:
        self.homes = world.homes
        self.actors = {actor.name: actor for actor in world.actors}
        self.facts = facts
        self.rows: set[Any] = set()  # rows of the mailbox tables that fired
        self.workers: dict[WorkerId, Worker] = {}

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None:
        if sender not in self.actors:  # a source, which says what it emits and is alone at all times
            produced = ((output.payload, CRITICAL if output.critical else DATA),)
            self.facts.append((output.to, ("produced", sender, worker, produced, True)))
        self.facts.append((output.to, ("emitted", sender, output.payload, output.critical)))

    def produced(self, worker: WorkerId, message: RunnableMessage) -> None:
        """A function has returned: note its outputs in the order in which it produced them."""
        sender = message.to
        instance = self.workers[worker].instance(sender)
        sequential = instance.state is MailboxState.CRITICAL
        outputs = instance.context.outputs
        is_alone = isinstance(message, CriticalRun) and message.parts[0][0] == sender
        for to in self.actors[sender].downstreams:
            concerned = []
            for output in outputs:
                if output.to == to:
                    concerned.append((output.payload, CRITICAL if output.critical else DATA))
                elif output.to == sender and sequential:
                    concerned.append((output.payload, ALONE))
            if concerned or is_alone:
                alone = message.payload if is_alone else ""
                self.facts.append((to, ("produced", sender, worker, tuple(concerned), sequential, alone)))
        for output in outputs:
            if output.to == sender:
                self.facts.append((sender, ("asked", output.payload)))

    def started(self, worker: WorkerId, message: RunnableMessage) -> None:
        instance = self.workers[worker].instance(message.to)
        # The kernel does not look the commonest rows up; here it shows whether it should have come to another verdict.
        row = ADMIT[instance.role, instance.state, instance.kind_of(message)]
        if row.verdict is Verdict.HOLD:
            raise ViolationError("table", f"{instance.name} starts {message.payload} in {instance.state.value}")
        self.rows.add(row)
        self.facts.append((message.to, ("started", worker, message.critical)))

    def _snapshot(self, worker: WorkerId, run: CriticalRun, own: tuple[tuple[str, int], ...]) -> Fact:
        """A host takes what is kept of an actor when its function has returned and before anything comes of it."""
        lessor = self.workers[worker].lessor(run.to)
        captured, lessor.context.captured = lessor.context.captured, None
        capture = None if is_void(run) else CaptureInWorld(captured, lessor.keep())
        return ("executed_snapshot", worker, tuple((sender, payload) for sender, _, payload in run.parts), capture, own)

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None:
        instance = self.workers[worker].instance(message.to)
        states = instance.states
        for _, payload in instance.context.timers:
            self.facts.append((message.to, ("asked", payload)))
        fact: Fact
        own = tuple(sorted(seen(states).items()))
        if isinstance(message, CriticalRun) and message.granularity is Granularity.SNAPSHOT:
            fact = self._snapshot(worker, message, own)
        elif isinstance(message, CriticalRun):
            parts = tuple((sender, payload) for sender, _, payload in message.parts)
            one = message.granularity is Granularity.ONE
            fact = ("executed_critical", worker, parts, one, message.final, own)
        else:
            base = tuple(sorted(readable(states).items())) if self.actors[message.to].replicated else None
            fact = (
                "executed",
                worker,
                message.sender,
                message.origin,
                message.payload,
                message.lane,
                message.seq,
                own,
                base,
            )
        self.facts.append((message.to, fact))
        self.produced(worker, message)

    def moved(self, address: Address, worker: WorkerId, row: Any) -> None:
        self.rows.add(row)
        if isinstance(row, Transition):
            self.facts.append((address, ("moved", row)))

    def sent(self, messages: Iterable[Message]) -> None:
        """Note what the worker wants sent; called by whoever takes its outgoing messages."""
        for message in messages:
            if isinstance(message, Data):
                self.facts.append((message.to, data_fact(message, self.homes, self.actors)))
            else:
                self.facts.extend(fact for fact in control_facts(message) if fact[0] in self.actors)


def ledgers_of(world: World) -> dict[Address, Ledger]:
    ledgers = {
        actor.name: Ledger(actor.name, world.homes[actor.name], world.upstreams(actor.name), actor.ordered)
        for actor in world.actors
    }
    for name, capture in world.restored.items():
        ledgers[name].restore(capture, dict(capture.content))
    return ledgers
