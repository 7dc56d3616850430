"""What a world computes when one thread runs it message by message, and how a run is compared with that.

The reference knows nothing of the protocol: one instance per actor, a queue per edge, no cuts, no rounds, no leases. It
calls the same functions as a run does. A critical message takes its place in the queue of its edge; a SYNC_ONE waits until
it heads the queues of all upstream actors that have not ended.

Compared are, for every actor, the final states (every message and every critical message counted), and for every edge each
output together with its place among the barriers: how many SYNC_ONEs, and how many critical messages of its own way through
the graph, were emitted on the edge before it. Not compared, because the protocol leaves it open:

- the order of messages between two barriers, and of critical messages that are born between them: a parallel function may
  run its messages in any order. Behind a source and ordered functions only, nothing is left open: there each message must
  *run* behind as many critical messages of its edge as the reference emitted before it, born ones included;
- the order on an edge of critical messages that came to its sender by different ways: upstreams are independent;
- which critical message carries the end on an edge behind several upstreams: the one that happens to be the last; but there
  is exactly one wherever the reference has one, and nothing follows it;
- when (timers included) and on which worker anything ran; so neither what a function says when a timer or an injected
  critical message has it run alone. The ledgers see that each of these messages runs once and in its place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dirigo.kernel import Address, CriticalOutput, Granularity, Output, States
from dirigo.state import StateSet
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.one_instance import OneInstance
from dirigo_lab.verification.random.world import ANY_TIME, PassOn, RandomActor, RandomWorld, is_of_script, states_of

Edge = tuple[Address, Address]  # (from, to)
Placed = tuple[
    str, bool, int, int
]  # an output, whether critical, SYNC_ONEs before it, critical messages of its way before it
Contents = dict[str, dict[str, int]]  # by name of a state

STATES = ("seen", "criticals", "ended")


class EdgeLog:
    """What was emitted on one edge, each output with its place among the barriers."""

    __slots__ = ("_criticals", "_ones", "ends", "order", "placed")

    def __init__(self) -> None:
        self.placed: Counter[Placed] = Counter()
        self.order = EdgeOrder()
        self.ends = 0
        self._ones = 0
        self._criticals: dict[str, int] = {}  # of scripts, by their way

    def note(self, output: Output | CriticalOutput) -> None:
        name: str = output.payload
        self.order.note(name, output.critical)
        if self.ends:
            raise ViolationError("nothing-after-the-end", f"{name} was emitted to {output.to} by somebody who had ended")
        way = name.partition("/")[2]
        before = self._criticals.get(way, 0)
        self.placed[name, output.critical, self._ones, before] += 1
        if isinstance(output, CriticalOutput):
            self.ends += output.final
            if output.granularity is Granularity.ONE:
                self._ones += 1
            elif is_of_script(name):
                self._criticals[way] = before + 1


class EdgeOrder:
    """How many critical messages of an edge came before each of its messages."""

    __slots__ = ("before", "criticals")

    def __init__(self) -> None:
        self.before: dict[str, int] = {}
        self.criticals = 0

    def note(self, name: str, critical: bool) -> None:
        self.before[name] = self.criticals
        self.criticals += critical


@dataclass
class Results:
    """What a world computed."""

    states: dict[Address, Contents] = field(default_factory=dict)
    edges: dict[Edge, EdgeLog] = field(default_factory=dict)
    ran: dict[Edge, EdgeOrder] = field(default_factory=dict)  # in which order the messages of each edge ran

    def executed(self, sender: Address, to: Address, payload: str, critical: bool) -> None:
        self.ran.setdefault((sender, to), EdgeOrder()).note(payload, critical)

    def compare_order(self, reference: Results, edges: Iterable[Edge]) -> None:
        """On these edges the order is known: raise ViolationError if something ran in another place."""
        for edge in edges:
            ran, expected = self.ran.get(edge, EdgeOrder()), reference.edges.get(edge, EdgeLog()).order
            for name, criticals in ran.before.items():
                if criticals != expected.before.get(name):
                    raise ViolationError(
                        "as-sequential",
                        f"{name} of {edge[0]} ran at {edge[1]} behind {criticals} critical messages, "
                        f"not {expected.before.get(name)}",
                    )

    def emitted(self, sender: Address, output: Output | CriticalOutput) -> None:
        if ANY_TIME in output.payload:
            return
        edge = (sender, output.to)
        log = self.edges.get(edge)
        if log is None:
            log = self.edges[edge] = EdgeLog()
        log.note(output)

    def compare(self, reference: Results) -> None:
        """Raise ViolationError at the first difference."""
        for actor, expected in reference.states.items():
            found = self.states[actor]
            for name in STATES:
                if found[name] != expected[name]:
                    what = _difference(Counter(found[name]), Counter(expected[name]))
                    raise ViolationError("as-sequential", f"the final state '{name}' of {actor} {what}")
        for edge in sorted(self.edges.keys() | reference.edges.keys()):
            log, expectation = self.edges.get(edge) or EdgeLog(), reference.edges.get(edge) or EdgeLog()
            between = f"between {edge[0]} and {edge[1]}"
            if log.placed != expectation.placed:
                what = _difference(log.placed, expectation.placed)
                raise ViolationError("as-sequential", f"what was sent {between} {what}")
            if log.ends != expectation.ends:
                raise ViolationError("as-sequential", f"{log.ends} ends were sent {between}, not {expectation.ends}")


def _difference(found: Counter[str] | Counter[Placed], expected: Counter[str] | Counter[Placed]) -> str:
    missing = {key: count - found[key] for key, count in expected.items() if found[key] < count}  # type: ignore[index]
    extra = {key: count - expected[key] for key, count in found.items() if expected[key] < count}  # type: ignore[index]
    return f"lacks {missing} and has {extra} too many"


def contents(states: States) -> Contents:
    """A copy of what an instance holds and what can be compared."""
    assert isinstance(states, StateSet)
    return {name: {key: count for key, count in states.cell(name).items() if ANY_TIME not in key} for name in STATES}


def sequential(world: RandomWorld) -> Results:
    """Run a world in one thread. A message of a source has gone all its way before the next one is emitted."""
    return _Sequential(world).run()


class _Sequential:
    def __init__(self, world: RandomWorld) -> None:
        self.world = world
        self.results = Results()
        self.actors = {actor.name: _one_instance(actor) for actor in world.random_actors()}

    def run(self) -> Results:
        for source, steps in self.world.scripts.items():
            for step in steps:
                for output in step:
                    self._emit(source, output)
        for name, actor in self.actors.items():
            left = [output.payload for queue in actor.queues.values() for output in queue]
            if left:
                raise ViolationError("no-deadlock", f"the scripts of {self.world.name} leave {left} at {name} for ever")
            self.results.states[name] = contents(actor.context.states)
        return self.results

    def _emit(self, sender: Address, output: Output | CriticalOutput) -> None:
        """Deliver an output and everything that comes of it, in the order in which it comes."""
        todo: deque[tuple[Address, Output | CriticalOutput]] = deque([(sender, output)])
        while todo:
            sender, output = todo.popleft()
            self.results.emitted(sender, output)
            actor = self.actors[output.to]
            actor.queues[sender].append(output)
            todo.extend((output.to, following) for following in actor.work())


def _one_instance(actor: RandomActor) -> OneInstance:
    states = states_of(actor)()
    return OneInstance(actor.name, actor.upstreams, states, PassOn(actor, states))
