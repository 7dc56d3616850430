"""Single workers under exploration: every distinct local state and message once, every handler call once.

The kernel's handlers are pure. So the outcomes of an event at a worker depend on nothing but the worker's local state and
the event, and the explorer asks for each pair only once. Nondeterminism inside a handler (a strategy's choice) is a
``choose(n)`` that is replayed for every answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import Enum
from typing import Any, NamedTuple

from dirigo.kernel import Address, CriticalOutput, Message, SourceActor, Worker
from dirigo.kernel.interface.message import CriticalAck, SyncRequestAck
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import Event, Transition
from dirigo.state import StateSet
from dirigo_lab.verification.checker import CRITICAL, Fact, Ledger
from dirigo_lab.verification.copier import Copier, canonical
from dirigo_lab.verification.guided import Guided
from dirigo_lab.verification.recorder import Recorder
from dirigo_lab.verification.snapshots.naming import CaptureInWorld
from dirigo_lab.verification.world import SEEN, World

# Events at a worker: the delivery of message k >= 0, or one of these; injection k is INJECT - k.
RUN, FINISH, STEP, FIRE, INJECT = -1, -2, -3, -4, -5


class HandlerOutcome(NamedTuple):
    """What came of an event at a worker."""

    local: int  # its local state afterwards
    sent: tuple[int, ...]  # messages, sorted
    facts: tuple[tuple[Address, int], ...]  # what the ledgers of these actors have to note
    consolidated: tuple[Address, ...]  # actors whose lessor became CRITICAL
    wakes: bool  # something was sent that is delivered at once


class Chooser:
    """Answers ``choose(n)`` from a prescribed list, then with 0; remembers how many answers there were at each point."""

    def __init__(self) -> None:
        self.prescribed: list[int] = []
        self.sizes: list[int] = []

    def restart(self, prescribed: list[int]) -> None:
        self.prescribed = prescribed
        self.sizes = []

    def __call__(self, n: int) -> int:
        index = len(self.sizes)
        self.sizes.append(n)
        return self.prescribed[index] if index < len(self.prescribed) else 0

    def following(self) -> list[int] | None:
        """The next list of answers in lexicographic order, or None after the last."""
        answers = self.prescribed + [0] * (len(self.sizes) - len(self.prescribed))
        for index in reversed(range(len(self.sizes))):
            if answers[index] + 1 < self.sizes[index]:
                return [*answers[:index], answers[index] + 1]
        return None


class Handlers:
    """The workers of a world, one local state at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.width = world.workers
        self.directory = world.directory()
        self.freedom = world.freedom()
        self.chooser = Chooser()
        self.facts: list[tuple[Address, Fact]] = []
        self.recorder = Recorder(world, self.facts)
        self.sources = {world.homes[source]: source for source in world.scripts}
        self.eager_sources = {slot for slot, source in self.sources.items() if not self._has_choice(source)}
        self.injections = [("scale_in", name) for name in world.scale_ins]
        self.injections += [("run_alone", name) for name in world.injections]
        self.injections += [(f"send_critical to {to}", name) for name, to in world.criticals]
        self.messages: list[Message] = []
        self.destination: list[int] = []
        self.is_eager: list[bool] = []
        self.calls = 0
        self.tried = (0, 0)  # the worker and the event of the last handler call
        self._message_ids: dict[Message, int] = {}
        self._ids: list[dict[Hashable, int]] = [{} for _ in range(self.width)]
        self._dumps: list[list[bytes]] = [[] for _ in range(self.width)]
        self._script_at: list[list[int]] = [[] for _ in range(self.width)]
        self._outcomes: list[list[dict[int, tuple[HandlerOutcome, ...]]]] = [[] for _ in range(self.width)]
        self._busy: list[list[tuple[bool, bool, bool]]] = [[] for _ in range(self.width)]  # runs, can run, has timers
        self._own: list[list[tuple[tuple[int, tuple[HandlerOutcome, ...]], ...] | None]] = [[] for _ in range(self.width)]
        self._fact_ids: dict[Hashable, int] = {}
        self.fact_lists: list[tuple[Fact, ...]] = []
        self._idle: dict[tuple[int, int, Address], bool] = {}
        self._copier = Copier([self.directory, *self.directory, self.freedom, self.chooser, self.recorder, *SEEN.values()])

    def _has_choice(self, source: Address) -> bool:
        return any(self.freedom.direct.get(target) for target in self.world.targets(source))

    # --- local states --------------------------------------------------------------------------------------------------

    def initial(self) -> list[int]:
        """The local states at the beginning."""
        return [self._intern(self._new_worker(slot), 0) for slot in range(self.width)]

    def _new_worker(self, slot: int) -> Worker:
        worker = Worker(slot, self.directory, Guided(self.chooser, self.freedom))
        worker.observer = self.recorder
        source = self.sources.get(slot)
        if source is not None:
            worker.add_source(source, self.world.targets(source))
        for name, capture in self.world.restored.items():
            if self.world.homes[name] == slot:
                restore(worker, name, capture)
        return worker

    def _intern(self, worker: Worker, script_at: int) -> int:
        slot = worker.id
        for participant in worker.participants.values():
            if isinstance(participant, (Lessor, Lessee)):
                participant.function = None  # a function keeps nothing: each message may find a new one
        key = (canonical(worker), script_at)
        known = self._ids[slot].get(key)
        if known is None:
            known = self._ids[slot][key] = len(self._dumps[slot])
            self._dumps[slot].append(self._copier.dump(worker))
            self._script_at[slot].append(script_at)
            self._outcomes[slot].append({})
            self._own[slot].append(None)
            waiting = bool(getattr(worker.strategy, "kept", ()))
            self._busy[slot].append((worker.running is not None, waiting, bool(worker.timed)))
        return known

    def worker(self, slot: int, local: int) -> Worker:
        """A copy of a worker in one of its local states."""
        return self._copier.load(self._dumps[slot][local])

    def script_is_done(self, slot: int, local: int) -> bool:
        return self._script_at[slot][local] == len(self.world.scripts[self.sources[slot]])

    def holds_nothing(self, slot: int, local: int, actor: Address) -> bool:
        """Whether a worker has neither a partial state nor a running message of an actor."""
        known = self._idle.get((slot, local, actor))
        if known is None:
            participant = self.worker(slot, local).participants.get(actor)
            known = not isinstance(participant, Lessee) or (participant.states.is_identity() and participant.running is None)
            self._idle[slot, local, actor] = known
        return known

    # --- events --------------------------------------------------------------------------------------------------------

    def own_events(self, slot: int, local: int) -> tuple[tuple[int, tuple[HandlerOutcome, ...]], ...]:
        """The events that a worker can have without a message, with their outcomes."""
        known = self._own[slot][local]
        if known is None:
            kinds = self.own_kinds(slot, local)
            found = ((event, self.outcomes(slot, local, event)) for event in kinds)
            known = self._own[slot][local] = tuple((event, outcomes) for event, outcomes in found if outcomes)
        return known

    def own_kinds(self, slot: int, local: int) -> tuple[int, ...]:
        """The events that a worker may be able to have without a message."""
        if slot in self.sources:
            return (STEP,)
        running, waiting, timed = self._busy[slot][local]
        kinds = (FINISH,) if running else (RUN,) if waiting else ()
        return (*kinds, FIRE) if timed else kinds

    def outcomes(self, slot: int, local: int, event: int) -> tuple[HandlerOutcome, ...]:
        """All that can come of an event at a worker; empty if it cannot happen."""
        known = self._outcomes[slot][local].get(event)
        if known is None:
            known = self._outcomes[slot][local][event] = tuple(self._try_all(slot, local, event))
        return known

    def _try_all(self, slot: int, local: int, event: int) -> Iterator[HandlerOutcome]:
        answers: list[int] | None = []
        while answers is not None:
            self.chooser.restart(answers)
            outcome = self._try(slot, local, event)
            if outcome is not None:
                yield outcome
            answers = self.chooser.following()

    def _try(self, slot: int, local: int, event: int) -> HandlerOutcome | None:
        self.calls += 1
        self.tried = (slot, event)
        worker = self.worker(slot, local)
        self.recorder.workers = {slot: worker}
        self.facts.clear()
        script_at = self._script_at[slot][local]
        if event == STEP:
            if not self._step(worker, script_at):
                return None
            script_at += 1
        elif not self._happen(worker, event):
            return None
        self.recorder.sent(worker.outgoing)
        sent = tuple(sorted(self._intern_message(message) for message in worker.outgoing))
        worker.outgoing.clear()
        wakes = any(self.is_eager[message] for message in sent)
        return HandlerOutcome(self._intern(worker, script_at), sent, self._intern_facts(), self._consolidated(), wakes)

    def _step(self, worker: Worker, script_at: int) -> bool:
        """Let a source emit what is next in its script."""
        address = self.sources[worker.id]
        script = self.world.scripts[address]
        source = worker.participants[address]
        assert isinstance(source, SourceActor)
        if script_at == len(script) or source.is_waiting():
            return False
        for output in script[script_at]:
            source.emit(output)
        return True

    def _happen(self, worker: Worker, event: int) -> bool:
        if event >= 0:
            worker.receive(self.messages[event])
        elif event == RUN:
            if worker.running is not None:
                return False
            kept = len(worker.strategy.kept)  # type: ignore[attr-defined]
            if worker.next() is None:
                return len(worker.strategy.kept) < kept  # type: ignore[attr-defined]  # what was chosen is held
            if not self.world.split:
                worker.apply()
                worker.finish()
        elif event == FINISH:
            if worker.running is None:
                return False
            worker.apply()
            worker.finish()
        elif event == FIRE:
            worker.now = 1.0
            worker.fire_timers()
            worker.now = 0.0
        else:
            what, actor = self.injections[INJECT - event]
            lessor = worker.lessor(actor)
            if what == "scale_in":
                lessor.scale_in()
            elif what == "run_alone":
                self.facts.append((actor, ("asked", "injected")))
                lessor.intend((CriticalOutput(actor, "injected"),))
            else:
                to = what.rpartition(" ")[2]
                produced = (("injected!", CRITICAL),)
                self.facts.append((to, ("produced", actor, worker.id, produced, False)))
                lessor.inject(CriticalOutput(to, "injected!"))
        return True

    # --- messages and facts --------------------------------------------------------------------------------------------

    def _intern_message(self, message: Message) -> int:
        known = self._message_ids.get(message)
        if known is None:
            known = self._message_ids[message] = len(self.messages)
            self.messages.append(message)
            self.destination.append(message.worker)
            without_effect = isinstance(message, (CriticalAck, SyncRequestAck))
            self.is_eager.append(without_effect or message.worker in self.eager_sources)
        return known

    def _consolidated(self) -> tuple[Address, ...]:
        return tuple(
            actor
            for actor, fact in self.facts
            if fact[0] == "moved" and isinstance(fact[1], Transition) and fact[1].event is Event.CONSOLIDATED
        )

    def _intern_facts(self) -> tuple[tuple[Address, int], ...]:
        by_actor: dict[Address, list[Fact]] = {}
        for actor, fact in self.facts:
            by_actor.setdefault(actor, []).append(fact)
        interned = []
        for actor, facts in by_actor.items():
            key = tuple(facts)
            known = self._fact_ids.get(key)
            if known is None:
                known = self._fact_ids[key] = len(self.fact_lists)
                self.fact_lists.append(key)
            interned.append((actor, known))
        return tuple(interned)


def restore(worker: Worker, actor: Address, capture: CaptureInWorld) -> None:
    """As a host does: the states first, then what the kernel has kept."""
    states = worker.instance(actor).states
    assert isinstance(states, StateSet)
    for payload, count in capture.content:
        states.cell("seen").add(payload, count)
    worker.restore(actor, capture.kept)


class Ledgers:
    """The ledgers of a world's actors, every distinct one once, every step once."""

    def __init__(self, fact_lists: list[tuple[Fact, ...]]) -> None:
        self._fact_lists = fact_lists
        self._ids: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, int], int] = {}
        self.all: list[Ledger] = []
        self.coverage: dict[Address, set[tuple[str, int]]] = {}

    def intern(self, ledger: Ledger) -> int:
        key = (ledger.actor, ledger.freeze())
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self.all)
            self.all.append(ledger)
        return known

    def step(self, ledger: int, facts: int) -> int:
        """The ledger after it took the facts in; raises ViolationError if they should not have happened."""
        known = self._steps.get((ledger, facts))
        if known is None:
            copy = self.all[ledger].copy()
            for fact in self._fact_lists[facts]:
                copy.note(fact)
            self.coverage.setdefault(copy.actor, set()).update(copy.coverage)
            known = self._steps[ledger, facts] = self.intern(copy)
        return known

    def criticals_emitted(self) -> dict[Address, int]:
        """The greatest number of critical messages that any upstream of each actor emitted in any run."""
        most: dict[Address, int] = {}
        for ledger in self.all:
            emitted = [edge.emitted for edge in ledger.edges.values()]
            most[ledger.actor] = max([most.get(ledger.actor, 0), *emitted])
        return most


def describe(message: Any) -> str:
    """A message in one short line, for stories."""
    hidden = ("to", "worker", "created", "deadline", "view_version")
    shown = {name: getattr(message, name) for name in message.__struct_fields__ if name not in hidden}
    inner = ", ".join(
        f"{name}={value.name if isinstance(value, Enum) else repr(value)}"
        for name, value in shown.items()
        if value not in ((), None)
    )
    return f"{type(message).__name__}({inner})"
