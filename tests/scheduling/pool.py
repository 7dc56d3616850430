"""A pool of simulated workers for tests of strategies: jobs of equal actors, explicit service times, and who ran what, when.

    pool = Pool(RejectSend, workers=4)
    work = pool.job("job", home=1, service_s=0.01, latency_s=0.1)
    work.burst(at=0.0, count=30)
    pool.run()
    assert work.ran_at() == {1, 2, 3}

A job is one source at worker 0 (or several), and actors at their homes that add up what they get. A payload is a number of
rows. Worker 0 is the source's alone unless an actor lives there.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from statistics import fmean, quantiles
from typing import cast

from dirigo.kernel import (
    Address,
    Behaviour,
    Context,
    CriticalOutput,
    CriticalRun,
    Data,
    Directory,
    FunctionSpec,
    JobProperties,
    Lane,
    Objective,
    Output,
    RunnableMessage,
    States,
    Worker,
    WorkerId,
    actor_address,
)
from dirigo.kernel.interface.message import Note
from dirigo.scheduling import Strategy, StrategyExtras
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.feed import Feed
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from dirigo.state import StateSet, ValueState, add, bind, declared_states

FOREVER = float("inf")


class Adding:
    """Adds up the rows that it gets, and keeps some ballast if it is to have a large state."""

    total = ValueState(int, default=0, combine=add)
    ballast = ValueState(bytes, default=b"", combine=max)

    def __init__(self, states: States, ballast: int) -> None:
        bind(self, cast(StateSet, states))
        self._ballast = ballast

    def on_message(self, context: Context, payload: int) -> None:
        self.total.add(payload)
        if self._ballast:
            self.ballast.add(bytes(self._ballast))

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        """A barrier: partial states come together."""


@dataclass(frozen=True)
class Ran:
    """One execution of a regular message."""

    message: Data
    worker: WorkerId
    began: float
    ended: float

    @property
    def latency_s(self) -> float:
        return self.ended - self.message.created

    @property
    def is_late(self) -> bool:
        return self.ended > self.message.deadline


class Load:
    """A job in the pool: what its sources emit, and what became of it."""

    def __init__(self, pool: "Pool", name: str, actors: list[Address], feeds: list[Feed], latency_s: float) -> None:
        self.pool = pool
        self.name = name
        self.actors = actors
        self.feeds = feeds
        self.latency_s = latency_s
        self.emitted = 0

    @property
    def actor(self) -> Address:
        return self.actors[0]

    def emit(
        self, at: float, rows: int = 1, *, actor: int = 0, source: int | None = None, latency_s: float | None = None
    ) -> None:
        """A message that was meant to be sent then; sources take turns unless one is named."""
        deadline = at + (self.latency_s if latency_s is None else latency_s)
        feed = self.feeds[self.emitted % len(self.feeds) if source is None else source]
        feed.emit_at(at, Output(self.actors[actor], rows, at, deadline))
        self.emitted += 1

    def burst(self, at: float, count: int, rows: int = 1, **options: int) -> None:
        for _ in range(count):
            self.emit(at, rows, **options)

    def steady(self, begin: float, end: float, per_s: float, rows: int = 1, **options: int) -> None:
        for index in range(round((end - begin) * per_s)):
            self.emit(begin + index / per_s, rows, **options)

    def random(self, begin: float, end: float, per_s: float, *, seed: int, rows: int = 1, **options: int) -> None:
        """Poisson arrivals."""
        rng, at = Random(seed), begin
        while (at := at + rng.expovariate(per_s)) < end:
            self.emit(at, rows, **options)

    def barrier(self, at: float) -> None:
        for feed in self.feeds:
            for actor in self.actors:
                feed.emit_at(at, CriticalOutput(actor, None, created=at, deadline=at + self.latency_s))

    # --- what became of it ---------------------------------------------------------------------------------------------

    @property
    def ran(self) -> list[Ran]:
        """Its executions, in the order in which they ended."""
        return [each for each in self.pool.ran if each.message.to in self.actors]

    def ran_at(self, since: float = 0.0) -> Counter[WorkerId]:
        return Counter(each.worker for each in self.ran if each.began >= since)

    def mean_s(self) -> float:
        return fmean(each.latency_s for each in self.ran)

    def p99_s(self) -> float:
        return quantiles((each.latency_s for each in self.ran), n=100)[-1]

    def late(self, since: float = 0.0) -> int:
        return sum(each.is_late for each in self.ran if each.message.created >= since)

    def total(self, actor: int = 0) -> int:
        """What the home of an actor has added up; the rest is at lessees until a barrier."""
        address = self.actors[actor]
        states = cast(StateSet, self.pool.home(address).lessor(address).states)
        return cast(int, states.cell("total").get())


class Pool:
    """Workers with one strategy, and jobs on them."""

    def __init__(
        self,
        strategy: Callable[[], Strategy],
        workers: int = 4,
        *,
        seed: int = 0,
        network: Network | None = None,
        by_row: bool = False,
        fetch_s: float = 0.0,
    ) -> None:
        self.directory = Directory()
        self.ran: list[Ran] = []
        self.arrived: list[tuple[float, WorkerId, Data]] = []
        self.notes: list[tuple[float, WorkerId]] = []  # when and where strategies were told something
        self._began: dict[WorkerId, float] = {}
        self._service: dict[Address, float] = {}
        self._by_row = by_row
        self.cluster = SimulatedCluster(
            workers,
            self.directory,
            lambda _worker, _rng: strategy(),
            network=network or Network(0.001),
            service=ServiceTimes(self._seconds),
            seed=seed,
            trace=self._note,
            measure=lambda rows: rows,
            fetch_s=fetch_s,
        )

    def job(
        self,
        name: str,
        home: WorkerId | Iterable[WorkerId] = 1,
        *,
        service_s: float = 0.01,
        latency_s: float = FOREVER,
        rows_per_s: float | None = None,
        weight: float = 1.0,
        sources: Iterable[WorkerId] = (0,),
        lessees_max: int = 64,
        ordered: bool = False,
        ballast: int = 0,
    ) -> Load:
        """Actors at their homes; a message (or a row, ``by_row``) takes ``service_s`` anywhere."""
        properties = JobProperties(name, name, Objective(latency_s, rows_per_s), weight)
        homes = [home] if isinstance(home, int) else list(home)
        actors = [actor_address(name, "work", index) for index in range(len(homes))]
        feeds = {actor_address(name, "source", index): worker for index, worker in enumerate(sources)}

        def behaviour(states: States) -> Behaviour:
            return Adding(states, ballast)

        self.directory.add_job(
            FunctionSpec(
                actor,
                home,
                behaviour,
                lambda: StateSet(declared_states(Adding)),
                tuple(feeds),
                ordered=ordered,
                lessees_max=lessees_max,
                job=properties,
            )
            for actor, home in zip(actors, homes, strict=True)
        )
        self._service.update(dict.fromkeys(actors, service_s))
        made = [self.cluster.source(address, worker, tuple(actors)) for address, worker in feeds.items()]
        return Load(self, name, actors, made, latency_s)

    def remove(self, job: str) -> None:
        for worker in self.cluster.workers.values():
            worker.remove_job(job)

    def forwards(self, since: float = 0.0, until: float = FOREVER) -> int:
        """How many messages went on from their home to a lessee."""
        return sum(message.lane is Lane.FORWARD for now, _, message in self.arrived if since <= now < until)

    def returns(self) -> int:
        return sum(message.lane is Lane.RETURN for _, _, message in self.arrived)

    def run(self, until: float | None = None) -> "Pool":
        if until is None:
            self.cluster.run()
            assert self.cluster.unfinished() == []
        else:
            self.cluster.run(until)
        return self

    def worker(self, worker: WorkerId) -> Worker:
        return self.cluster.workers[worker]

    def strategy(self, worker: WorkerId) -> Strategy:
        return cast(Strategy, self.worker(worker).strategy)

    def extras(self, worker: WorkerId) -> StrategyExtras:
        return self.worker(worker).extras

    def home(self, actor: Address) -> Worker:
        return self.worker(self.directory[actor].home)

    def lessees(self, actor: Address) -> frozenset[WorkerId]:
        return self.home(actor).lessees(actor)

    def _seconds(self, message: RunnableMessage, _: Random) -> float:
        if message.critical:
            return 0.0
        return self._service[message.to] * (message.payload if self._by_row else 1)

    def _note(self, now: float, what: str, worker: WorkerId, message: object) -> None:
        if what == "start":
            self._began[worker] = now
        elif what == "finish" and isinstance(message, Data):
            self.ran.append(Ran(message, worker, self._began[worker], now))
        elif what == "deliver" and isinstance(message, Data):
            self.arrived.append((now, worker, message))
        elif what == "deliver" and isinstance(message, Note):
            self.notes.append((now, worker))
