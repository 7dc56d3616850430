"""One generation of a simulated flow: it takes snapshots, may crash, and may begin with what an earlier one has left."""

from __future__ import annotations

from random import Random
from typing import Any

from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.errors import CaptureFailure
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.description import describe
from dirigo.flow.plan.matching import matched
from dirigo.flow.plan.resumption import Resumption
from dirigo.flow.plan.snapshot_barrier import SnapshotBarrier
from dirigo.flow.plan.states import StageCapture, StageStates
from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import Address, CriticalOutput, CriticalRun, Granularity, Kept, WorkerId
from dirigo.sim.network import disorderly_network
from dirigo.sim.service import ServiceTimes
from dirigo.testing.crashes.snapshots_taken import SnapshotTaken
from dirigo.testing.simulation import Simulation

_BEGINS_AT_A_READ = 0.3  # how probable it is
_FLOODED = 0.4
_APART_S = 0.02  # at most, between the cuts of two sources
_SERVICE_S = 0.002


class Crash(Exception):  # noqa: N818  # no error: it is what was asked for
    """The simulation is thrown away here."""


class Generation(Simulation):
    """A simulation of one flow under disorder that takes snapshots at random moments, one after the other."""

    def __init__(self, flow: Dataflow, rows: Any, *, is_cut_at_random: bool, **options: Any) -> None:
        self._snapshots_rng = Random(f"{options['seed']} snapshots")
        self._events = 0
        self._crash_after: int | None = None
        self._taking: SnapshotTaken | None = None
        self._number = 0
        self._ended: set[str] = set()
        self.last_complete: SnapshotTaken | None = None
        self.completed = self.voided = 0
        self.has_crashed = False
        self.failures: list[CaptureFailure] = []
        self._is_cut_at_random = is_cut_at_random
        self._rows_most = options["rows_max"]
        # Either everything is under way at once, or rows come in their time, and barriers soon get through.
        is_flooded = is_cut_at_random and self._snapshots_rng.random() < _FLOODED
        options |= {"network": disorderly_network(), "service": ServiceTimes(_random_service)}
        super().__init__(flow, rows, chaos=is_flooded, **options)
        self._addresses = {address.partition("/")[2]: address for address in self.job.plan.addresses}
        self._sinks = {
            address.partition("/")[2]: (self._only.sink(stage.name), partition)
            for stage in self.job.plan.stages
            if isinstance(stage.operator, SinkRows)
            for partition, address in enumerate(stage.addresses)
        }

    def count_events(self) -> int:
        """How many events it takes to run it to the end."""
        self.finish()
        return self._events

    def crash_after(self, events: int) -> None:
        self._crash_after = events

    # --- beginning -----------------------------------------------------------------------------------------------------

    def go_on_from(self, snapshot: SnapshotTaken) -> None:
        """Begin where a snapshot was taken, before anything happens."""
        self._number, self.last_complete = snapshot.number, snapshot
        for reader in self._readers:
            reader.restore(snapshot.readers[_place_of(reader.address)])
        for place, address in self._addresses.items():
            worker = self.cluster.workers[self.job.homes[address]]
            states = worker.instance(address).states
            assert isinstance(states, StageStates)
            capture = snapshot.captures[place]
            if capture is None:
                states.restore_ended()
                self._ended.add(place)
            elif place in self._sinks:  # its rows are kept here, whatever it keeps itself
                states.restore(StageCapture(capture.head, None))
            else:
                states.restore(capture)
            kept = snapshot.kept[place]
            worker.restore(address, Kept(tuple(f"{self.job.name}/{each}" for each in kept.ended), kept.timers))
        for place, (sink, partition) in self._sinks.items():
            sink.put_back(partition, snapshot.rows[place])

    def go_on_as_another_job(self, snapshot: SnapshotTaken) -> None:
        """The same for a job that begins with a savepoint, whose operators may have other numbers of partitions."""
        self._number, self.last_complete = snapshot.number, snapshot
        plan = self.job.plan
        captures = {place: capture for place, capture in snapshot.captures.items() if capture is not None}
        heads = {place: capture.head for place, capture in captures.items()}
        resumption = Resumption(plan, matched(snapshot.plan, describe(plan)), snapshot.readers, heads)
        own = {place: capture.own for place, capture in captures.items()}
        for reader in self._readers:
            resumption.begin(reader)
        for stage in plan.stages:
            for partition, address in enumerate(stage.addresses):
                worker = self.cluster.workers[self.job.homes[address]]
                states = worker.instance(address).states
                assert isinstance(states, StageStates)
                resumption.restore(stage, partition, states, own)
                worker.restore(address, resumption.kept(stage, partition, lambda place: snapshot.kept[place].timers))
        for stage in (each for each in plan.stages if isinstance(each.operator, SinkRows)):
            written: list[list[Any]] = [[] for _ in stage.places]
            for place, rows in snapshot.rows.items():
                name, _, number = place.rpartition("/")
                if name == stage.name:
                    written[int(number) % stage.partitions] += rows
            for partition, rows in enumerate(written):
                self._only.sink(stage.name).put_back(partition, rows)

    # --- taking snapshots ----------------------------------------------------------------------------------------------

    def _pump(self, reader: SourceReader) -> None:
        if self._is_cut_at_random:
            self._rows_max = self._snapshots_rng.randint(1, self._rows_most)
        super()._pump(reader)
        if self._taking is None and self._snapshots_rng.random() < _BEGINS_AT_A_READ:
            self._begin()

    def _begin(self) -> None:
        self._number += 1
        snapshot = self._taking = SnapshotTaken(self._number, describe(self.job.plan))
        for reader in self._readers:
            at_s = self.cluster.now + self._snapshots_rng.uniform(0.0, _APART_S)
            self.cluster.at(at_s, lambda reader=reader: self._cut(reader, snapshot))  # type: ignore[misc]

    def _cut(self, reader: SourceReader, snapshot: SnapshotTaken) -> None:
        """Between two reads."""
        snapshot.readers[_place_of(reader.address)] = reader.capture()
        if not reader.has_ended:
            barrier = SnapshotBarrier(snapshot.number)
            self._feeds[reader.address].source.emit(CriticalOutput(reader.target, barrier, Granularity.SNAPSHOT))
        self._complete_if_all_are_there()

    def _note(self, now: float, what: str, worker: WorkerId, message: Any) -> None:
        super()._note(now, what, worker, message)
        self._events += 1
        if self._events == self._crash_after:
            self.has_crashed = True
            raise Crash
        if what == "finish" and type(message) is CriticalRun:
            if message.granularity is Granularity.SNAPSHOT:
                self._take(worker, message)
            states = self.cluster.workers[worker].instance(message.to).states
            assert isinstance(states, StageStates)
            if states.progress.has_ended:
                self._ended.add(_place_of(message.to))
                self._complete_if_all_are_there()

    def _take(self, worker: WorkerId, message: CriticalRun) -> None:
        """The barrier runs at an actor: take what it has left."""
        lessor = self.cluster.workers[worker].lessor(message.to)
        captured, lessor.context.captured = lessor.context.captured, None
        snapshot = self._taking
        if snapshot is None or message.payload.number != snapshot.number:
            return  # it was void elsewhere already
        if not isinstance(captured, StageCapture):
            self.voided += 1
            self._taking = None
            if isinstance(captured, CaptureFailure):
                self.failures.append(captured)
            return
        place = _place_of(message.to)
        kept = lessor.keep()
        snapshot.captures[place] = captured
        snapshot.kept[place] = Kept(tuple(map(_place_of, kept.ended)), kept.timers)
        self._keep_rows(snapshot, place)
        self._complete_if_all_are_there()

    def _keep_rows(self, snapshot: SnapshotTaken, place: str) -> None:
        if place in self._sinks:
            sink, partition = self._sinks[place]
            snapshot.rows[place] = sink.batches_of(partition)

    def _complete_if_all_are_there(self) -> None:
        snapshot = self._taking
        if snapshot is None or len(snapshot.readers) < len(self._readers):
            return
        without = self._addresses.keys() - snapshot.captures.keys()
        if not without <= self._ended:
            return
        for place in without:
            upstreams = self.cluster.workers[0].directory[self._addresses[place]].upstreams
            snapshot.captures[place] = None
            snapshot.kept[place] = Kept(tuple(map(_place_of, upstreams)), ())
            self._keep_rows(snapshot, place)
        self.last_complete, self._taking = snapshot, None
        self.completed += 1


def _place_of(address: Address) -> str:
    return address.partition("/")[2]


def _random_service(_message: Any, rng: Random) -> float:
    return rng.uniform(0.0, _SERVICE_S)
