"""A job for tests of the simulated cluster, and what a sequential run of it gives.

    source a (w0) --+
                    +--> relay (w1) --> ledger (w2)            w3 and w4 have no actor of their own
    source b (w4) --+

Every source emits numbers and watermarks. The ledger adds the numbers up per source and writes down, at every watermark,
the sum of the source that it came from: exactly the numbers that the source emitted before it.
"""

from dataclasses import dataclass
from random import Random
from typing import cast

from dirigo.kernel import (
    Behaviour,
    Context,
    CriticalOutput,
    CriticalRun,
    Directory,
    FunctionSpec,
    Granularity,
    Hooks,
    Output,
    States,
    WorkerId,
    actor_address,
)
from dirigo.sim.cluster import SimulatedCluster, Trace
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTimes
from dirigo.state import ListState, MapState, StateSet, add, bind, declared_states
from dirigo_lab.verification.guided import Freedom, Guided

A, B = actor_address("job", "a"), actor_address("job", "b")
RELAY, LEDGER = actor_address("job", "relay"), actor_address("job", "ledger")
HOMES = {A: 0, B: 4, RELAY: 1, LEDGER: 2}
WORKERS = 5
FREEDOM = Freedom(
    forward={RELAY: (0, 2, 3), LEDGER: (1, 3, 4)},
    direct={RELAY: (2, 3), LEDGER: (0, 3)},
    hand_back=frozenset((RELAY, LEDGER)),
)

Row = tuple[str, int]  # (source, number)
Entry = tuple[str, int, int]  # (source, watermark, sum of the source's numbers before it)


class Summing:
    """What relay and ledger have in common."""

    sums = MapState(str, int, default=0, combine=add)
    entries = ListState(tuple)

    def __init__(self, states: States) -> None:
        bind(self, cast(StateSet, states))

    def on_message(self, context: Context, payload: Row) -> None:
        self.sums.add(*payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        for _, _, (source, watermark) in critical.parts:
            self.entries.append((source, watermark, self.sums.get(source, 0)))


class Relay(Summing):
    def on_message(self, context: Context, payload: Row) -> None:
        super().on_message(context, payload)
        context.emit(LEDGER, payload)

    def on_critical(self, context: Context, critical: CriticalRun) -> None:
        super().on_critical(context, critical)
        for _, _, payload in critical.parts:
            context.emit_critical(LEDGER, payload)


def states() -> States:
    return StateSet(declared_states(Summing))


def relay(states: States) -> Behaviour:
    return Relay(states)


def ledger(states: States) -> Behaviour:
    return Summing(states)


def directory(sources: tuple[str, ...] = (A, B)) -> Directory:
    made = Directory()
    made.add_job(
        [
            FunctionSpec(RELAY, HOMES[RELAY], relay, states, sources, (LEDGER,)),
            FunctionSpec(LEDGER, HOMES[LEDGER], ledger, states, (RELAY,)),
        ]
    )
    return made


def chaos(worker: WorkerId, rng: Random) -> Hooks:
    return Guided(rng.randrange, FREEDOM)


@dataclass
class Run:
    """A cluster with the job, and what its sources are to emit."""

    cluster: SimulatedCluster
    emissions: dict[str, list[Output | CriticalOutput]]

    def expected(self) -> dict[str, list[Entry]]:
        return {source: fold(source, outputs) for source, outputs in self.emissions.items()}

    def entries(self, actor: str) -> dict[str, list[Entry]]:
        """What the lessor of an actor wrote down, by source."""
        found: dict[str, list[Entry]] = {source: [] for source in self.emissions}
        for entry in cell(self.cluster, actor, "entries"):
            found[entry[0]].append(entry)
        return found


def cell(cluster: SimulatedCluster, actor: str, name: str) -> list[Entry]:
    states = cast(StateSet, cluster.workers[HOMES[actor]].lessor(actor).states)
    return list(states.cell(name))


def fold(source: str, outputs: list[Output | CriticalOutput]) -> list[Entry]:
    """The job in one line of thought: no workers, no network."""
    total, entries = 0, []
    for output in outputs:
        if output.critical:
            entries.append((source, output.payload[1], total))
        else:
            total += output.payload[1]
    return entries


def some_emissions(source: str, rng: Random, count: int, barriers: int) -> list[Output | CriticalOutput]:
    """Numbers with watermarks in between, some of them common to all sources, and a last watermark."""
    outputs: list[Output | CriticalOutput] = []
    for index in range(count):
        if rng.random() < 0.2:
            outputs.append(CriticalOutput(RELAY, (source, index)))
        else:
            outputs.append(Output(RELAY, (source, rng.randrange(1, 1000))))
    places = sorted((rng.randrange(count) for _ in range(barriers)), reverse=True)
    for barrier, place in zip(range(barriers, 0, -1), places, strict=True):
        common = CriticalOutput(RELAY, (source, -barrier), granularity=Granularity.ONE)
        outputs.insert(place, common)
    return [*outputs, CriticalOutput(RELAY, (source, count), final=True)]


def chaotic_run(
    seed: int,
    network: Network,
    *,
    trace: Trace | None = None,
    count: int = 20,
    barriers: int = 0,
    scale_ins: int = 0,
) -> Run:
    """A cluster in which everything is forwarded, redirected, handed back and reordered at random; not run yet."""
    service = ServiceTimes(lambda _message, rng: rng.random() * 0.01)
    cluster = SimulatedCluster(WORKERS, directory(), chaos, network=network, service=service, seed=seed, trace=trace)
    rng = cluster.rng("test")
    run = Run(cluster, {source: some_emissions(source, rng, count, barriers) for source in (A, B)})
    for source, outputs in run.emissions.items():
        feed, t = cluster.source(source, HOMES[source], (RELAY,)), 0.0
        for output in outputs:
            t += rng.expovariate(200.0)
            feed.emit_at(t, output)
    for _ in range(scale_ins):
        actor = rng.choice((RELAY, LEDGER))
        lessor = cluster.workers[HOMES[actor]].lessor(actor)
        cluster.at(rng.random() * 0.2, lessor.scale_in)
    return run
