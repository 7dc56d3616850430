"""Random runs: a random world in virtual time, every invariant checked as it goes, and its results compared in the end.

A run is a function of its seed, and so is what it reports; seeds can therefore be spread over processes. What does not
happen is not tested: every run counts what it met, and a report over runs in which nothing was scaled out, or in which no
barrier noticed, is *hollow* and not ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from dirigo.errors import DirigoError
from dirigo.kernel import (
    Address,
    CriticalOutput,
    CriticalRun,
    Data,
    Granularity,
    Hooks,
    Lane,
    Message,
    Output,
    ProtocolError,
    RunnableMessage,
    Worker,
    WorkerId,
)
from dirigo.kernel.interface.message import Intent, Registration
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import Event, Role, Transition
from dirigo.scheduling import Fifo
from dirigo.sim.cluster import SimulatedCluster, SimulationError
from dirigo.sim.service import ServiceTimes
from dirigo_lab.verification.at_rest import check_at_rest
from dirigo_lab.verification.checker import Fact, Ledger, ViolationError, control_facts, data_fact
from dirigo_lab.verification.random.reference import STATES, Results, contents, sequential
from dirigo_lab.verification.random.report import RandomReport, RunResult, Violation
from dirigo_lab.verification.random.strategy import ByPriority, Injections, Restless
from dirigo_lab.verification.random.world import RandomWorld, random_world
from dirigo_lab.verification.recorder import Recorder
from dirigo_lab.verification.world import readable, seen

_EVENTS_MAX = 100_000  # a run has about a thousand
_PROGRESS_EVERY = 25


# --- checks ----------------------------------------------------------------------------------------------------------------


class RandomLedger(Ledger):
    """A ledger for worlds in which running alone has outputs, and critical messages are counted apart."""

    __slots__ = ()
    COUNTS_CRITICALS = False


class _Noting(list[tuple[Address, Fact]]):
    """Facts that go to the ledgers at once, so that a violation is noticed when it happens."""

    def __init__(self, ledgers: Mapping[Address, Ledger]) -> None:
        super().__init__()
        self._ledgers = ledgers

    def append(self, item: tuple[Address, Fact]) -> None:
        self._ledgers[item[0]].note(item[1])

    def extend(self, items: Iterable[tuple[Address, Fact]]) -> None:
        for item in items:
            self._ledgers[item[0]].note(item[1])


class Checking(Recorder):
    """The observer of all workers of a run: it keeps the ledgers, the results per edge, and the counts."""

    def __init__(self, world: RandomWorld, result: RunResult, results: Results, timer_set: Callable[[float], None]) -> None:
        self.timer_set = timer_set  # told when a timer is due
        self.ledgers = {
            actor.name: RandomLedger(actor.name, world.homes[actor.name], actor.upstreams, actor.ordered)
            for actor in world.random_actors()
        }
        super().__init__(world, _Noting(self.ledgers))
        self._result = result
        self._results = results
        self._given: set[Address] = set()  # actors whose lessees were given a message since the last round

    def emitted(self, sender: Address, worker: WorkerId, output: Output | CriticalOutput) -> None:
        super().emitted(sender, worker, output)
        self._results.emitted(sender, output)

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None:
        instance = self.workers[worker].instance(message.to)
        for due, _ in instance.context.timers:
            self._result.timers += 1
            self.timer_set(due)
        if isinstance(message, CriticalRun):
            if message.granularity is not Granularity.SNAPSHOT:
                self._count_critical(message)
            super().executed(worker, message)
            return
        # As in the recorder, but the states are looked at only where a ledger will.
        for _, payload in instance.context.timers:
            self.ledgers[message.to].asked(payload)
        actor = self.actors[message.to]
        own = base = None
        self._result.ordered += actor.ordered
        if actor.replicated and worker != self.homes[message.to]:
            self._result.replica_reads += 1
            own, base = seen(instance.states), readable(instance.states)
        self.ledgers[message.to].executed(
            worker,
            message.sender,
            message.origin,
            message.payload,
            message.lane,
            message.seq,
            own,  # type: ignore[arg-type]  # a ledger takes pairs, and makes a dict of them
            base,  # type: ignore[arg-type]
        )
        self._results.executed(message.sender, message.to, message.payload, critical=False)
        self.produced(worker, message)

    def _count_critical(self, run: CriticalRun) -> None:
        if run.parts[0][0] == run.to:
            self._result.alone += 1
            return
        for sender, _, payload in run.parts:
            self._results.executed(sender, run.to, payload, critical=True)
        self._result.criticals += 1
        self._result.sync_ones += run.granularity is Granularity.ONE
        self._result.ends += run.final

    def moved(self, address: Address, worker: WorkerId, row: object) -> None:
        if type(row) is not Transition or row.role is Role.LESSEE:
            return
        self.ledgers[address].moved(row)
        if row.event is Event.ROUND_STARTS:
            self._result.rounds += 1
            self._result.rounds_met += address in self._given
            self._given.discard(address)
        elif row.event is Event.CONSOLIDATED:
            self._check_nothing_left(address, worker)

    def _check_nothing_left(self, address: Address, home: WorkerId) -> None:
        for worker in self.workers.values():
            participant = worker.participants.get(address)
            if isinstance(participant, Lessee) and (participant.running is not None or not participant.states.is_identity()):
                raise ViolationError("no-partial-left", f"{participant.name} has something left while w{home} is CRITICAL")

    def sent(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if type(message) is Data:
                self.ledgers[message.to].note(data_fact(message, self.homes, self.actors))
                self._count_data(message)
                continue
            for actor, fact in control_facts(message):
                if actor in self.ledgers:
                    self.ledgers[actor].note(fact)
            if type(message) is Intent:
                self._result.intents += 1
            elif type(message) is Registration:
                self._result.registrations += 1

    def _count_data(self, message: Data) -> None:
        if message.lane is Lane.RETURN:
            self._result.hand_backs += 1
        elif message.worker != self.homes[message.to]:
            self._given.add(message.to)
            if message.lane is Lane.FORWARD:
                self._result.forwards += 1
            else:
                self._result.directs += 1


# --- runs ------------------------------------------------------------------------------------------------------------------


class RandomRun:
    """One world, set up and ready to go."""

    events_max = _EVENTS_MAX

    def __init__(self, world: RandomWorld) -> None:
        self.world = world
        self.result = RunResult(world.seed)
        self.results = Results()
        self.checking = self.new_checking()
        self.injections = Injections(self.checking.ledgers)
        self.cluster = SimulatedCluster(
            world.workers,
            world.directory(),
            self._strategy,
            network=world.network,
            service=ServiceTimes(world.service),
            seed=world.seed,
            observer=lambda _: self.checking,
            carried=self.checking.sent,
        )
        self.workers: dict[WorkerId, Worker] = self.cluster.workers
        self.checking.workers = self.workers
        self._schedule()

    def new_checking(self) -> Checking:
        return Checking(self.world, self.result, self.results, self._timer_set)

    def _strategy(self, worker: WorkerId, rng: Random) -> Hooks:
        mind = self.world.minds[worker]
        if mind.kind == "fifo":
            return Fifo()
        local = [actor.name for actor in self.world.actors if self.world.homes[actor.name] == worker]
        kind = ByPriority if mind.kind == "priority" else Restless
        return kind(rng, mind, self.world.freedom(), local, self.injections)

    def _schedule(self) -> None:
        cluster, trouble = self.cluster, self.world.trouble
        self._schedule_sources()
        for frozen, from_t, to_t in trouble.freezes:
            cluster.freeze(frozen, from_t, to_t)
        for slow, factor in trouble.slow:
            cluster.slow(slow, factor)
        for address, t in trouble.scale_ins:
            cluster.at(t, lambda address=address: self._lessor(address).scale_in())  # type: ignore[misc]
        for address, t in trouble.alone:
            cluster.at(t, lambda address=address: self._inject(address))  # type: ignore[misc]
        for address, at, t in trouble.passivations:
            cluster.at(t, lambda address=address, at=at: self._passivate(address, at))  # type: ignore[misc]

    def _schedule_sources(self) -> None:
        for source, steps in self.world.scripts.items():
            feed = self.cluster.source(source, self.world.homes[source], self.world.targets(source))
            for t, step in zip(self.world.times[source], steps, strict=True):
                for output in step:
                    feed.emit_at(t, output)

    def _lessor(self, address: Address) -> Lessor:
        return self.workers[self.world.homes[address]].lessor(address)

    def _inject(self, address: Address) -> None:
        self._lessor(address).intend((CriticalOutput(address, self.injections.one_more(address)),))

    def _passivate(self, address: Address, at: WorkerId) -> None:
        self.workers[at].passivate(address)

    def _timer_set(self, due: float) -> None:
        self.cluster.at(max(due, self.cluster.now), self._fire_timers)

    def _fire_timers(self) -> None:
        for worker in self.workers.values():
            worker.fire_timers()

    def execute(self) -> RunResult:
        """Run to the end and check everything but the results."""
        self.run_to_rest()
        self.check_end()
        return self.result

    def run_to_rest(self) -> None:
        self.cluster.run(max_events=self.events_max)
        while any(worker.timed for worker in self.workers.values()):  # those that were on their way when they were due
            self.cluster.at(self.cluster.now, self._fire_timers)
            self.cluster.run(max_events=self.events_max)

    def check_end(self) -> None:
        """Nothing happens any more: all must have happened. Then put the results together."""
        for ledger in self.checking.ledgers.values():
            ledger.finish()
        check_at_rest(list(self.workers.values()))
        left = self.cluster.unfinished()
        if left:
            raise ViolationError("no-deadlock", "; ".join(left))
        self._collect()

    def _collect(self) -> None:
        """Put the final states together, and count what only the end shows."""
        result, states = self.result, self.results.states
        for actor in self.world.actors:
            whole = states[actor.name] = {name: {} for name in STATES}
            for worker in self.workers.values():
                participant = worker.participants.get(actor.name)
                if isinstance(participant, (Lessor, Lessee)):
                    for name, part in contents(participant.states).items():
                        for key, count in part.items():
                            whole[name][key] = whole[name].get(key, 0) + count
                    result.lessees += isinstance(participant, Lessee)
                if isinstance(participant, Lessor):
                    result.scale_ins += participant.leases.revocation
        result.executed = self.cluster.metrics.executed
        result.duplicates = self.cluster.metrics.duplicates
        result.held = sum(getattr(worker.strategy, "held", 0) for worker in self.workers.values())

    def compare(self, reference: Results) -> None:
        """Raise ViolationError unless the results are those of the reference; what was injected is added to those."""
        for actor, payload in self.injections.all:
            reference.states[actor]["criticals"][payload] = 1
        self.results.compare(reference)
        edges = self.world.edges_in_order()
        self.results.compare_order(reference, edges)
        self.result.in_order = sum(len(self.results.ran[edge].before) for edge in edges if edge in self.results.ran)
        self.result.born_in_order = sum(
            "!" in name for edge in edges if edge in self.results.ran for name in self.results.ran[edge].before
        )


def run(seed: int, *, calm: bool = False) -> RunResult:
    """The run of a seed; raises ViolationError, which names the seed. Another error is a crash, with a note of the seed."""
    try:
        random_run = RandomRun(random_world(seed, calm=calm))
        result = random_run.execute()
        random_run.compare(sequential(random_run.world))
    except (ViolationError, DirigoError) as error:
        raise as_violation(error, seed) from error
    except Exception as error:
        error.add_note(f"in the random run with seed {seed}")
        raise
    return result


def run_many(seeds: Iterable[int], progress: Callable[[int], None] | None = None, *, calm: bool = False) -> RandomReport:
    """The runs of many seeds, with what failed among them; ``progress`` is told how many are done."""
    report = RandomReport()
    for seed in seeds:
        try:
            report.add(run(seed, calm=calm))
        except ViolationError as error:
            report.runs += 1
            report.violations.append(Violation(seed, error.invariant, error.what))
        if progress is not None and report.runs % _PROGRESS_EVERY == 0:
            progress(report.runs)
    if progress is not None:
        progress(report.runs)
    return report


def as_violation(error: Exception, seed: int) -> ViolationError:
    if isinstance(error, ViolationError):
        return ViolationError(error.invariant, f"seed {seed}: {error.what}")
    if isinstance(error, ProtocolError):
        return ViolationError(error.rule, f"seed {seed}: {error}")
    return ViolationError("terminates" if isinstance(error, SimulationError) else "policy", f"seed {seed}: {error}")
