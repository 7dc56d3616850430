"""Runs every order of deliveries and executions of a small world, to closure.

A global state is: one local state per worker, one ledger per actor, what is in the network (a multiset: the network orders
nothing), and what may still be injected. Local states, ledgers and messages are interned as small integers. A handler is
called once per (local state, event) and its outcomes are kept, so that a step of the search is a few look-ups however
expensive the handler is. Nondeterminism inside a handler (a strategy's choice) is a ``choose(n)`` that is replayed for
every answer.

The search is breadth first, so the first violation found is one with the fewest steps. States seen are kept as 64-bit
hashes: among ten million states the chance that two share one is about 3 in a million.

Two reductions, both sound because the event commutes with every other event and disables none:

- an acknowledgment that nobody's behaviour depends on (CM_ACK, the receipt of SYNC_REQUEST) is delivered at once;
- a source that has no choice of recipients emits, and takes acknowledgments, at once: its messages can wait in the network
  for as long as it could have waited itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dirigo.kernel import Address, CriticalOutput, DirigoError, Message, ProtocolError, Source, Worker
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import Event, MailboxState, Transition
from dirigo.kernel.message import CriticalAck, Data, SyncRequestAck
from dirigo.scheduling import Chaos
from dirigo.sim.checker import Fact, Ledger, ViolationError
from dirigo.sim.recorder import Recorder, ledgers_of
from dirigo.sim.snapshot import Copier, canonical
from dirigo.sim.world import World

State = tuple[int, ...]
Outcome = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...], tuple[Address, ...]]
# (local state, messages sent, (ledger slot, facts) ..., actors whose lessor became CRITICAL)

_RUN, _FINISH, _STEP, _INJECT = -1, -2, -3, -4  # events at a worker other than the delivery of message k >= 0
_DEPTH_MAX = 5_000


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


@dataclass
class Exploration:
    """What a search found."""

    world: str
    states: int = 0
    transitions: int = 0
    longest: int = 0
    closed: bool = False
    violation: ViolationError | None = None
    story: list[str] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    rows: set[Any] = field(default_factory=set)
    covered: dict[str, set[str]] = field(default_factory=dict)  # kind of channel -> {"dependency", "pending"}

    @property
    def uncovered(self) -> list[str]:
        """Kinds of channels that carried no dependency, or no pending message."""
        return sorted(kind for kind, found in self.covered.items() if len(found) < 2)

    @property
    def verdict(self) -> str:
        if self.violation is not None:
            return f"violated: {self.violation.invariant}"
        if not self.closed:
            return "bounded"
        return f"hollow: {', '.join(self.uncovered)}" if self.uncovered else "holds"


class Explorer:
    """The search over one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.directory = world.directory()
        self.chooser = Chooser()
        self.facts: list[tuple[Address, Fact]] = []
        self.recorder = Recorder(world, self.facts)
        self.freedom = world.freedom()
        self.width = world.workers
        self.names = [actor.name for actor in world.actors]
        self.slot_of = {name: self.width + index for index, name in enumerate(self.names)}
        self.extra = self.width + len(self.names)  # slot of what may still be injected
        self.net = self.extra + 1  # where the messages in the network begin
        self._copier = Copier(
            [self.directory, *self.directory, self.freedom, self.chooser, self.recorder, *self._downstreams()]
        )
        self._local_ids: list[dict[Hashable, int]] = [{} for _ in range(self.width)]
        self._locals: list[list[bytes]] = [[] for _ in range(self.width)]
        self._script_at: list[list[int]] = [[] for _ in range(self.width)]
        self._message_ids: dict[Message, int] = {}
        self.messages: list[Message] = []
        self._destination: list[int] = []
        self._is_eager: list[bool] = []
        self._fact_ids: dict[Hashable, int] = {}
        self._fact_lists: list[tuple[Fact, ...]] = []
        self._ledger_ids: dict[Hashable, int] = {}
        self._ledgers: list[Ledger] = []
        self._outcomes: list[dict[tuple[int, int], tuple[Outcome, ...]]] = [{} for _ in range(self.width)]
        self._ledger_steps: dict[tuple[int, int], int] = {}
        self.coverage: dict[Address, set[tuple[str, int]]] = {name: set() for name in self.names}
        self.criticals_max = 0
        self._sources = {world.homes[source]: source for source in world.scripts}
        self._eager_sources = {
            worker
            for worker, source in self._sources.items()
            if not any(target in self.freedom.direct and self.freedom.direct[target] for target in world.targets(source))
        }
        self._injections = [("scale_in", name) for name in world.scale_ins]
        self._injections += [("run_alone", name) for name in world.injections]

    def _downstreams(self) -> list[Any]:
        return [spec.downstreams for spec in self.directory]

    # --- local states --------------------------------------------------------------------------------------------------

    def _intern_local(self, worker: Worker, script_at: int) -> int:
        slot = worker.id
        for party in worker.parties.values():
            if isinstance(party, (Lessor, Lessee)):
                party.function = None  # a function keeps nothing: each message may find a new one
        key = (canonical(worker), script_at)
        known = self._local_ids[slot].get(key)
        if known is None:
            known = self._local_ids[slot][key] = len(self._locals[slot])
            self._locals[slot].append(self._copier.dump(worker))
            self._script_at[slot].append(script_at)
        return known

    def _copy(self, slot: int, local: int) -> Worker:
        worker = self._copier.load(self._locals[slot][local])
        self.recorder.workers = {slot: worker}
        return worker

    def _intern_message(self, message: Message) -> int:
        known = self._message_ids.get(message)
        if known is None:
            known = self._message_ids[message] = len(self.messages)
            self.messages.append(message)
            self._destination.append(message.worker)
            self._is_eager.append(
                isinstance(message, (CriticalAck, SyncRequestAck)) or message.worker in self._eager_sources
            )
        return known

    def _initial(self) -> State:
        locals_ = []
        for slot in range(self.width):
            worker = Worker(slot, self.directory, Chaos(self.chooser, self.freedom))
            worker.observer = self.recorder
            self.recorder.workers = {slot: worker}
            source = self._sources.get(slot)
            if source is not None:
                worker.add_source(source, self.world.targets(source))
            locals_.append(self._intern_local(worker, 0))
        ledgers = [self._intern_ledger(ledger) for ledger in ledgers_of(self.world).values()]
        budget = (1 << len(self._injections)) - 1 | self.world.duplicates << len(self._injections)
        return self._close((*locals_, *ledgers, budget))

    # --- one worker, one event -----------------------------------------------------------------------------------------

    def outcomes(self, slot: int, local: int, event: int) -> tuple[Outcome, ...]:
        """All that can come of an event at a worker; empty if it cannot happen."""
        known = self._outcomes[slot].get((local, event))
        if known is None:
            known = self._outcomes[slot][local, event] = tuple(self._try_all(slot, local, event))
        return known

    def _try_all(self, slot: int, local: int, event: int) -> Iterator[Outcome]:
        answers: list[int] | None = []
        while answers is not None:
            self.chooser.restart(answers)
            outcome = self._try(slot, local, event)
            if outcome is None:
                return
            yield outcome
            answers = self.chooser.following()

    def _try(self, slot: int, local: int, event: int) -> Outcome | None:
        worker = self._copy(slot, local)
        script_at = self._script_at[slot][local]
        self.facts.clear()
        if event >= 0:
            worker.receive(self.messages[event])
        elif event == _STEP:
            source = worker.parties[self._sources[slot]]
            script = self.world.scripts[self._sources[slot]]
            assert isinstance(source, Source)
            if script_at == len(script) or source.is_waiting():
                return None
            for output in script[script_at]:
                source.emit(output)
            script_at += 1
        elif event == _RUN:
            if worker.running is not None or worker.next() is None:
                return None
            if not self.world.split:
                worker.apply()
                worker.finish()
        elif event == _FINISH:
            if worker.running is None:
                return None
            worker.apply()
            worker.finish()
        else:
            self._inject(worker, *self._injections[_INJECT - event])
        self.recorder.sent(worker.outgoing)
        sent = tuple(sorted(self._intern_message(message) for message in worker.outgoing))
        worker.outgoing.clear()
        return self._intern_local(worker, script_at), sent, self._intern_facts(), self._consolidated()

    def _inject(self, worker: Worker, what: str, actor: Address) -> None:
        lessor = worker.lessor(actor)
        if what == "scale_in":
            lessor.scale_in()
        else:
            lessor.intend((CriticalOutput(actor, "injected"),))

    def _consolidated(self) -> tuple[Address, ...]:
        return tuple(
            actor
            for actor, fact in self.facts
            if fact[0] == "moved" and isinstance(fact[2], Transition) and fact[2].event is Event.CONSOLIDATED
        )

    # --- ledgers -------------------------------------------------------------------------------------------------------

    def _intern_facts(self) -> tuple[tuple[int, int], ...]:
        by_actor: dict[Address, list[Fact]] = {}
        for actor, fact in self.facts:
            by_actor.setdefault(actor, []).append(fact)
        interned = []
        for actor, facts in by_actor.items():
            key = tuple(facts)
            known = self._fact_ids.get(key)
            if known is None:
                known = self._fact_ids[key] = len(self._fact_lists)
                self._fact_lists.append(key)
            interned.append((self.slot_of[actor], known))
        return tuple(interned)

    def _intern_ledger(self, ledger: Ledger) -> int:
        key = (ledger.actor, ledger.freeze())
        known = self._ledger_ids.get(key)
        if known is None:
            known = self._ledger_ids[key] = len(self._ledgers)
            self._ledgers.append(ledger)
        return known

    def _ledger_step(self, ledger: int, facts: int) -> int:
        known = self._ledger_steps.get((ledger, facts))
        if known is None:
            copy = _copy_ledger(self._ledgers[ledger])
            for fact in self._fact_lists[facts]:
                copy.note(fact)
            self.coverage[copy.actor] |= copy.coverage
            known = self._ledger_steps[ledger, facts] = self._intern_ledger(copy)
        return known

    # --- the search ----------------------------------------------------------------------------------------------------

    def events(self, state: State) -> Iterator[tuple[int, int, int]]:
        """What can happen: (worker, event, index in the network of what is consumed, or -1)."""
        previous = -1
        for index in range(self.net, len(state)):
            message = state[index]
            if message != previous:
                previous = message
                yield self._destination[message], message, index
        for slot in range(self.width):
            if slot in self._sources:
                if slot not in self._eager_sources:
                    yield slot, _STEP, -1
            else:
                yield slot, _RUN, -1
                if self.world.split:
                    yield slot, _FINISH, -1
        budget = state[self.extra]
        if budget:
            yield from self._extra_events(state, budget)

    def _extra_events(self, state: State, budget: int) -> Iterator[tuple[int, int, int]]:
        for bit, (_, actor) in enumerate(self._injections):
            if budget >> bit & 1:
                yield self.world.homes[actor], _INJECT - bit, -1
        if budget >> len(self._injections):
            for index in range(self.net, len(state)):
                if not isinstance(self.messages[state[index]], Data):
                    yield self._destination[state[index]], state[index], -1

    def follow(self, state: State, slot: int, event: int, index: int, outcome: Outcome) -> State:
        """The state after an outcome; raises if an invariant is violated."""
        local, sent, facts, consolidated = outcome
        head = list(state[: self.net])
        head[slot] = local
        for ledger_slot, fact in facts:
            head[ledger_slot] = self._ledger_step(head[ledger_slot], fact)
        net = state[self.net :]
        if index >= 0:
            at = index - self.net
            net = net[:at] + net[at + 1 :]
        elif event <= _INJECT:
            head[self.extra] &= ~(1 << _INJECT - event)
        elif event >= 0:
            head[self.extra] -= 1 << len(self._injections)
        if sent:
            net = tuple(sorted(net + sent))
        following = (*head, *net)
        for actor in consolidated:
            self._check_nothing_left(following, actor)
        return self._close(following)

    def _close(self, state: State) -> State:
        """Let everything happen that commutes with all the rest (see the top of this file)."""
        for slot in self._eager_sources:
            while True:
                outcomes = self.outcomes(slot, state[slot], _STEP)
                if not outcomes:
                    break
                state = self._apply_eager(state, slot, outcomes[0])
        for index in range(self.net, len(state)):
            if self._is_eager[state[index]]:
                slot = self._destination[state[index]]
                outcome = self.outcomes(slot, state[slot], state[index])[0]
                return self._close(self._apply_eager(state[:index] + state[index + 1 :], slot, outcome))
        return state

    def _apply_eager(self, state: State, slot: int, outcome: Outcome) -> State:
        local, sent, facts, _ = outcome
        head = list(state[: self.net])
        head[slot] = local
        for ledger_slot, fact in facts:
            head[ledger_slot] = self._ledger_step(head[ledger_slot], fact)
        return (*head, *sorted(state[self.net :] + sent))

    def _check_nothing_left(self, state: State, actor: Address) -> None:
        """A lessor became CRITICAL: its lessees must have handed over everything."""
        for slot in self.world.lessees[actor]:
            party = self._copier.load(self._locals[slot][state[slot]]).parties.get(actor)
            if isinstance(party, Lessee) and (not party.states.is_identity() or party.running is not None):
                raise ViolationError("no-partial-left", f"w{slot} holds a partial state of {actor} or runs a message of it")

    def search(
        self, states_max: int = 50_000_000, progress: Callable[[Exploration], None] | None = None
    ) -> Exploration:
        """Breadth first to closure, or until ``states_max`` states have been seen."""
        found = Exploration(self.world.name)
        try:
            start = self._initial()
        except DirigoError as error:
            found.violation = _as_violation(error)
            return found
        seen = {hash(start)}
        layer = [start]
        parents: list[array[int]] = [array("q", [0])]
        follow, outcomes_of, events = self.follow, self.outcomes, self.events
        while layer and not found.violation:
            following: list[State] = []
            back = array("q")
            for position, state in enumerate(layer):
                stuck = True
                for number, (slot, event, index) in enumerate(events(state)):
                    try:
                        for choice, outcome in enumerate(outcomes_of(slot, state[slot], event)):
                            stuck = False
                            found.transitions += 1
                            successor = follow(state, slot, event, index, outcome)
                            key = hash(successor)
                            if key not in seen:
                                seen.add(key)
                                following.append(successor)
                                back.append((position << 20) | (number << 8) | choice)
                    except (DirigoError, ViolationError) as error:
                        self._record(found, error, parents, position, number)
                        break
                if stuck and not found.violation:
                    try:
                        self._check_end(state)
                    except ViolationError as violation:
                        self._record(found, violation, parents, position, None)
                if found.violation:
                    break
            found.states = len(seen)
            found.longest = len(parents)
            if progress is not None:
                progress(found)
            if len(seen) >= states_max or len(parents) > _DEPTH_MAX:
                break
            layer = following
            parents.append(back)
        found.closed = not layer and not found.violation
        found.rows = set(self.recorder.rows)
        self._judge_coverage(found)
        return found

    def _judge_coverage(self, found: Exploration) -> None:
        """Which kinds of channels carried messages before and after some barrier."""
        last = {name: max((epoch for _, epoch in seen), default=0) for name, seen in self.coverage.items()}
        for ledger in self._ledgers:
            last[ledger.actor] = max(last[ledger.actor], *(edge.emitted for edge in ledger.edges.values()))
        for name, coverage in self.coverage.items():
            for kind, epoch in coverage:
                sides = found.covered.setdefault(kind, set())
                if epoch < last[name]:
                    sides.add("dependency")
                if epoch > 0:
                    sides.add("pending")

    # --- the end of a run ----------------------------------------------------------------------------------------------

    def _check_end(self, state: State) -> None:
        if len(state) > self.net:
            raise ViolationError("no-deadlock", "messages are left in the network")
        for name in self.names:
            self._ledgers[state[self.slot_of[name]]].finish()
        workers = [self._copier.load(self._locals[slot][state[slot]]) for slot in range(self.width)]
        for slot, source in self._sources.items():
            if self._script_at[slot][state[slot]] < len(self.world.scripts[source]):
                raise ViolationError("no-deadlock", f"{source} waits for an acknowledgment for ever")
        check_at_rest(workers)

    # --- stories -------------------------------------------------------------------------------------------------------

    def _record(
        self, found: Exploration, error: Exception, parents: list[array[int]], position: int, number: int | None
    ) -> None:
        codes: list[int] = []
        for back in reversed(parents[1:]):
            code = back[position]
            codes.append(code)
            position = code >> 20
        codes.reverse()
        found.violation = _as_violation(error)
        state = self._initial()
        for code in codes:
            slot, event, index = list(self.events(state))[code >> 8 & 0xFFF]
            outcome = self.outcomes(slot, state[slot], event)[code & 0xFF]
            found.story.append(self._tell(slot, event))
            found.path.append(code & 0xFFFFF)
            state = self.follow(state, slot, event, index, outcome)
        if number is not None:
            slot, event, index = list(self.events(state))[number]
            found.story.append(self._tell(slot, event))
            found.path.append(number << 8)

    def _tell(self, slot: int, event: int) -> str:
        where = self._place_name(slot)
        if event >= 0:
            return f"{where} receives {describe(self.messages[event])}"
        if event == _STEP:
            return f"{where} emits what is next in its script"
        if event == _RUN:
            return f"{where} {'starts' if self.world.split else 'runs'} a message"
        if event == _FINISH:
            return f"{where} finishes the message that it runs"
        return f"a strategy asks {where}: {self._injections[_INJECT - event][0]}"

    def _place_name(self, slot: int) -> str:
        if slot in self._sources:
            return f"source {self._sources[slot]}@w{slot}"
        for actor in self.world.actors:
            if slot == self.world.homes[actor.name]:
                return f"lessor {actor.name}@w{slot}"
            if slot in self.world.lessees[actor.name]:
                return f"lessee {actor.name}@w{slot}"
        raise AssertionError(slot)


def _as_violation(error: Exception) -> ViolationError:
    if isinstance(error, ViolationError):
        return error
    if isinstance(error, ProtocolError):
        return ViolationError(error.rule, str(error))
    return ViolationError("policy", str(error))


def _copy_ledger(ledger: Ledger) -> Ledger:
    copy = Ledger(ledger.actor, ledger.home, (), ledger.ordered)
    for name, edge in ledger.edges.items():
        twin = type(edge)()
        twin.emitted, twin.executed, twin.ended = edge.emitted, edge.executed, edge.ended
        twin.due, twin.waiting = list(edge.due), dict(edge.waiting)
        copy.edges[name] = twin
    copy.executed_counts = dict(ledger.executed_counts)
    copy.critical = ledger.critical
    copy.running = set(ledger.running)
    copy.promised = set(ledger.promised)
    copy.before = set(ledger.before)
    copy.base = dict(ledger.base)
    copy.owed = set(ledger.owed)
    copy.outstanding = set(ledger.outstanding)
    copy.seqs = dict(ledger.seqs)
    return copy


def describe(message: Message) -> str:
    """A message in one short line, for stories."""
    shown = {name: getattr(message, name) for name in message.__struct_fields__}
    hidden = ("to", "worker", "created", "deadline", "view_version")
    inner = ", ".join(f"{name}={value!r}" for name, value in shown.items() if name not in hidden and value not in ((), None))
    return f"{type(message).__name__}({inner})"


def check_at_rest(workers: list[Worker]) -> None:
    """Nothing can happen any more: all queues are empty, and what lessors and lessees believe of each other agrees."""
    for worker in workers:
        if getattr(worker.strategy, "kept", ()) or worker.running is not None:
            raise ViolationError("no-deadlock", f"w{worker.id} still has messages to run")
        for party in worker.parties.values():
            for route in party.outbox.routes.values():
                if route.waiting or route.backlog or route.awaiting:
                    raise ViolationError("no-deadlock", f"{party.name} still has outputs for {route.to}")
            if isinstance(party, (Lessor, Lessee)):
                _check_instance_at_rest(party)
            if isinstance(party, Lessor):
                _check_leases(party, workers)


def _check_instance_at_rest(party: Lessor | Lessee) -> None:
    left: list[Any] = list(party.held)
    if isinstance(party, Lessor):
        left += [*party.intents, *party.leases.deferred.values(), *party.parked.values()]
        left += [program for upstream in party.upstreams.values() for program in upstream.programs]
        if party.leases.revoking is not None:
            left.append("a scale-in")
    else:
        left += [*party.early, *([party.held_request] if party.held_request else [])]
    if left or party.state is not MailboxState.RUNNABLE:
        raise ViolationError("no-deadlock", f"{party.name} is {party.state.value} and still has {left}")


def _check_leases(lessor: Lessor, workers: list[Worker]) -> None:
    leases = lessor.leases
    for worker in workers:
        party = worker.parties.get(lessor.address)
        if isinstance(party, Lessee) and not party.states.is_identity() and worker.id not in leases.leased:
            raise ViolationError("leases-consistent", f"{party.name} has a partial state but no lease")
        for sender in worker.parties.values():
            route = sender.outbox.routes.get(lessor.address)
            granted = leases.grants.get((sender.address, worker.id), set())
            if route is not None and not route.open <= granted:
                raise ViolationError("leases-consistent", f"{sender.name} may send where {lessor.name} did not grant it")
    if not set().union(*leases.grants.values()) <= leases.leased:
        raise ViolationError("leases-consistent", f"{lessor.name} granted a worker that holds no lease")
