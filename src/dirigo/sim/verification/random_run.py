"""Random runs: a random world in virtual time, every invariant checked as it goes, and its results compared in the end.

A run is a function of its seed, and so is what it reports; seeds can therefore be spread over processes. What does not
happen is not tested: every run counts what it met, and a report over runs in which nothing was scaled out, or in which no
barrier noticed, is *hollow* and not ok.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from random import Random

from dirigo.kernel import (
    Address,
    CriticalOutput,
    CriticalRun,
    Data,
    DirigoError,
    Executable,
    Granularity,
    Hooks,
    Lane,
    Message,
    Output,
    ProtocolError,
    SchedulingContext,
    Worker,
    WorkerId,
)
from dirigo.kernel.lessee import Lessee
from dirigo.kernel.lessor import Lessor
from dirigo.kernel.mailbox import Event, Role, Transition
from dirigo.kernel.message import Intent, Registration
from dirigo.scheduling import Chaos, Fifo, Freedom
from dirigo.sim.cluster import Cluster, SimulationError
from dirigo.sim.service import Service
from dirigo.sim.verification.at_rest import check_at_rest
from dirigo.sim.verification.checker import Fact, Ledger, ViolationError, control_facts, data_fact
from dirigo.sim.verification.random_world import Mind, RandomWorld, is_said_alone, random_world
from dirigo.sim.verification.recorder import Recorder
from dirigo.sim.verification.reference import STATES, Results, contents, sequential
from dirigo.sim.verification.world import readable, seen

_EVENTS_MAX = 100_000  # a run has about a thousand
_PROGRESS_EVERY = 25


# --- what comes of runs ----------------------------------------------------------------------------------------------------


@dataclass
class RunResult:
    """What one run met."""

    seed: int
    executed: int = 0  # messages, critical ones included
    lessees: int = 0  # instances away from their home
    rounds: int = 0
    rounds_met: int = 0  # with lessees that had been given a message since the round before
    criticals: int = 0  # executions of critical messages of an upstream
    sync_ones: int = 0  # among them
    ends: int = 0  # critical messages that ended a stream
    alone: int = 0  # critical messages of an actor to itself
    forwards: int = 0
    directs: int = 0  # messages that an upstream sent to a lessee
    hand_backs: int = 0
    intents: int = 0  # barriers that a lessee asked for
    registrations: int = 0
    scale_ins: int = 0
    timers: int = 0
    held: int = 0  # messages that a strategy chose and that the protocol blocked
    replica_reads: int = 0  # executions at a lessee that has a replica
    ordered: int = 0  # executions of ordered functions
    duplicates: int = 0

    @property
    def hollow(self) -> bool:
        """Nothing was scaled out, or no barrier noticed."""
        return not (self.lessees and self.rounds_met)


FEATURES = tuple(each.name for each in fields(RunResult) if each.name != "seed")


@dataclass(frozen=True)
class Violation:
    """A run that violated an invariant."""

    seed: int
    invariant: str
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed} violates {self.invariant}: {self.what}"


@dataclass
class RandomReport:
    """What many runs met, and which of them failed."""

    runs: int = 0
    hollow_runs: int = 0  # in themselves; some are, because some workers are calm and some graphs small
    totals: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def is_hollow(self) -> bool:
        """Over all runs no lessee was made, or no barrier met a message that had been given to one."""
        return not (self.totals["lessees"] and self.totals["rounds_met"])

    @property
    def unmet(self) -> list[str]:
        """Features that occurred in no run at all."""
        return [name for name in FEATURES if not self.totals[name]]

    @property
    def ok(self) -> bool:
        return not self.violations and not self.is_hollow()

    def add(self, result: RunResult) -> None:
        self.runs += 1
        self.hollow_runs += result.hollow
        for name in FEATURES:
            self.totals[name] += getattr(result, name)

    def __add__(self, other: RandomReport) -> RandomReport:
        """Both reports in one: what several processes found."""
        violations = sorted([*self.violations, *other.violations], key=lambda violation: violation.seed)
        totals = Counter({name: self.totals[name] + other.totals[name] for name in FEATURES})
        return RandomReport(self.runs + other.runs, self.hollow_runs + other.hollow_runs, totals, violations)

    def summary(self) -> str:
        """All numbers in one sentence, so that nothing passes by being empty."""
        met = ", ".join(f"{self.totals[name]:,} {name.replace('_', ' ')}" for name in FEATURES)
        failed = f"{len(self.violations):,} violations" if self.violations else "no violation"
        return f"{self.runs:,} random runs, {failed}, {self.hollow_runs:,} of them hollow: {met}"

    def to_json(self) -> dict[str, object]:
        return {
            "runs": self.runs,
            "hollow_runs": self.hollow_runs,
            "ok": self.ok,
            "totals": {name: self.totals[name] for name in FEATURES},
            "violations": [str(violation) for violation in self.violations],
        }


# --- strategies ------------------------------------------------------------------------------------------------------------


class Injections:
    """The critical messages that strategies, or nobody in particular, injected in a run."""

    def __init__(self, ledgers: Mapping[Address, Ledger]) -> None:
        self._ledgers = ledgers
        self.all: list[tuple[Address, str]] = []

    def one_more(self, address: Address) -> str:
        """The payload of one more, which from now on has to run exactly once."""
        payload = f"injected {len(self.all)}"
        self.all.append((address, payload))
        self._ledgers[address].asked(payload)
        return payload


class Restless(Chaos):
    """Chaos that now and then starts a barrier, in any hook."""

    def __init__(self, rng: Random, mind: Mind, freedom: Freedom, local: list[Address], injections: Injections) -> None:
        super().__init__(_chooser(rng, mind.stay), freedom)
        self._rng = rng
        self._whim = mind.whims if local else 0.0
        self._whims_left = mind.whims_max
        self._local = local  # actors whose lessor is here
        self._injections = injections

    def _maybe(self, context: SchedulingContext) -> None:
        if self._whim and self._rng.random() < self._whim and self._whims_left:
            self._whims_left -= 1
            address = self._rng.choice(self._local)
            if self._rng.random() < 0.6:
                context.scale_in(address)
            else:
                context.run_alone(address, self._injections.one_more(address))

    def enqueue(self, context: SchedulingContext, message: Executable) -> WorkerId | None:
        self._maybe(context)
        return super().enqueue(context, message)

    def get_next_message(self, context: SchedulingContext) -> Executable | None:
        self._maybe(context)
        return super().get_next_message(context)

    def pre_apply(self, context: SchedulingContext, message: Executable) -> None:
        self._maybe(context)
        super().pre_apply(context, message)

    def prepare_send(self, context: SchedulingContext, sender: Address, output: Output | CriticalOutput) -> WorkerId | None:
        self._maybe(context)
        return super().prepare_send(context, sender, output)

    def post_apply(self, context: SchedulingContext, message: Executable, elapsed_s: float) -> None:
        self._maybe(context)
        super().post_apply(context, message, elapsed_s)


class ByPriority(Restless):
    """Each message gets a random priority when it comes, and keeps it; whether the protocol blocks it now is not asked."""

    def __init__(self, rng: Random, mind: Mind, freedom: Freedom, local: list[Address], injections: Injections) -> None:
        super().__init__(rng, mind, freedom, local, injections)
        self._priorities: list[float] = []  # of what is kept
        self.held = 0

    def enqueue(self, context: SchedulingContext, message: Executable) -> WorkerId | None:
        elsewhere = super().enqueue(context, message)
        if elsewhere is None:
            self._priorities.append(self._rng.random())
        return elsewhere

    def get_next_message(self, context: SchedulingContext) -> Executable | None:
        self._maybe(context)
        if not self.kept:
            return None
        index = self._priorities.index(min(self._priorities))
        del self._priorities[index]
        message = self.kept.pop(index)
        self.held += not context.may_run(message)
        return message


def _chooser(rng: Random, stay: float) -> Callable[[int], int]:
    """Chooses the first option with the given probability, and any one otherwise."""
    random = rng.random
    return lambda n: 0 if random() < stay else int(random() * n)


# --- checks ----------------------------------------------------------------------------------------------------------------


class RandomLedger(Ledger):
    """A ledger for worlds in which any round renews the view, and in which running alone has outputs."""

    __slots__ = ()

    def emitted(self, sender: Address, payload: str, critical: bool) -> None:
        if not is_said_alone(sender, payload) or (sender, payload) in self.promised:
            super().emitted(sender, payload, critical)
            return
        # What is said alone stands where the function asked for it. Outputs that are withheld behind that, or that other
        # executions withhold, are not left behind: they come later.
        promised, urgent = self.promised, self.urgent
        self.promised, self.urgent = set(), set()
        try:
            super().emitted(sender, payload, critical)
        finally:
            self.promised, self.urgent = promised, urgent

    def moved(self, row: Transition) -> None:
        super().moved(row)
        if row.role is Role.LESSOR and row.event is Event.CONSOLIDATED:
            self.base = dict(self.executed_counts)

    def intended(self, intent: Intent) -> None:
        """Intents have their ids on the channel of what is handed back."""
        channel = ("return", intent.origin, intent.worker)
        if intent.seq != self.seqs.get(channel, 0) + 1:
            self._fail("ids-gapless", f"the intent {intent.seq} follows {self.seqs.get(channel, 0)} on {channel}")
        self.seqs[channel] = intent.seq


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

    def executed(self, worker: WorkerId, message: Executable) -> None:
        instance = self.workers[worker].instance(message.to)
        for due, _ in instance.context.timers:
            self._result.timers += 1
            self.timer_set(due)
        if isinstance(message, CriticalRun):
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

    def _count_critical(self, run: CriticalRun) -> None:
        if run.parts[0][0] == run.to:
            self._result.alone += 1
            return
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
            party = worker.parties.get(address)
            if isinstance(party, Lessee) and (party.running is not None or not party.states.is_identity()):
                raise ViolationError("no-partial-left", f"{party.name} has something left while w{home} is CRITICAL")

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
                self.ledgers[message.to].intended(message)
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

    def __init__(self, world: RandomWorld) -> None:
        self.world = world
        self.result = RunResult(world.seed)
        self.results = Results()
        self.checking = Checking(world, self.result, self.results, self._timer_set)
        self.injections = Injections(self.checking.ledgers)
        self.cluster = Cluster(
            world.workers,
            world.directory(),
            self._strategy,
            network=world.network,
            service=Service(world.service),
            seed=world.seed,
            observer=lambda _: self.checking,
            carried=self.checking.sent,
        )
        self.workers: dict[WorkerId, Worker] = self.cluster.workers
        self.checking.workers = self.workers
        self._schedule()

    def _strategy(self, worker: WorkerId, rng: Random) -> Hooks:
        mind = self.world.minds[worker]
        if mind.kind == "fifo":
            return Fifo()
        local = [actor.name for actor in self.world.actors if self.world.homes[actor.name] == worker]
        kind = ByPriority if mind.kind == "priority" else Restless
        return kind(rng, mind, self.world.freedom(), local, self.injections)

    def _schedule(self) -> None:
        world, cluster, trouble = self.world, self.cluster, self.world.trouble
        for source, steps in world.scripts.items():
            feed = cluster.source(source, world.homes[source], world.targets(source))
            for t, step in zip(world.times[source], steps, strict=True):
                for output in step:
                    feed.emit_at(t, output)
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
        self.cluster.run(max_events=_EVENTS_MAX)
        while any(worker.timed for worker in self.workers.values()):  # those that were on their way when they were due
            self.cluster.at(self.cluster.now, self._fire_timers)
            self.cluster.run(max_events=_EVENTS_MAX)
        for ledger in self.checking.ledgers.values():
            ledger.finish()
        check_at_rest(list(self.workers.values()))
        left = self.cluster.unfinished()
        if left:
            raise ViolationError("no-deadlock", "; ".join(left))
        self._collect()
        return self.result

    def _collect(self) -> None:
        """Put the final states together, and count what only the end shows."""
        result, states = self.result, self.results.states
        for actor in self.world.actors:
            whole = states[actor.name] = {name: {} for name in STATES}
            for worker in self.workers.values():
                party = worker.parties.get(actor.name)
                if isinstance(party, (Lessor, Lessee)):
                    for name, part in contents(party.states).items():
                        for key, count in part.items():
                            whole[name][key] = whole[name].get(key, 0) + count
                    result.lessees += isinstance(party, Lessee)
                if isinstance(party, Lessor):
                    result.scale_ins += party.leases.revocation
        result.executed = self.cluster.metrics.executed
        result.duplicates = self.cluster.metrics.duplicates
        result.held = sum(getattr(worker.strategy, "held", 0) for worker in self.workers.values())

    def compare(self, reference: Results) -> None:
        """Raise ViolationError unless the results are those of the reference; what was injected is added to those."""
        for actor, payload in self.injections.all:
            reference.states[actor]["criticals"][payload] = 1
        self.results.compare(reference)


def run(seed: int, *, calm: bool = False) -> RunResult:
    """The run of a seed; raises ViolationError, which names the seed. Another error is a crash, with a note of the seed."""
    try:
        random_run = RandomRun(random_world(seed, calm=calm))
        result = random_run.execute()
        random_run.compare(sequential(random_run.world))
    except (ViolationError, DirigoError) as error:
        raise _as_violation(error, seed) from error
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


def _as_violation(error: Exception, seed: int) -> ViolationError:
    if isinstance(error, ViolationError):
        return ViolationError(error.invariant, f"seed {seed}: {error.what}")
    if isinstance(error, ProtocolError):
        return ViolationError(error.rule, f"seed {seed}: {error}")
    return ViolationError("terminates" if isinstance(error, SimulationError) else "policy", f"seed {seed}: {error}")
