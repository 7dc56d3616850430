"""A small world for the explorer and for random runs: actors, where their instances may be, and what the sources send.

Every instance has a worker of its own. That is more disorderly than any real placement (no two instances share a thread),
so what holds here holds for instances that share workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from dirigo.kernel import (
    Address,
    Context,
    CriticalOutput,
    CriticalRun,
    Directory,
    FunctionSpec,
    Granularity,
    Output,
    States,
    WorkerId,
)
from dirigo.state import MapState, StateSet, add
from dirigo_lab.verification.guided import Freedom
from dirigo_lab.verification.snapshots.naming import CaptureInWorld, is_void, passed_on

if TYPE_CHECKING:
    from dirigo_lab.verification.checker import Ledger

Step = tuple[Output | CriticalOutput, ...]  # what a source emits in one go


@dataclass(frozen=True)
class Actor:
    """One actor of a world, with what its function does."""

    name: Address
    downstreams: tuple[Address, ...] = ()
    lessees: int = 0  # how many other workers may run it
    forwards: tuple[int, ...] | None = None  # to which of them the lessor may forward; None: to all
    direct: tuple[int, ...] = ()  # to which of them upstream instances may send
    hands_back: bool = False  # they may refuse a message
    ordered: bool = False
    replicated: bool = False
    lessees_max: int = 64
    propagates: tuple[Address, ...] | None = None  # where its critical messages go on to; None: to all downstreams
    swallows: frozenset[str] = frozenset()  # critical messages that go no further
    results: bool = False  # a critical message also produces regular messages before and after the next one
    born_on: frozenset[str] = frozenset()  # payloads on which it emits a critical message of its own
    ones_on: frozenset[str] = frozenset()  # payloads such as "a2" on which it emits its part of SYNC_ONE 2
    alone_on: frozenset[str] = frozenset()  # payloads on which it asks to run alone
    speaks_alone: bool = False  # running alone has outputs, too: a message, a critical one, a message
    alone_in_critical: str = ""  # critical messages ask to run alone, "before" or "after" they are passed on
    timer_on: frozenset[str] = frozenset()  # payloads on which it sets a timer


class Expectation(Protocol):
    """What must come out of a world with snapshots, or of one that was restored."""

    def check_end(self, ledgers: Mapping[Address, Ledger]) -> None:
        """Nothing can happen any more: raise ViolationError if something else came out."""


@dataclass(frozen=True)
class World:
    """Actors and sources, and the freedom that strategy, network and host have in it."""

    name: str
    about: str
    actors: tuple[Actor, ...]
    scripts: Mapping[Address, tuple[Step, ...]]
    scale_ins: tuple[Address, ...] = ()  # barriers that a strategy may start at any time, each once
    injections: tuple[Address, ...] = ()  # actors that a strategy may have run alone at any time, each once
    criticals: tuple[tuple[Address, Address], ...] = ()  # (from, to) of critical messages that it may inject, each once
    duplicates: int = 0  # how many messages may be delivered twice
    duplicates_data: bool = False  # data messages too
    at_once: bool = False  # upstreams ask for all lessees that they may send to in one registration
    gives_back: bool = False  # the strategy has what it kept offered again after a barrier
    blind: bool = False  # the strategy may choose messages that the protocol blocks at the moment
    split: bool = False  # executions take time: other messages arrive between start and end
    snapshots: int = 0  # how many are taken; at every point of the scripts (see ``snapshots.variants``)
    sends: Mapping[Address, tuple[Address, ...]] = field(default_factory=dict)  # where sources send, if not as in scripts
    restored: Mapping[Address, CaptureInWorld] = field(default_factory=dict)  # what the actors begin from
    cut: Expectation | None = None  # what is known of the snapshots in the scripts, and of the result
    homes: dict[Address, WorkerId] = field(init=False)
    lessees: dict[Address, tuple[WorkerId, ...]] = field(init=False)

    def __post_init__(self) -> None:
        homes: dict[Address, WorkerId] = {}
        lessees: dict[Address, tuple[WorkerId, ...]] = {}
        following = 0
        for source in self.scripts:
            homes[source] = following
            following += 1
        for actor in self.actors:
            homes[actor.name] = following
            lessees[actor.name] = tuple(range(following + 1, following + 1 + actor.lessees))
            following += 1 + actor.lessees
        object.__setattr__(self, "homes", homes)
        object.__setattr__(self, "lessees", lessees)

    @property
    def workers(self) -> int:
        return len(self.scripts) + sum(1 + actor.lessees for actor in self.actors)

    def upstreams(self, name: Address) -> tuple[Address, ...]:
        """The actors and sources that send to an actor."""
        sources = [source for source in self.scripts if name in self.targets(source)]
        return tuple(sorted(sources + [actor.name for actor in self.actors if name in actor.downstreams]))

    def targets(self, source: Address) -> tuple[Address, ...]:
        """The actors that a source sends to."""
        return self.sends.get(source) or tuple(sorted({output.to for step in self.scripts[source] for output in step}))

    def directory(self) -> Directory:
        directory = Directory()
        directory.add_job(
            FunctionSpec(
                actor.name,
                self.homes[actor.name],
                Relay.of(actor),
                StatesOf(actor.replicated),
                self.upstreams(actor.name),
                actor.downstreams,
                actor.ordered,
                actor.lessees_max,
            )
            for actor in self.actors
        )
        return directory

    def _some_lessees(self, actor: Actor, which: tuple[int, ...] | None) -> tuple[WorkerId, ...]:
        lessees = self.lessees[actor.name]
        return lessees if which is None else tuple(lessees[index] for index in which)

    def freedom(self) -> Freedom:
        return Freedom(
            forward={actor.name: self._some_lessees(actor, actor.forwards) for actor in self.actors},
            direct={actor.name: self._some_lessees(actor, actor.direct) for actor in self.actors},
            hand_back=frozenset(actor.name for actor in self.actors if actor.hands_back),
            at_once=self.at_once,
            gives_back=self.gives_back,
            blind=self.blind,
        )


SEEN = {replicated: MapState(str, int, combine=add, default=0, replicated=replicated) for replicated in (False, True)}


@dataclass(frozen=True)
class StatesOf:
    """Counts of the payloads that an instance has seen: any loss, double count or wrong merge shows."""

    replicated: bool

    def __call__(self) -> StateSet:
        return StateSet({"seen": SEEN[self.replicated]})


def seen(states: States) -> dict[str, int]:
    """The payloads that an instance has counted, without a replica's base."""
    assert isinstance(states, StateSet)
    return dict(states.cell("seen").items())


def readable(states: States) -> dict[str, int]:
    """The payloads that an instance can read: its own and its replica's."""
    assert isinstance(states, StateSet)
    return dict(states.cell("seen").read())


class Relay:
    """The function of every actor in a world: it counts what it sees and passes everything on."""

    def __init__(self, actor: Actor, states: States) -> None:
        self._actor = actor
        assert isinstance(states, StateSet)
        self._seen = states.cell("seen")

    @staticmethod
    def of(actor: Actor) -> RelayFactory:
        return RelayFactory(actor)

    def on_message(self, context: Context, payload: str) -> None:
        actor = self._actor
        self._seen.add(payload, 1)
        for to in actor.downstreams:
            if payload in actor.born_on or payload in actor.ones_on:
                context.emit(to, f"{payload}.before")
                if payload in actor.born_on:
                    context.emit_critical(to, f"{payload}!")
                else:
                    context.emit_critical(to, f"one{payload[1:]}", granularity=Granularity.ONE)
                context.emit(to, f"{payload}.after")
            else:
                context.emit(to, payload)
        if payload in actor.timer_on:
            context.set_timer(1.0, f"{payload}.timer")
        if payload in actor.alone_on:
            context.run_alone(f"{payload}.alone")

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        actor = self._actor
        if critical.granularity is Granularity.SNAPSHOT:
            self._take_snapshot(context, critical)
            return
        sender, _, payload = critical.parts[0]
        self._seen.add(payload, 1)
        if sender == actor.name:
            if actor.speaks_alone:
                self._speak(context, payload)
            return
        if payload in actor.swallows:
            return
        if actor.alone_in_critical == "before":
            context.run_alone(f"{payload}^{sender}.alone")
        name = payload if critical.granularity is Granularity.ONE else f"{payload}^{sender}"
        for to in actor.downstreams if actor.propagates is None else actor.propagates:
            if actor.results:
                context.emit(to, f"{name}.result")
            context.emit_critical(to, name, granularity=critical.granularity, final=critical.final)
            if actor.results:
                context.emit(to, f"{name}.late")
        if actor.alone_in_critical == "after":
            context.run_alone(f"{payload}^{sender}.alone")

    def _take_snapshot(self, context: Context, barrier: CriticalRun) -> None:
        if not is_void(barrier):
            context.captured = tuple(sorted(self._seen.items()))
        for to in self._actor.downstreams:
            context.emit_critical(to, passed_on(barrier), granularity=Granularity.SNAPSHOT)

    def _speak(self, context: Context, payload: str) -> None:
        for to in self._actor.downstreams:
            context.emit(to, f"{payload}.said")
            context.emit_critical(to, f"{payload}.said!")
            context.emit(to, f"{payload}.added")


@dataclass(frozen=True)
class RelayFactory:
    actor: Actor

    def __call__(self, states: States) -> Relay:
        return Relay(self.actor, states)


# --- writing scripts -----------------------------------------------------------------------------------------------------


def data(to: Address, payload: str) -> Step:
    return (Output(to, payload),)


def barrier(to: Address, payload: str, *, final: bool = False) -> Step:
    """A SYNC_CHANNEL critical message."""
    return (CriticalOutput(to, payload, final=final),)


def sync_one(to: Address, number: int) -> Step:
    """A SYNC_ONE critical message of the barrier with this number."""
    return (CriticalOutput(to, f"one{number}", Granularity.ONE),)


def script(to: Address, text: str) -> tuple[Step, ...]:
    """A script in short: words are payloads, ``|w`` a SYNC_CHANNEL, ``#1`` a SYNC_ONE, ``.`` the final SYNC_CHANNEL."""
    steps: list[Step] = []
    for word in text.split():
        if word.startswith("|"):
            steps.append(barrier(to, word[1:]))
        elif word.startswith("#"):
            steps.append(sync_one(to, int(word[1:])))
        elif word == ".":
            steps.append(barrier(to, "end", final=True))
        else:
            steps.append(data(to, word))
    return tuple(steps)
