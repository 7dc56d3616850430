"""Runs every order of deliveries and executions of a small world, to closure.

A global state is: one local state per worker, one ledger per actor, what may still be injected, and what is in the network
(a multiset: the network orders nothing). All of them are small integers, and a step of the search is a few look-ups however
expensive the handler is (see ``handlers``).

The search is breadth first, so the first violation found is one with the fewest steps. States seen are kept as 64-bit
hashes: among ten million states the chance that any two share one is about 3 in a million.

Two reductions, both sound because the event commutes with every other event and disables none:

- an acknowledgment that nobody's behaviour depends on (CM_ACK, the receipt of SYNC_REQUEST) is delivered at once;
- a source that has no choice of recipients emits, and takes acknowledgments, at once: its messages can wait in the network
  for as long as it could have waited itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dirigo.errors import DirigoError
from dirigo.kernel import Address, Data, ProtocolError
from dirigo_lab.verification.at_rest import check_at_rest
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.handlers import FINISH, FIRE, INJECT, RUN, STEP, HandlerOutcome, Handlers, Ledgers, describe
from dirigo_lab.verification.recorder import ledgers_of
from dirigo_lab.verification.world import World

State = tuple[int, ...]
Move = tuple[int, int, bool, int]  # worker, event, whether the message stays in the network, number of the outcome

_DEPTH_MAX = 5_000


@dataclass
class Exploration:
    """What a search found."""

    world: str
    states: int = 0
    transitions: int = 0
    longest: int = 0  # steps to the state that is farthest from the beginning
    closed: bool = False
    violation: ViolationError | None = None
    story: list[str] = field(default_factory=list)
    path: str = ""
    rows: set[Any] = field(default_factory=set)  # of the mailbox tables
    covered: dict[str, set[str]] = field(default_factory=dict)  # kind of channel -> {"dependency", "pending"}
    calls: int = 0
    variant: str = ""  # of a world with snapshots: the one that the story is about

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
        self.handlers = Handlers(world)
        self.ledgers = Ledgers(self.handlers.fact_lists)
        self.width = world.workers
        self.names = [actor.name for actor in world.actors]
        self.slot_of: dict[Address, int] = {name: self.width + index for index, name in enumerate(self.names)}
        self.budget = self.width + len(self.names)  # the slot of what may still be injected
        self.net = self.budget + 1  # where the messages in the network begin
        self.move: Move | None = None  # the one being made, for the story of a violation

    def initial(self) -> State:
        ledgers = [self.ledgers.intern(ledger) for ledger in ledgers_of(self.world).values()]
        injections = len(self.handlers.injections)
        budget = (1 << injections) - 1 | self.world.duplicates << injections
        return self._settle((*self.handlers.initial(), *ledgers, budget))

    # --- steps ---------------------------------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[tuple[Move, State]]:
        """Every move that is possible in a state, with the state it leads to; raises if that violates an invariant."""
        handlers = self.handlers
        destination, own_events, outcomes_of = handlers.destination, handlers.own_events, handlers.outcomes
        follow, net = self._follow, self.net
        previous = -1
        for index in range(net, len(state)):
            message = state[index]
            if message == previous:
                continue
            previous = message
            slot = destination[message]
            rest = state[net:index] + state[index + 1 :]
            for number, outcome in enumerate(outcomes_of(slot, state[slot], message)):
                self.move = move = (slot, message, False, number)
                yield move, follow(state, slot, outcome, rest, 0)
        messages = state[net:]
        for slot in range(self.width):
            for event, outcomes in own_events(slot, state[slot]):
                for number, outcome in enumerate(outcomes):
                    self.move = move = (slot, event, False, number)
                    yield move, follow(state, slot, outcome, messages, 0)
        if state[self.budget]:
            yield from self._extra_moves(state, messages)

    def _extra_moves(self, state: State, messages: State) -> Iterator[tuple[Move, State]]:
        """What a strategy may inject, and control messages that are delivered and come again."""
        budget, injections = state[self.budget], self.handlers.injections
        for bit, (_, actor) in enumerate(injections):
            if budget >> bit & 1:
                slot = self.world.homes[actor]
                for number, outcome in enumerate(self.handlers.outcomes(slot, state[slot], INJECT - bit)):
                    self.move = move = (slot, INJECT - bit, False, number)
                    yield move, self._follow(state, slot, outcome, messages, 1 << bit)
        if budget >> len(injections):
            for message in dict.fromkeys(messages):
                if self._may_come_twice(message):
                    slot = self.handlers.destination[message]
                    for number, outcome in enumerate(self.handlers.outcomes(slot, state[slot], message)):
                        self.move = move = (slot, message, True, number)
                        yield move, self._follow(state, slot, outcome, messages, 1 << len(injections))

    def _may_come_twice(self, message: int) -> bool:
        return self.world.duplicates_data or not isinstance(self.handlers.messages[message], Data)

    def _follow(self, state: State, slot: int, outcome: HandlerOutcome, messages: State, spent: int) -> State:
        local, sent, facts, consolidated, wakes = outcome
        head = list(state[: self.net])
        head[slot] = local
        if spent:
            head[self.budget] -= spent
        for actor, fact in facts:
            at = self.slot_of[actor]
            head[at] = self.ledgers.step(head[at], fact)
        if sent:
            messages = tuple(sorted(messages + sent))
        following = (*head, *messages)
        for actor in consolidated:
            self._check_nothing_left(following, actor)
        return self._settle(following) if wakes else following

    def _settle(self, state: State) -> State:
        """Let everything happen that commutes with all the rest (see the top of this file)."""
        try:
            return self._settled(state)
        except DirigoError as error:
            raise _as_violation(error) from error  # of the move that is being made

    def _settled(self, state: State) -> State:
        handlers = self.handlers
        for slot in handlers.eager_sources:
            while own := handlers.own_events(slot, state[slot]):
                state = self._follow(state, slot, own[0][1][0]._replace(wakes=False), state[self.net :], 0)
        for index in range(self.net, len(state)):
            if handlers.is_eager[state[index]]:
                slot = handlers.destination[state[index]]
                outcome = handlers.outcomes(slot, state[slot], state[index])[0]._replace(wakes=False)
                rest = state[self.net : index] + state[index + 1 :]
                return self._settled(self._follow(state, slot, outcome, rest, 0))
        return state

    def _check_nothing_left(self, state: State, actor: Address) -> None:
        """A lessor became CRITICAL: its lessees must have handed over everything."""
        for slot in self.world.lessees[actor]:
            if not self.handlers.holds_nothing(slot, state[slot], actor):
                raise ViolationError("no-partial-left", f"w{slot} holds a partial state of {actor}, or runs a message of it")

    # --- the search ----------------------------------------------------------------------------------------------------

    def search(self, states_max: int = 50_000_000, progress: Callable[[Exploration], None] | None = None) -> Exploration:
        """Breadth first to closure, or until ``states_max`` states have been seen."""
        found = Exploration(self.world.name)
        layer = [self.initial()]
        seen = {hash(layer[0])}
        parents: list[array[int]] = []
        while layer and found.violation is None and len(seen) < states_max and len(parents) <= _DEPTH_MAX:
            found.longest = len(parents)
            following: list[State] = []
            back = array("Q")
            for position, state in enumerate(layer):
                before = found.transitions
                try:
                    for move, successor in self.successors(state):
                        found.transitions += 1
                        key = hash(successor)
                        if key not in seen:
                            seen.add(key)
                            following.append(successor)
                            back.append(_encode(position, move))
                    if found.transitions == before:
                        self.move = None
                        self._check_end(state)
                except DirigoError as error:  # a handler of the kernel refused
                    self._explain(found, error, parents, position, (*self.handlers.tried, False, 0))
                    break
                except ViolationError as violation:  # at the end of a move, or at the end of a run
                    self._explain(found, violation, parents, position, self.move)
                    break
                if progress is not None and position % 5_000 == 0:
                    found.states = len(seen)
                    progress(found)
            layer = following
            parents.append(back)
        found.states = len(seen)
        found.closed = not layer and found.violation is None
        found.rows = set(self.handlers.recorder.rows)
        found.calls = self.handlers.calls
        self._judge_coverage(found)
        if progress is not None:
            progress(found)
        return found

    def _judge_coverage(self, found: Exploration) -> None:
        """Which kinds of channels carried messages before and after some barrier."""
        last = self.ledgers.criticals_emitted()
        for name, coverage in self.ledgers.coverage.items():
            for kind, epoch in coverage:
                sides = found.covered.setdefault(kind, set())
                if epoch < last[name]:
                    sides.add("dependency")
                if epoch > 0:
                    sides.add("pending")

    def _check_end(self, state: State) -> None:
        if len(state) > self.net:
            raise ViolationError("no-deadlock", "messages are left in the network, and nobody takes them")
        for name in self.names:
            self.ledgers.all[state[self.slot_of[name]]].finish()
        for slot, source in self.handlers.sources.items():
            if not self.handlers.script_is_done(slot, state[slot]):
                raise ViolationError("no-deadlock", f"{source} waits for an acknowledgment for ever")
        check_at_rest([self.handlers.worker(slot, state[slot]) for slot in range(self.width)])
        if self.world.cut is not None:
            self.world.cut.check_end({name: self.ledgers.all[state[self.slot_of[name]]] for name in self.names})

    # --- stories -------------------------------------------------------------------------------------------------------

    def _explain(
        self, found: Exploration, error: Exception, parents: list[array[int]], position: int, last: Move | None
    ) -> None:
        moves = [] if last is None else [last]
        for back in reversed(parents):
            position, move = _decode(back[position])
            moves.append(move)
        moves.reverse()
        found.violation = _as_violation(error)
        found.story = [self._tell(move) for move in moves]
        found.path = self._indices(moves)

    def _indices(self, moves: list[Move]) -> str:
        """The moves as numbers that mean the same in every process: positions in the sorted list of what is possible."""
        state, numbers = self.initial(), []
        for move in moves:
            options = self.options(state)
            numbers.append(next(i for i, (_, option) in enumerate(options) if option == move))
            try:
                state = self.after(state, move)
            except (DirigoError, ViolationError):
                break
        return ".".join(map(str, numbers))

    def options(self, state: State) -> list[tuple[str, Move]]:
        """The moves that are possible in a state, told and sorted; also those that violate an invariant."""
        found: list[tuple[str, Move]] = []
        for slot, event, stays in self._events(state):
            try:
                count = len(self.handlers.outcomes(slot, state[slot], event))
            except DirigoError:
                count = 1
            for number in range(count):
                move = (slot, event, stays, number)
                found.append((self._tell(move), move))
        return sorted(found)

    def _events(self, state: State) -> Iterator[tuple[int, int, bool]]:
        duplicates = state[self.budget] >> len(self.handlers.injections)
        for message in dict.fromkeys(state[self.net :]):
            yield self.handlers.destination[message], message, False
            if duplicates and self._may_come_twice(message):
                yield self.handlers.destination[message], message, True
        for slot in range(self.width):
            for event in self.handlers.own_kinds(slot, state[slot]):
                yield slot, event, False
        for bit, (_, actor) in enumerate(self.handlers.injections):
            if state[self.budget] >> bit & 1:
                yield self.world.homes[actor], INJECT - bit, False

    def after(self, state: State, move: Move) -> State:
        """The state after a move; raises if the move violates an invariant."""
        slot, event, stays, number = move
        outcome = self.handlers.outcomes(slot, state[slot], event)[number]
        messages, spent = list(state[self.net :]), 0
        if stays:
            spent = 1 << len(self.handlers.injections)
        elif event >= 0:
            messages.remove(event)
        elif event <= INJECT:
            spent = 1 << INJECT - event
        return self._follow(state, slot, outcome, tuple(messages), spent)

    def check_end(self, state: State) -> None:
        """Raise if nothing can happen in a state although something should."""
        if not self.options(state):
            self._check_end(state)

    def _tell(self, move: Move) -> str:
        slot, event, stays, number = move
        where = self._place_name(slot)
        if event >= 0:
            told = f"{where} receives {describe(self.handlers.messages[event])}"
        elif event == STEP:
            told = f"{where} emits what is next in its script"
        elif event == RUN:
            told = f"{where} {'starts' if self.world.split else 'runs'} a message"
        elif event == FINISH:
            told = f"{where} finishes the message that it runs"
        elif event == FIRE:
            told = f"the timers at {where} are due"
        else:
            told = f"a strategy asks {where} to {self.handlers.injections[INJECT - event][0]}"
        return told + (" (it will come again)" if stays else "") + (f" [choice {number}]" if number else "")

    def _place_name(self, slot: int) -> str:
        if slot in self.handlers.sources:
            return f"source {self.handlers.sources[slot]}@w{slot}"
        for actor in self.world.actors:
            if slot == self.world.homes[actor.name]:
                return f"lessor {actor.name}@w{slot}"
            if slot in self.world.lessees[actor.name]:
                return f"lessee {actor.name}@w{slot}"
        raise AssertionError(slot)


def _encode(position: int, move: Move) -> int:
    slot, event, stays, number = move
    assert slot < 64, "the story has six bits for a worker"
    assert number < 256, "the story has eight bits for an outcome"
    return position << 38 | slot << 32 | (event + 64) << 9 | number << 1 | stays


def _decode(code: int) -> tuple[int, Move]:
    return code >> 38, (code >> 32 & 0x3F, (code >> 9 & 0x7FFFFF) - 64, bool(code & 1), code >> 1 & 0xFF)


def _as_violation(error: Exception) -> ViolationError:
    if isinstance(error, ViolationError):
        return error
    if isinstance(error, ProtocolError):
        return ViolationError(error.rule, str(error))
    return ViolationError("policy", str(error))
