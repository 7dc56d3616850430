"""Random runs with crashes: at any step everything is lost but the snapshots, and what comes out must show nothing of it.

A crash drops all workers and the network. The next generation of the job begins from the newest snapshot, with other homes
and another network, and gets some messages and reports of the generation before, late. In the end, all rows that the sinks
made visible and all states must be those of the reference, which knows neither snapshots nor crashes. And each snapshot on
its own must be what the reference computes from exactly what the sources had emitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from dirigo.errors import DirigoError
from dirigo.kernel import (
    Address,
    CriticalOutput,
    CriticalRun,
    Granularity,
    Kept,
    Message,
    RunnableMessage,
    SourceActor,
    WorkerId,
)
from dirigo.kernel.mailbox import MailboxState
from dirigo.state import StateSet
from dirigo_lab.verification.checker import ViolationError
from dirigo_lab.verification.random.coordinator import ModelCoordinator, ModelManifest, ModelStorage, ScriptPosition
from dirigo_lab.verification.random.generations import address_in, generation_of
from dirigo_lab.verification.random.reference import STATES, Results, sequential
from dirigo_lab.verification.random.report import RecoveryReport, RecoveryResult, RunResult, Violation
from dirigo_lab.verification.random.run import Checking, RandomRun, as_violation
from dirigo_lab.verification.random.world import ANY_TIME, RandomWorld, letter_of, random_world
from dirigo_lab.verification.snapshots.naming import CaptureInWorld, is_void, snapshot_name, snapshot_of

_SNAPSHOTS_MAX = 5  # of one generation, before the one at its end
_CHECKED_MAX = 2  # snapshots of a run that are compared with the reference, each on its own
_STALE_MAX = 6  # late messages, and late reports
_PROGRESS_EVERY = 25
_Report = Callable[[ModelCoordinator], None]


class CrashError(Exception):
    """Everything is lost but what lasts."""


@dataclass
class CrashPlan:
    """When the present generation crashes: just before something happens for the nth time; never, if nothing is named."""

    before: str = ""  # "execution", "restore", or a step of the coordinator's: "report", "manifest", "commit"
    countdown: int = 0

    def meet(self, what: str) -> None:
        if what == self.before:
            self.countdown -= 1
            if self.countdown == 0:
                raise CrashError


@dataclass
class StillUnderWay:
    """What is still under way of an earlier generation."""

    messages: list[Message] = field(default_factory=list)
    reports: list[_Report] = field(default_factory=list)


class Watching(Checking):
    """The checks of a random run, and what a host and the writers of sinks do beside."""

    run: GenerationRun

    def executed(self, worker: WorkerId, message: RunnableMessage) -> None:
        self.run.fate.meet("execution")
        is_snapshot = isinstance(message, CriticalRun) and message.granularity is Granularity.SNAPSHOT
        super().executed(worker, message)
        if is_snapshot:
            self.run.on_snapshot(message)  # type: ignore[arg-type]
        else:
            payload = message.payload
            self.run.write(message.to, payload)

    def sent(self, messages: Iterable[Message]) -> None:
        messages = list(messages)
        self.run.under_way.extend(messages)
        super().sent(messages)


class SourceInRun:
    """One source: it emits its script, and tells where it is when it is asked to begin a snapshot."""

    def __init__(self, run: GenerationRun, name: Address, position: int) -> None:
        self._run = run
        self.name = name
        self.script = run.world.scripts[name]
        self._times = run.world.times[name]
        self.position = position
        self.ordered_at = 0.0  # when the last order to begin a snapshot reaches it
        run.cluster.source(name, run.world.homes[name], run.world.targets(name))
        self._began = self._times[position - 1] if position else 0.0
        self._wait()

    def _wait(self) -> None:
        if self.position < len(self.script):
            due = max(self._run.cluster.now, self._times[self.position] - self._began)
            self._run.cluster.at(due, self._emit_next)

    def _participant(self) -> SourceActor:
        source = self._run.workers[self._run.world.homes[self.name]].participants[self.name]
        assert isinstance(source, SourceActor)
        return source

    def _emit_next(self) -> None:
        step = self.script[self.position]
        self.position += 1
        for output in step:
            self._participant().emit(output)
        self._wait()

    @property
    def has_ended(self) -> bool:
        return self.position == len(self.script) and any(
            isinstance(output, CriticalOutput) and output.final for output in self.script[-1] if self.script
        )

    def begin(self, number: int) -> ScriptPosition:
        """Take down the position and emit the barrier, with nothing in between. Who has ended emits none."""
        position = ScriptPosition(self.position, self.has_ended)
        if not position.has_ended:
            self.emit_barrier(number)
        return position

    def emit_barrier(self, number: int) -> None:
        for to in self._run.world.targets(self.name):
            self._participant().emit(CriticalOutput(to, snapshot_name(number), Granularity.SNAPSHOT))


class GenerationRun(RandomRun):
    """One beginning of a job, up to its end or its crash."""

    events_max = 1_000_000  # where workers are slow, whoever takes snapshots looks again many times

    def __init__(
        self,
        job: RandomWorld,
        number: int,
        storage: ModelStorage,
        fate: CrashPlan,
        late: StillUnderWay,
        result: RecoveryResult,
    ) -> None:
        self.job = job
        self.number = number
        self.fate = fate
        self.storage = storage
        self.under_way: list[Message] = []
        self.reports: list[_Report] = []
        self.rows: dict[str, list[str]] = {}  # written since the last cut, by sink
        self.is_restoring = True
        self._met = result
        self._rng = Random(f"recovery {number} of {job.seed}")
        self._hurry = self._rng.choice((0.2, 1.0, 3.0))  # how long a step may take
        self._pace = self._rng.choice((2.0, 6.0, 20.0))  # and the time between two snapshots
        self.manifest = storage.begin_again()
        fate.meet("restore")
        super().__init__(generation_of(job, number))
        self.injections.first = 1000 * number
        self.upstreams = {
            letter_of(actor.name): tuple(map(letter_of, actor.upstreams)) for actor in self.world.random_actors()
        }
        sinks = frozenset(letter_of(actor.name) for actor in self.world.random_actors() if not actor.downstreams)
        self.sinks = sinks
        self.coordinator = ModelCoordinator(
            number, storage, self.upstreams, sinks, self._later, self.fate.meet, self._captured_at_rest
        )
        self._restore()
        self.is_restoring = False
        self._receive_late(late)
        self._orders = 0
        self._order_later()

    def new_checking(self) -> Checking:
        checking = Watching(self.world, RunResult(self.world.seed), Results(), self._timer_set)
        checking.run = self
        return checking

    def _schedule_sources(self) -> None:
        """They begin once all is restored."""

    def _later(self, action: Callable[[], None]) -> None:
        self.cluster.at(self.cluster.now + self._rng.random() * self._hurry, action)

    # --- the beginning -------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        manifest = self.manifest
        if manifest is not None:
            self._met.restored += 1
            for letter, capture in manifest.captures.items():
                self.restore_actor(letter, capture)
                self.fate.meet("restore")
        self.sources = [
            SourceInRun(self, name, manifest.positions[letter_of(name)].steps if manifest is not None else 0)
            for name in self.world.scripts
        ]

    def restore_actor(self, letter: str, capture: CaptureInWorld) -> None:
        address = address_in(letter, self.number)
        worker = self.workers[self.world.homes[address]]
        states = worker.instance(address).states
        assert isinstance(states, StateSet)
        for name in STATES:
            for key, count in capture.content[name].items():
                states.cell(name).add(key, count)
        ended = tuple(address_in(upstream, self.number) for upstream in capture.kept.ended)
        kept = Kept(ended, capture.kept.timers)
        self.checking.ledgers[address].restore(CaptureInWorld(capture.content, kept), capture.content["seen"])
        worker.restore(address, kept)
        for due, _ in kept.timers:
            self._timer_set(due)
        self._met.timers_kept += len(kept.timers)
        self._met.ended_kept += bool(ended)

    def _receive_late(self, late: StillUnderWay) -> None:
        """What an earlier generation sent and nobody has taken in comes to workers that never heard of it."""
        for message in late.messages:
            worker = self.workers[message.worker % len(self.workers)]
            self.cluster.at(self._rng.random() * 20.0, lambda message=message, worker=worker: self._deliver(message, worker))  # type: ignore[misc]
        for report in late.reports:
            self._later(lambda report=report: report(self.coordinator))  # type: ignore[misc]

    def _deliver(self, message: Message, worker: object) -> None:
        """As every host does: what is addressed to a job that is not known here is dropped."""
        if message.to in self.workers[0].directory:
            worker.receive(message)  # type: ignore[attr-defined]
        else:
            self._met.stale_messages += 1

    # --- snapshots -----------------------------------------------------------------------------------------------------

    def _order_later(self) -> None:
        wait = self._rng.random() * self._pace
        self.cluster.at(self.cluster.now + wait, self._order)

    def _order(self) -> None:
        if self._orders < _SNAPSHOTS_MAX:
            if self.coordinator.under is None:
                self._orders += 1
                self._begin(self.coordinator.order())
            self._order_later()

    def _begin(self, number: int) -> None:
        for source in self.sources:
            # Orders reach a source in order, and none is left out: the nth barriers of all belong together.
            source.ordered_at = max(source.ordered_at, self.cluster.now + self._rng.random() * self._hurry)
            self.cluster.at(source.ordered_at, lambda source=source: self._begin_at(source, number))  # type: ignore[misc]

    def _begin_at(self, source: SourceInRun, number: int) -> None:
        position, letter, generation = source.begin(number), letter_of(source.name), self.number
        self._report(lambda coordinator: coordinator.on_position(generation, number, letter, position))

    def on_snapshot(self, run: CriticalRun) -> None:
        """The barrier has run at an actor: its writers cut, and its capture is on its way to the disk."""
        number, letter, generation = snapshot_of(run.payload), letter_of(run.to), self.number
        assert number is not None
        if is_void(run):
            self._report(lambda coordinator: coordinator.on_void(generation, number))
            return
        capture = self.checking.ledgers[run.to].snapshots[number]
        assert capture is not None
        capture = CaptureInWorld(capture.content, _by_letters(capture.kept))
        self.cut(letter, number)
        self._report(lambda coordinator: coordinator.on_capture(generation, number, letter, capture))

    def _report(self, report: _Report) -> None:
        self.reports.append(report)
        self._later(lambda: report(self.coordinator))

    def _captured_at_rest(self, letter: str) -> CaptureInWorld | None:
        """An actor that has ended gets no barrier: it is captured when nothing is left to do there."""
        address = address_in(letter, self.number)
        lessor = self._lessor(address)
        has_ended = all(upstream.ended for upstream in lessor.upstreams.values())
        if not has_ended or lessor.state is not MailboxState.RUNNABLE or lessor.running is not None or lessor.alone:
            return None
        kept = Kept(tuple(sorted(lessor.upstreams)), tuple(lessor.timers))
        assert self.coordinator.under is not None
        self.cut(letter, self.coordinator.under.number)
        assert isinstance(lessor.states, StateSet)
        content = {name: dict(lessor.states.cell(name).items()) for name in STATES}
        return CaptureInWorld(content, _by_letters(kept))

    # --- sinks ---------------------------------------------------------------------------------------------------------

    def write(self, address: Address, payload: str) -> None:
        letter = letter_of(address)
        if letter in self.sinks and _counts(payload):
            self.rows.setdefault(letter, []).append(payload)

    def cut(self, letter: str, number: int) -> None:
        if letter in self.sinks:
            self.storage.prepare(letter, number, tuple(self.rows.pop(letter, ())))

    # --- the end -------------------------------------------------------------------------------------------------------

    def execute_all(self) -> None:
        """Run to the end, and take a last snapshot there."""
        try:
            self.run_to_rest()
            self._check_none_is_left()
            self._begin(self.coordinator.order())
            self.run_to_rest()
            self._check_none_is_left()
            self.check_end()
        finally:
            self._met.executed += self.cluster.metrics.executed
            self._met.voids += self.coordinator.voids
            self._met.stale_reports += self.coordinator.ignored
            self._met.lessees += self.result.lessees

    def _check_none_is_left(self) -> None:
        if self.coordinator.under is not None:
            under = self.coordinator.under
            raise ViolationError(
                "no-deadlock", f"snapshot {under.number} is not whole: {under.positions}, {[*under.captures]}"
            )

    def late(self) -> StillUnderWay:
        def some(items: list[object]) -> list[object]:
            newest = items[-40:]
            return self._rng.sample(newest, min(_STALE_MAX, len(newest)))

        return StillUnderWay(some(self.under_way), some(self.reports))  # type: ignore[arg-type]


def _by_letters(kept: Kept) -> Kept:
    """Who has ended goes by the name of a generation, which the next one does not know."""
    return Kept(tuple(map(letter_of, kept.ended)), kept.timers)


# --- runs ------------------------------------------------------------------------------------------------------------------


def recover(seed: int) -> RecoveryResult:
    """The run of a seed, crashes and all; raises ViolationError, which names the seed."""
    try:
        return _recover(seed)
    except (ViolationError, DirigoError) as error:
        raise as_violation(error, seed) from error
    except Exception as error:
        error.add_note(f"in the random run with crashes with seed {seed}")
        raise


def _recover(seed: int) -> RecoveryResult:
    job, storage, result, late = random_world(seed), ModelStorage(), RecoveryResult(seed), StillUnderWay()
    rng = Random(f"crashes {seed}")
    crashes = rng.choice((0, 1, 1, 1, 2, 2, 3))
    for number in range(crashes + 1):
        fate = _fate(rng) if number < crashes else CrashPlan()
        generation: GenerationRun | None = None
        listed = len(storage.manifests)
        try:
            generation = GenerationRun.__new__(GenerationRun)
            generation.__init__(job, number, storage, fate, late, result)  # type: ignore[misc]  # it may crash halfway
            generation.execute_all()
            break
        except CrashError:
            result.crashes += 1
            result.in_restores += generation is not None and generation.is_restoring
            _count_crash(generation, storage, result)
            late = generation.late() if generation is not None and not generation.is_restoring else late
    assert generation is not None
    result.snapshots = len(storage.manifests)
    _check_snapshots(job, rng.sample(storage.manifests, min(_CHECKED_MAX, len(storage.manifests))))
    reference = sequential(job)
    _check_output(storage, reference, generation.sinks)
    _check_states(generation.results.states, reference)
    assert listed <= result.snapshots
    return result


def _fate(rng: Random) -> CrashPlan:
    before, most = rng.choice((("execution", 150), ("report", 60), ("manifest", 5), ("commit", 9), ("restore", 6)))
    return CrashPlan(before, rng.randrange(1, most))


def _count_crash(generation: GenerationRun | None, storage: ModelStorage, result: RecoveryResult) -> None:
    if generation is None or generation.is_restoring:
        return
    newest = storage.newest()
    result.in_snapshots += generation.coordinator.under is not None
    result.in_commits += newest is not None and any((sink, newest.number) in storage.prepared for sink in generation.sinks)


def run_recoveries(seeds: Iterable[int], progress: Callable[[int], None] | None = None) -> RecoveryReport:
    """The runs of many seeds, with what failed among them; ``progress`` is told how many are done."""
    report = RecoveryReport()
    for seed in seeds:
        try:
            report.add(recover(seed))
        except ViolationError as error:
            report.runs += 1
            report.violations.append(Violation(seed, error.invariant, error.what))
        if progress is not None and report.runs % _PROGRESS_EVERY == 0:
            progress(report.runs)
    if progress is not None:
        progress(report.runs)
    return report


# --- what must come out --------------------------------------------------------------------------------------------------


def _check_output(storage: ModelStorage, reference: Results, sinks: Iterable[str]) -> None:
    for sink in sinks:
        visible: Counter[str] = Counter()
        for (name, _), rows in storage.committed.items():
            visible.update(rows if name == sink else ())
        states = reference.states[sink]
        expected = Counter(_counted({**states["seen"], **states["criticals"]}))
        if visible != expected:
            missing, extra = dict(expected - visible), dict(visible - expected)
            raise ViolationError("output-once", f"of sink {sink} {missing} is not visible, and {extra} is too often")


def _check_states(states: Mapping[Address, Mapping[str, Mapping[str, int]]], reference: Results) -> None:
    for address, found in states.items():
        expected = reference.states[letter_of(address)]
        for name in STATES:
            if _counted(found[name]) != _counted(expected[name]):
                raise ViolationError(
                    "as-sequential", f"the final state '{name}' of {address} is {found[name]}, not {expected[name]}"
                )


def _check_snapshots(job: RandomWorld, manifests: Iterable[ModelManifest]) -> None:
    """Each snapshot is what comes of exactly what the sources had emitted before its barrier."""
    for manifest in manifests:
        emitted = {source: job.scripts[source][: manifest.positions[source].steps] for source in job.scripts}
        expected = sequential(replace(job, scripts=emitted)).states
        for letter, capture in manifest.captures.items():
            for name in STATES:
                found, should = _counted(capture.content[name], at_cut=True), _counted(expected[letter][name], at_cut=True)
                if found != should:
                    raise ViolationError(
                        "snapshot-cut", f"snapshot {manifest.number} has {found} of {letter} as '{name}', not {should}"
                    )


def _counted(content: Mapping[str, int], *, at_cut: bool = False) -> dict[str, int]:
    """What can be compared. At a cut, timers may still be to come."""
    return {key: n for key, n in content.items() if n and _counts(key) and not (at_cut and key.startswith("timer "))}


def _counts(payload: str) -> bool:
    """What was injected in a generation that was lost is lost with it, so nobody knows how often it should have run."""
    return ANY_TIME not in payload and not payload.startswith("injected ")
