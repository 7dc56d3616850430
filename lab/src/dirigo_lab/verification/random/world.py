"""Random worlds: a graph, what its functions do, what its sources send, and everything that may go differently each time.

A world is a function of its seed. Unlike the explorer's worlds, instances share workers: six workers at most, the lessor of
an actor on any of them, sources too.

The text of a message is ``what/path``: a name that its origin gave it, and the letters of the sources and actors that it
came through. So no two messages on an edge are the same, however many ways lead to it. A SYNC_ONE has no path, because
the parts of one barrier come on many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from zlib import crc32

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
from dirigo.sim.delay import Delay, constant, exponential, pareto, uniform
from dirigo.sim.network import DeliveryOrder, Network
from dirigo.sim.service import ServiceTime
from dirigo.state import MapState, StateSet, add
from dirigo_lab.verification.guided import Freedom
from dirigo_lab.verification.snapshots.naming import is_void, passed_on
from dirigo_lab.verification.world import Actor, Step, World

_CRITICAL = "c"  # what the names of critical messages of scripts begin with; those of data are numbers
ANY_TIME = "?"  # in the names of messages that a timer or an injection caused: no place is the right one for them
_END = f"{_CRITICAL}end"
_ALONE, _QUIET = "alone", "quiet"  # how a message asks to run alone; quiet at the end of a stream, which nothing may follow
_ACTORS, _SOURCES = "ABCDEFGH", "stu"
_WORKERS_MAX = 6
_WEIGHT_MAX = 7.0  # executions that one message of a source may cause on average
_EXECUTIONS = 60  # about so many data messages run in a world, whatever its graph


# --- what functions do ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomActor(Actor):
    """An actor whose deeds depend on a hash of each message, because the messages are too many to be listed."""

    upstreams: tuple[Address, ...] = ()
    picks_one: bool = False  # a message goes on to one of the downstream actors, not to all
    born_every: int = 0  # one message in so many gives birth to a critical one; 0: none
    alone_every: int = 0  # one in so many asks to run alone
    alone_first: bool = False  # and does so before its outputs, which are then withheld
    swallow_every: int = 0  # one critical message in so many goes no further
    speaks_alone: bool = False  # running alone has outputs, too
    timer_every: int = 0  # one message in so many sets a timer, critical ones included

    @property
    def letter(self) -> str:
        """What it is called in the ways of messages, whatever generation of the job it belongs to."""
        return letter_of(self.name)


def letter_of(address: Address) -> str:
    return address.rpartition("/")[2]


def _declarations(replicated: bool) -> dict[str, MapState[str, int]]:
    return {
        "seen": MapState(str, int, combine=add, replicated=replicated),
        "criticals": MapState(str, int, combine=add),
        "ended": MapState(str, int, combine=add),
    }


_PLAIN, _REPLICATED = _declarations(False), _declarations(True)


def _plain_states() -> StateSet:
    return StateSet(_PLAIN)


def _replicated_states() -> StateSet:
    return StateSet(_REPLICATED)


def is_of_script(payload: str) -> bool:
    """Whether a critical message is one of a script's, at any point of its way; the others were born on the way."""
    return payload.startswith(_CRITICAL) and "@" not in payload


class PassOn:
    """The function of every actor: it counts what it sees and passes it on, under a name that tells the way.

    A critical message that ends a stream is always passed on, and as the end only once all upstreams have ended: until
    then this actor has something to say. What it passes on must not depend on *which* of them is the last, so it goes by
    the name of the message: behind several upstreams, whether a message is the end is a matter of chance.
    """

    def __init__(self, actor: RandomActor, states: States) -> None:
        assert isinstance(states, StateSet)
        self._actor = actor
        self._seen = states.cell("seen")
        self._criticals = states.cell("criticals")
        self._ended = states.cell("ended")

    def on_message(self, context: Context, payload: str) -> None:
        actor = self._actor
        self._seen.add(payload, 1)
        what, _, path = payload.partition("/")
        way = f"{path}{actor.letter}"
        chance = crc32(f"{way} {what}".encode())
        asks = actor.alone_every and chance % actor.alone_every == 0
        if asks and actor.alone_first:
            context.run_alone(f"{_ALONE} {payload}")
        targets = actor.downstreams
        if actor.picks_one and targets:
            targets = (targets[chance % len(targets)],)
        bears = actor.born_every and what.isdigit() and chance // 7 % actor.born_every == 0
        for to in targets:
            if bears:
                context.emit(to, f"{what}-/{way}")
                context.emit_critical(to, f"{what}!/{way}")
                context.emit(to, f"{what}+/{way}")
            else:
                context.emit(to, f"{what}/{way}")
        if asks and not actor.alone_first:
            context.run_alone(f"{_ALONE} {payload}")
        if actor.timer_every and chance // 11 % actor.timer_every == 0:
            context.set_timer(chance % 64 / 2.0, f"timer {payload}")

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        actor = self._actor
        if critical.granularity is Granularity.SNAPSHOT:
            self._take_snapshot(context, critical)
            return
        sender, _, payload = critical.parts[0]
        self._criticals.add(payload, 1)
        if sender == actor.name:
            if actor.speaks_alone:
                self._speak(context, payload)
            return
        if actor.timer_every and crc32(payload.encode()) % actor.timer_every == 0:
            context.set_timer(len(payload) * 3.0, f"timer {payload}")
        alone = f"{_QUIET if critical.final or payload.startswith(_END) else _ALONE} {payload}"
        if actor.alone_in_critical == "before":
            context.run_alone(alone)
        if critical.granularity is Granularity.ONE:
            if critical.final:
                for upstream, _, _ in critical.parts:
                    self._ended.add(letter_of(upstream), 1)
            self._pass_on(context, critical, actor.downstreams, payload, actor.letter, critical.final)
        else:
            self._on_channel(context, critical, sender, *payload.split("/"))
        if actor.alone_in_critical == "after":
            context.run_alone(alone)

    def _on_channel(self, context: Context, critical: CriticalRun, sender: Address, what: str, path: str) -> None:
        actor = self._actor
        way = f"{path}{actor.letter}"
        if critical.final:
            self._ended.add(letter_of(sender), 1)
        final = critical.final and len(self._ended) == len(actor.upstreams)
        if what == _END:
            self._pass_on(context, critical, actor.downstreams, what, way, final)
        elif not actor.swallow_every or crc32(f"{way} {what}".encode()) % actor.swallow_every:
            targets = actor.downstreams if actor.propagates is None else actor.propagates
            self._pass_on(context, critical, targets, what, way, final)

    def _take_snapshot(self, context: Context, barrier: CriticalRun) -> None:
        if not is_void(barrier):
            cells = {"seen": self._seen, "criticals": self._criticals, "ended": self._ended}
            context.captured = {name: dict(cell.items()) for name, cell in cells.items()}
        for to in self._actor.downstreams:
            context.emit_critical(to, passed_on(barrier), granularity=Granularity.SNAPSHOT)

    def _speak(self, context: Context, payload: str) -> None:
        """Say something while alone, unless this actor has ended."""
        actor = self._actor
        kind, _, cause = payload.partition(" ")
        if kind == _QUIET or len(self._ended) == len(actor.upstreams):
            return
        what, _, path = cause.partition("/") if kind == _ALONE else (f"{ANY_TIME}{payload.replace('/', '|')}", "", "")
        way = f"{path}{actor.letter}"
        for to in actor.downstreams:
            context.emit(to, f"{what}(@{actor.letter}/{way}")
            context.emit_critical(to, f"{what}@{actor.letter}/{way}")
            context.emit(to, f"{what})@{actor.letter}/{way}")

    def _pass_on(
        self, context: Context, critical: CriticalRun, targets: tuple[Address, ...], what: str, way: str, final: bool
    ) -> None:
        actor, one = self._actor, critical.granularity is Granularity.ONE
        name = what if one else f"{what}/{way}"
        for to in targets:
            if actor.results:
                context.emit(to, f"{what}<{actor.letter}/{way}")
            context.emit_critical(to, name, granularity=critical.granularity, final=final)
            if actor.results and what != _END and not (one and final):
                context.emit(to, f"{what}>{actor.letter}/{way}")


# --- the world -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mind:
    """What the strategy of one worker is like."""

    kind: str  # "fifo", "chaos", "priority"
    stay: float = 0.0  # the probability that nothing unusual is chosen
    whims: float = 0.0  # the probability, at each hook, that it starts a barrier
    whims_max: int = 0


@dataclass(frozen=True)
class Trouble:
    """What happens to workers and links while time goes by."""

    freezes: tuple[tuple[WorkerId, float, float], ...] = ()
    slow: tuple[tuple[WorkerId, float], ...] = ()
    scale_ins: tuple[tuple[Address, float], ...] = ()
    alone: tuple[tuple[Address, float], ...] = ()
    passivations: tuple[tuple[Address, WorkerId, float], ...] = ()


@dataclass(frozen=True)
class RandomWorld(World):
    """A world with a placement of its own, and with the conditions of one run."""

    seed: int = 0
    workers_count: int = 1
    placement: Mapping[Address, WorkerId] = field(default_factory=dict)
    candidates: Mapping[Address, tuple[WorkerId, ...]] = field(default_factory=dict)  # where lessees may be
    sends_to: Mapping[Address, tuple[Address, ...]] = field(default_factory=dict)  # by source
    times: Mapping[Address, tuple[float, ...]] = field(default_factory=dict)  # when a source takes each step
    minds: tuple[Mind, ...] = ()
    allowed: Freedom = field(default_factory=Freedom)
    network: Network = field(default_factory=Network)
    service: ServiceTime = field(default=lambda _message, _rng: 0.0)
    trouble: Trouble = field(default_factory=Trouble)

    def __post_init__(self) -> None:
        object.__setattr__(self, "homes", dict(self.placement))
        object.__setattr__(self, "lessees", dict(self.candidates))

    @property
    def workers(self) -> int:
        return self.workers_count

    def upstreams(self, name: Address) -> tuple[Address, ...]:
        return next(actor.upstreams for actor in self.random_actors() if actor.name == name)

    def random_actors(self) -> tuple[RandomActor, ...]:
        return self.actors  # type: ignore[return-value]  # that is what a random world is made of

    def targets(self, source: Address) -> tuple[Address, ...]:
        return self.sends_to[source]

    def edges_in_order(self) -> list[tuple[Address, Address]]:
        """The edges whose order is known: out of ordered functions with one input, which itself is in order.

        What a function says when it runs alone comes at any time, so one that does is left out.
        """
        in_order = set(self.scripts)
        for actor in self.random_actors():  # in the order of the graph
            if (
                actor.ordered
                and len(actor.upstreams) == 1
                and in_order.issuperset(actor.upstreams)
                and not actor.speaks_alone
            ):
                in_order.add(actor.name)
        return [(actor.name, to) for actor in self.random_actors() if actor.name in in_order for to in actor.downstreams]

    def freedom(self) -> Freedom:
        return self.allowed

    def directory(self) -> Directory:
        directory = Directory()
        directory.add_job(
            FunctionSpec(
                actor.name,
                self.homes[actor.name],
                partial(PassOn, actor),
                states_of(actor),
                actor.upstreams,
                actor.downstreams,
                actor.ordered,
                actor.lessees_max,
            )
            for actor in self.random_actors()
        )
        return directory


def states_of(actor: Actor) -> Callable[[], StateSet]:
    return _replicated_states if actor.replicated else _plain_states


def random_world(seed: int, *, calm: bool = False) -> RandomWorld:
    """The world of a seed. A calm one has the same graph and scripts, but its strategies send nothing elsewhere."""
    rng = Random(f"world {seed}")
    workers = rng.choice((2, 2, 3, 3, 4, 4, 5, 5, 6, 6)) if rng.random() < 0.98 else 1
    sources, actors, sends_to = _random_graph(rng)
    actors = _with_order(Random(f"order {seed}"), actors)
    weight = _weight(sends_to, actors)
    count = max(10, min(40, int(_EXECUTIONS / weight)))
    scripts = _random_scripts(rng, sends_to, count)
    pace = rng.choice((0.0, 0.3, 1.0, 1.0, 3.0))
    times = {source: _random_times(rng, len(steps), pace) for source, steps in scripts.items()}
    span = max([times[source][-1] for source in times if times[source]], default=0.0) + 10.0
    placement = {name: rng.randrange(workers) for name in (*sources, *(actor.name for actor in actors))}
    candidates = {actor.name: some_others(rng, workers, placement[actor.name]) for actor in actors}
    return RandomWorld(
        f"random-{seed}",
        f"the random world of seed {seed}",
        tuple(actors),
        scripts,
        seed=seed,
        workers_count=workers,
        placement=placement,
        candidates=candidates,
        sends_to=sends_to,
        times=times,
        minds=_calm_minds(workers) if calm else random_minds(rng, workers),
        allowed=random_freedom(rng, actors, candidates),
        network=random_network(rng, workers, span),
        service=_random_service(rng),
        trouble=random_trouble(rng, workers, actors, placement, span),
    )


# --- graphs --------------------------------------------------------------------------------------------------------------


def _random_graph(rng: Random) -> tuple[str, list[RandomActor], dict[Address, tuple[Address, ...]]]:
    """Sources, actors in the order of the graph, and where each source sends to."""
    sources = _SOURCES[: rng.choice((1, 1, 2, 2, 3))]
    names = _ACTORS[: rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8))]
    greed = rng.random()  # a small one makes chains and trees, a large one makes diamonds
    upstreams: dict[Address, set[Address]] = {}
    for index, name in enumerate(names):
        senders = [*sources, *names[:index]]
        wanted = 1 + (rng.random() < greed) + (rng.random() < greed * 0.4)
        # Recent ones are likelier: otherwise graphs are flat.
        upstreams[name] = {senders[-1 - int(len(senders) * rng.random() ** 2)] for _ in range(wanted)}
    for source in sources:
        if not any(source in each for each in upstreams.values()):
            upstreams[rng.choice(names)].add(source)
    downstreams = {sender: tuple(name for name in names if sender in upstreams[name]) for sender in (*sources, *names)}
    actors = [_random_actor(rng, name, tuple(sorted(upstreams[name])), downstreams[name]) for name in names]
    sends_to = {source: downstreams[source] for source in sources}
    if _weight(sends_to, actors) > _WEIGHT_MAX:
        return _random_graph(rng)  # too many ways through it
    return sources, actors, sends_to


def _weight(sends_to: Mapping[Address, tuple[Address, ...]], actors: list[RandomActor]) -> float:
    """How many executions one data message of a source causes, about and on average."""
    passing = dict.fromkeys((actor.name for actor in actors), 0.0)
    for targets in sends_to.values():
        for target in targets:
            passing[target] += 1.0 / len(sends_to)
    for actor in actors:  # in the order of the graph
        for target in actor.downstreams:
            passing[target] += passing[actor.name] / (len(actor.downstreams) if actor.picks_one else 1)
    return sum(passing.values())


def _random_actor(
    rng: Random, name: Address, upstreams: tuple[Address, ...], downstreams: tuple[Address, ...]
) -> RandomActor:
    chance = rng.random
    some = tuple(to for to in downstreams if chance() < 0.6) if chance() < 0.15 else None
    return RandomActor(
        name,
        downstreams,
        ordered=chance() < 0.1,
        replicated=chance() < 0.25,
        lessees_max=rng.choice((1, 2)) if chance() < 0.2 else 64,
        propagates=some,
        results=chance() < 0.25,
        upstreams=upstreams,
        picks_one=len(downstreams) > 1 and chance() < 0.4,
        born_every=rng.choice((3, 6, 12)) if chance() < 0.3 else 0,
        alone_every=rng.choice((4, 9)) if chance() < 0.2 else 0,
        alone_first=chance() < 0.5,
        swallow_every=rng.choice((1, 2, 3)) if chance() < 0.2 else 0,
        alone_in_critical=rng.choice(("before", "after")) if chance() < 0.15 else "",
        speaks_alone=chance() < 0.3,
        timer_every=rng.choice((3, 8)) if chance() < 0.15 else 0,
    )


def _with_order(rng: Random, actors: list[RandomActor]) -> list[RandomActor]:
    """In one world of three: ordered functions behind a source, which bear many critical messages and say nothing alone."""
    if rng.random() >= 0.35:
        return actors
    changed: dict[Address, RandomActor] = {}
    for actor in actors:
        is_first = len(actor.upstreams) == 1 and (actor.upstreams[0] in _SOURCES or actor.upstreams[0] in changed)
        if is_first and actor.downstreams and rng.random() < 0.8:
            changed[actor.name] = replace(actor, ordered=True, born_every=rng.choice((2, 3, 6)), speaks_alone=False)
    return [changed.get(actor.name, actor) for actor in actors]


# --- scripts -------------------------------------------------------------------------------------------------------------


def _random_scripts(
    rng: Random, sends_to: Mapping[Address, tuple[Address, ...]], count: int
) -> dict[Address, tuple[Step, ...]]:
    """Data, SYNC_CHANNELs, and SYNC_ONEs that every source sends in one order unless it has ended; some sources end."""
    barriers = rng.choice((0, 0, 1, 2, 3, 4))
    channel = rng.choice((0.03, 0.08, 0.15, 0.3))
    all_end = barriers > 0 and rng.random() < 0.15  # together, with the last SYNC_ONE
    each = max(3, count // len(sends_to))
    scripts: dict[Address, tuple[Step, ...]] = {}
    for source, targets in sends_to.items():
        last = barriers
        ends = rng.random() < 0.4
        if ends and barriers and not all_end and rng.random() < 0.6:
            last = rng.randrange(barriers)  # this source ends before the later ones are sent
        places = sorted(rng.randrange(each + 1) for _ in range(last))
        steps: list[Step] = []
        number = 0
        for index in range(each + 1):
            while number < last and places[number] == index:
                number += 1
                steps.append(_sync_one(targets, number, all_end and number == barriers))
            if all_end and number == barriers:
                break
            if index < each:
                steps.append(_random_step(rng, source, targets, index, channel))
        if ends and not all_end:
            steps.append(tuple(CriticalOutput(to, f"{_END}/{source}", final=True) for to in targets))
        scripts[source] = tuple(steps)
    return scripts


def _sync_one(targets: tuple[Address, ...], number: int, final: bool) -> Step:
    return tuple(CriticalOutput(to, f"one{number}", Granularity.ONE, final) for to in targets)


def _random_step(rng: Random, source: Address, targets: tuple[Address, ...], index: int, channel: float) -> Step:
    if rng.random() < 0.5:
        targets = (targets[rng.randrange(len(targets))],)
    if rng.random() >= channel:
        return tuple(Output(to, f"{index}/{source}") for to in targets)
    outputs: list[Output | CriticalOutput] = []
    for to in targets:
        outputs.append(CriticalOutput(to, f"{_CRITICAL}{index}/{source}"))
        if rng.random() < 0.2:  # a second one at once travels in the same program, or behind a message in its own
            if rng.random() < 0.5:
                outputs.append(Output(to, f"{index}/{source}"))
            outputs.append(CriticalOutput(to, f"{_CRITICAL}{index}b/{source}"))
    return tuple(outputs)


def _random_times(rng: Random, count: int, pace: float) -> tuple[float, ...]:
    times, now = [], 0.0
    for _ in range(count):
        if pace and rng.random() < 0.7:  # the others come in the same instant
            now += rng.expovariate(1.0 / pace)
        times.append(now)
    return tuple(times)


# --- conditions ----------------------------------------------------------------------------------------------------------


def some_others(rng: Random, workers: int, home: WorkerId) -> tuple[WorkerId, ...]:
    others = [worker for worker in range(workers) if worker != home]
    return tuple(others[: rng.randrange(1, len(others) + 1)]) if others else ()


def random_freedom(rng: Random, actors: list[RandomActor], candidates: Mapping[Address, tuple[WorkerId, ...]]) -> Freedom:
    forward: dict[Address, tuple[WorkerId, ...]] = {}
    direct: dict[Address, tuple[WorkerId, ...]] = {}
    hand_back: set[Address] = set()
    for actor in actors:
        workers, chance = candidates[actor.name], rng.random()
        if chance < 0.8:
            forward[actor.name] = workers
        if chance > 0.3:
            direct[actor.name] = workers[:2] if rng.random() < 0.3 else workers
        if rng.random() < 0.35:
            hand_back.add(actor.name)
    return Freedom(forward, direct, frozenset(hand_back))


def _calm_minds(workers: int) -> tuple[Mind, ...]:
    return (Mind("fifo"),) * workers


def random_minds(rng: Random, workers: int) -> tuple[Mind, ...]:
    restless = rng.random() < 0.4
    stay = rng.choice((0.0, 0.0, 0.3, 0.7))
    minds = []
    for _ in range(workers):
        if rng.random() < 0.1:
            minds.append(Mind("fifo"))
            continue
        own = stay if rng.random() < 0.7 else rng.random()
        kind = "chaos" if rng.random() < 0.5 else "priority"
        minds.append(Mind(kind, own, rng.choice((0.02, 0.1)) if restless else 0.0, rng.randrange(1, 5)))
    return tuple(minds)


def random_network(rng: Random, workers: int, span: float) -> Network:
    links: dict[tuple[WorkerId, WorkerId], Delay | float] = {}
    if rng.random() < 0.2:
        links[rng.randrange(workers), rng.randrange(workers)] = pareto(2.0, 1.1, 60.0)
    network = Network(
        _random_delay(rng),
        local=_random_delay(rng) if rng.random() < 0.5 else 0.0,
        order=DeliveryOrder.CHANNEL if rng.random() < 0.35 else DeliveryOrder.NONE,
        links=links,
        duplicates=rng.choice((0.0, 0.0, 0.05, 0.3)),
    )
    if rng.random() < 0.25:
        for _ in range(rng.randrange(1, 4)):
            begin = rng.random() * span
            link = (rng.randrange(workers), rng.randrange(workers))
            network.clog(link if rng.random() < 0.6 else link[0], begin, begin + rng.random() * 20.0)
    return network


def _random_delay(rng: Random) -> Delay:
    chance = rng.random()
    if chance < 0.1:
        return constant(0.0)
    if chance < 0.2:
        return constant(1.0)
    if chance < 0.5:
        return uniform(0.0, rng.choice((0.5, 3.0, 10.0)))
    if chance < 0.75:
        return exponential(rng.choice((0.3, 2.0)))
    return pareto(rng.choice((0.1, 0.5)), rng.choice((0.7, 1.1)), 80.0)


def _random_service(rng: Random) -> ServiceTime:
    chance = rng.random()
    if chance < 0.15:
        return lambda _message, _rng: 0.0
    most = rng.choice((0.2, 1.0, 4.0))
    if chance < 0.6:
        return lambda _message, service_rng: service_rng.random() * most
    return lambda _message, service_rng: min(30.0, most * 0.2 * service_rng.paretovariate(1.2))


def random_trouble(
    rng: Random, workers: int, actors: list[RandomActor], placement: Mapping[Address, WorkerId], span: float
) -> Trouble:
    chance = rng.random
    freezes = [(rng.randrange(workers), chance() * span, 1.0 + chance() * 15.0) for _ in range(_few(rng, 0.25))]
    return Trouble(
        freezes=tuple((worker, begin, begin + length) for worker, begin, length in freezes),
        slow=tuple((rng.randrange(workers), rng.choice((3.0, 12.0))) for _ in range(_few(rng, 0.2))),
        scale_ins=tuple((rng.choice(actors).name, chance() * span * 1.3) for _ in range(_few(rng, 0.35))),
        alone=tuple((rng.choice(actors).name, chance() * span * 1.3) for _ in range(_few(rng, 0.2))),
        passivations=tuple(
            (actor.name, placement[actor.name] if chance() < 0.5 else rng.randrange(workers), chance() * span)
            for actor in actors
            if chance() < 0.1
        ),
    )


def _few(rng: Random, probability: float) -> int:
    return rng.randrange(1, 4) if rng.random() < probability else 0
