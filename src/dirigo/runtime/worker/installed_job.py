"""A job as one worker knows it: its actors, those of its sources that are read here, and what is counted for it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.states import StageCapture
from dirigo.flow.sources.pushed import PushedSource, PushedSplit
from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import (
    Address,
    CriticalOutput,
    Kept,
    Output,
    RunnableMessage,
    SourceActor,
    WorkerId,
    operator_of,
)
from dirigo.runtime.client.shipment import unship
from dirigo.runtime.control import Beginning, Install, JobFigures, Release, Released
from dirigo.runtime.generations import generation_of, job_of_run
from dirigo.runtime.ingest.kept import rows_folder
from dirigo.runtime.ingest.pusher import StagingAck, StagingHeader
from dirigo.runtime.ingest.staging import Staging, StagingError
from dirigo.runtime.results.sink import LogSink
from dirigo.runtime.snapshots.blobs import BlobRef
from dirigo.runtime.snapshots.codec import decode
from dirigo.runtime.snapshots.places import Buffer
from dirigo.runtime.snapshots.store import SnapshotStore
from dirigo.runtime.transport.payload import Schemas
from dirigo.runtime.worker.budget import Budget
from dirigo.runtime.worker.row_costs import RowCosts
from dirigo.runtime.worker.snapshots.beginnings import SavepointStates
from dirigo.runtime.worker.snapshots.captures import WrittenBody, place_of_actor, restored, restored_source
from dirigo.runtime.worker.user_code import HostedStates, hosted, sealed_outputs
from dirigo.scheduling import for_worker

ROWS_AT_ONCE = 16_384
# How long a message of a source should take at most, wherever it or what comes of it is executed: a part of the tightest
# objective, because a message is not interrupted. Without any objective, large messages are the cheapest.
MESSAGE_SHARE = 0.03
MESSAGE_LEAST_S = 0.003
PREPARED_MOST = 3  # of snapshots that have not been committed, and may never be

PostResult = Callable[[str, str, int, pa.RecordBatch | None], None]


class InstalledJob:
    """One job at one worker. Building it runs the user's code."""

    def __init__(self, install: Install, worker: WorkerId, post_result: PostResult, schemas: Schemas, folder: Path) -> None:
        self.id = install.job
        self.figures = JobFigures()
        self.posted_bytes = 0  # handed to the results log; the worker thread counts
        self.logged_bytes = 0  # arrived there; the fetcher counts
        self.state_sizes: dict[Address, int] = {}
        self.state_cursor = 0
        job = self._job = BoundJob(unship(install.shipment), install.workers, install.job)
        self.strategy_key = install.strategy
        pattern = pickle.loads(install.strategy)  # of a holder of the cluster's keys, as the flow is
        self.new_strategy = partial(for_worker, pattern)
        self.latency_s = job.properties.objective.latency_s
        self.weight = job.properties.weight
        self.helpers: frozenset[WorkerId] = frozenset()  # the workers that know it, once it has started
        self.helpers_version = 0
        self.used: set[WorkerId] = set()  # other workers that something of it was sent to from here
        self.row_costs = RowCosts()
        self.leaves = {
            address
            for stage in job.plan.stages
            for address, downstreams in zip(stage.addresses, stage.downstreams, strict=True)
            if not downstreams
        }
        self._schemas = schemas
        self._worker = worker
        self.operators = {address: stage.operator for stage in job.plan.stages for address in stage.addresses}
        self.store = SnapshotStore(install.snapshots, job_of_run(install.job)) if install.snapshots else None
        self.rewrite: frozenset[str] = frozenset()  # places of actors whose states are to be written anew
        self.bodies: dict[Address, WrittenBody] = {}  # what was written of whom last
        self.goes_on = False  # once it is removed: in a later generation
        self.kept: dict[Address, Kept] = {}  # what the kernel goes on from
        self._restored: dict[Address, HostedStates] = {}
        self._prepared: dict[Address, list[tuple[int, Any]]] = {}  # by sink's actor; what is not committed
        self._last_cut: dict[Address, int] = {}  # the last snapshot that an actor here took part in
        self._pieces = 0  # of parts of snapshots that were written
        holds_back = self.store is not None
        self.specs = [
            hosted(
                spec,
                self.operators[spec.address],
                schemas,
                self._restored,
                captures_end=holds_back and isinstance(self.operators[spec.address], SinkRows),
            )
            for spec in job.specs()
        ]
        self.remains: list[Any] = []  # what the kernel kept for it, once it is gone
        self.source_workers = frozenset(job.homes[reader.address] for reader in job.readers)
        self.budget = Budget(install.budget_bytes, self.source_workers - {worker})
        self.sources: dict[Address, SourceActor] = {}
        self.staging: dict[tuple[str, int], Staging] = {}  # (source, split) -> where rows from outside wait
        self.keeps_rows = False  # what was staged outlives this process
        self._covered: dict[int, dict[tuple[str, int], int]] = {}  # by snapshot: which release each split goes on with
        self._staging_lock = Lock()  # rows come in on one thread, and are released on another
        here = {reader.address for reader in job.readers if job.homes[reader.address] == worker}
        self.readers = job.plan.open_splits(here)  # those that are read here
        self._attach(post_result, folder / install.job)
        if self.store is not None:
            job.hold_back_sinks(generation_of(install.job))
            if install.restore and worker in install.workers:  # who only helps needs nothing of what may be gone by now
                self._restore(self.store, install.restore, worker)
            elif self.keeps_rows and not install.restore:
                for staging in self.staging.values():
                    staging.seek(1)  # all that was ever released has to be there
        if install.beginning is not None and not install.restore and worker in install.workers:
            self._begin_with(install.beginning, worker)
        self.active = [reader for reader in self.readers if not reader.has_ended]
        self.budget.behind_ms = min(self._times(), default=None)
        self.retry_s: dict[Address, float] = {}  # when to ask a source again that had nothing
        self.turn_s: dict[Address, float] = {}  # when to read a source again although messages wait
        self.is_started = False
        self.is_paused = False
        self.stops_at = 0  # the snapshot behind whose cut sources are read no further
        self.held: set[Address] = set()  # sources that have come to it
        self.to_end: set[str] = set()  # sources that were asked to end, by operator; "" for all

    def _attach(self, post_result: PostResult, folder: Path) -> None:
        """Connect sinks and sources to what is outside of the job."""
        for stage in self._job.plan.stages:
            operator = stage.operator
            if isinstance(operator, SinkRows) and isinstance(operator.sink, LogSink):
                operator.sink.post = self._post(post_result, operator.name)
        for reader in self.readers:
            if isinstance(reader.source, PushedSource):
                assert isinstance(reader.split, PushedSplit)
                operator_name, split = operator_of(reader.target), partition_of(reader.target)
                kept = None if self.store is None else rows_folder(self.store.place)
                place = (kept or folder) / f"{operator_name}-{split}"
                owner = None if kept is None else (generation_of(self.id), 0)
                staging = Staging(place, reader.source.schema, time=reader.source.time, owner=owner)
                self.staging[operator_name, split] = staging
                reader.split.attach(staging)
                self.keeps_rows = kept is not None

    def _post(self, post_result: PostResult, sink: str) -> Callable[[int, pa.RecordBatch | None], None]:
        return lambda partition, rows: post_result(self.id, sink, partition, rows)

    # --- snapshots -----------------------------------------------------------------------------------------------------

    def _restore(self, store: SnapshotStore, number: int, worker: WorkerId) -> None:
        """Go on from a snapshot, with what is at home here."""
        manifest = store.manifest(number)
        for reader in self.readers:
            if manifest.is_final:
                reader.has_ended = True
                continue
            entry = manifest.sources[place_of_actor(reader.address)]
            assert entry is not None, "no snapshot is taken of a job whose sources have no positions"
            reader.restore(restored_source(entry))
        for spec in self.specs:
            actor = manifest.actors.get(place_of_actor(spec.address))
            if actor is None or spec.home != worker or not actor.head:
                continue
            body = None if actor.body is None else decode(store.read(actor.body))
            captured, kept = restored(actor.head, body, self.id, self._schemas)
            states = spec.states()
            assert isinstance(states, HostedStates)
            states.restore(captured, self._schemas)
            self._restored[spec.address] = states
            self.kept[spec.address] = kept
            if actor.body is not None:
                self.bodies[spec.address] = WrittenBody(states.changes, actor.body)

    def _begin_with(self, savepoint: Beginning, worker: WorkerId) -> None:
        """Go on from the savepoint of another job, with what is at home here."""
        plan = self._job.plan
        saved = SavepointStates(savepoint, plan, self._schemas)
        for reader in self.readers:
            saved.resumption.begin(reader)
        by_address = {spec.address: spec for spec in self.specs}
        for stage in plan.stages:
            for partition, address in enumerate(stage.addresses):
                if by_address[address].home == worker:
                    states = by_address[address].states()
                    assert isinstance(states, HostedStates)
                    self.kept[address] = saved.restore(stage, partition, states)
                    self._restored[address] = states
            saved.forget_read()

    def write_bodies(self, number: int, bodies: Sequence[Sequence[Buffer]]) -> list[BlobRef]:
        """On the thread that writes snapshots."""
        assert self.store is not None
        self._pieces += 1
        return self.store.write_part(number, generation_of(self.id), self._worker, bodies, self._pieces)

    def ended_leaves(self) -> list[Address]:
        """Actors at the end of the graph that had ended before this generation began."""
        return [address for address, states in self._restored.items() if address in self.leaves and states.has_ended()]

    def note_prepared(self, number: int, address: Address, captured: StageCapture) -> None:
        """What a sink's actor has prepared for a snapshot, or at its end: that belongs to the one after its last."""
        if number:
            self._last_cut[address] = number
        if isinstance(self.operators[address], SinkRows) and captured.own is not None:
            prepared = self._prepared.setdefault(address, [])
            prepared.append((number or self._last_cut.get(address, 0) + 1, captured.own))
            del prepared[:-PREPARED_MOST]  # the later ones name all that the earlier ones name

    def commit(self, number: int) -> None:
        """Have the sinks here make visible what belongs to a snapshot. Runs their code."""
        for address, prepared in list(self._prepared.items()):
            belongs = [entry for entry in prepared if entry[0] <= number]
            self._prepared[address] = [entry for entry in prepared if entry not in belongs]
            operator = self.operators[address]
            assert isinstance(operator, SinkRows)
            for _, own in belongs[-1:]:
                operator.commit(own)

    # --- sources -------------------------------------------------------------------------------------------------------

    def next_reader(self, now: float, under_way: int, *, while_messages_wait: bool) -> SourceReader | None:
        """The source that is read next, the furthest behind in event time first; None if none may or has anything.

        ``under_way``: bytes of the job that have left here and have not arrived.
        """
        if not self.is_started or not self.active:
            return None
        best: SourceReader | None = None
        for reader in self.active:
            if self.retry_s.get(reader.address, 0.0) > now or reader.address in self.held:
                continue
            if while_messages_wait and self.turn_s.get(reader.address, 0.0) > now:
                continue
            if self.sources[reader.address].is_waiting():  # for a barrier's acknowledgment: what it emits would pile up
                continue
            if best is None or self._lateness(reader) < self._lateness(best):
                best = reader
        if best is None or not best.holds_others_back:
            return best
        return None if self.budget.is_ahead(best.newest_ms, self._times(), under_way) else best

    def asked_again_at(self) -> list[float]:
        """When each source may be read again, as far as that is up to the source."""
        active = [reader.address for reader in tuple(self.active)] if self.is_started else []
        return [self.retry_s.get(address, 0.0) for address in active if address not in self.held]

    def next_to_end(self) -> SourceReader | None:
        """A source that was asked to end and has not yet."""
        return next((each for each in self.active if self.is_to_end(each)), None)

    def is_to_end(self, reader: SourceReader) -> bool:
        """Whether a source was asked to end and has not yet."""
        is_over = reader.has_ended or reader.address in self.held
        return self.is_started and not is_over and self.should_end(reader)

    def read_on(self) -> None:
        """No source stands at a cut any more."""
        self.stops_at = 0
        self.held.clear()

    def _times(self) -> list[int]:
        """How far in event time those sources are that others wait for."""
        return [reader.newest_ms for reader in self.active if reader.holds_others_back]

    def _lateness(self, reader: SourceReader) -> tuple[int, int]:
        """The furthest behind comes first; a source without time, or an idle one, is as far as the furthest behind."""
        newest = reader.newest_ms if reader.holds_others_back else min(self._times(), default=0)
        return (newest, reader.rows)

    def should_end(self, reader: SourceReader) -> bool:
        if not self.to_end or isinstance(reader.source, PushedSource):  # which ends when all that it has is read
            return False
        return "" in self.to_end or operator_of(reader.target) in self.to_end

    def read(self, reader: SourceReader, rows_max: int, now: float) -> Sequence[Output | CriticalOutput]:
        """Read a batch of a source, or end it. Runs without the lock."""
        if self.should_end(reader):
            outputs: list[Output | CriticalOutput] = []
            reader.end(outputs, now)
            return outputs
        return sealed_outputs(reader.read(rows_max, now), reader.target, self._schemas)

    def note_cost(self, message: RunnableMessage, rows: int, elapsed_s: float) -> None:
        """Learn what rows cost, so that sources cut them into messages that do not take long: no message is interrupted."""
        if not message.critical:
            self.row_costs.learn(message.to, rows, elapsed_s)

    def cut_messages(self, reader: SourceReader, tightest_s: float) -> None:
        """Say how many rows a message may carry, for the sake of the tightest objective of all jobs here."""
        message_s = max(MESSAGE_LEAST_S, MESSAGE_SHARE * tightest_s)
        dearest_s = self.row_costs.dearest_row_s() if tightest_s < inf else 0.0
        reader.message_rows = max(1, int(message_s / dearest_s)) if dearest_s * ROWS_AT_ONCE > message_s else ROWS_AT_ONCE

    def note_read(self, reader: SourceReader, rows_before: int) -> None:
        self.figures.rows_in += reader.rows - rows_before
        if reader.has_ended:
            self.active.remove(reader)
        self.budget.behind_ms = min(self._times(), default=None)
        watermarks = [each.watermark for each in self.readers if not each.has_ended]
        self.figures.watermark_ms = min(watermarks, default=None)

    def end_source(self, source: str | None) -> None:
        """Have a source end, or all of them. One that takes rows from outside first gives what it has."""
        for (name, _), staging in self.staging.items():
            if source in (None, name):
                with self._staging_lock:
                    staging.end()
        self.to_end.add(source or "")

    # --- rows from outside ---------------------------------------------------------------------------------------------

    def stage(self, header: StagingHeader, frames: Sequence[bytes]) -> StagingAck:
        """Rows have come that wait for their commit."""
        staging = self.staging.get((header.source, header.split))
        if staging is None:
            return StagingAck(header.attempt, header.number, f"this worker does not read split {header.split}; try again.")
        with self._staging_lock:
            return staging.receive(header, frames)

    def release(self, order: Release) -> Released:
        """A commit: "released", "known" if it was before, or "full" while what was released earlier is still being read."""
        query, batch = order.query, order.batch
        by_split: dict[int, list[str]] = {}
        for split, attempt in order.attempts:
            by_split.setdefault(split, []).append(attempt)
        with self._staging_lock:
            places = {split: self.staging[order.source, split] for split in by_split}
            try:
                if not order.whole and any(place.queued_bytes() > self.budget.limit for place in places.values()):
                    outcome = "full"
                else:
                    for split, its in by_split.items():  # all of them or none, but for a disk that is full
                        places[split].check(query, batch, its)
                    fresh = [places[split].release(query, batch, its) for split, its in by_split.items()]
                    outcome = "released" if any(fresh) else "known"
            except StagingError as error:
                outcome = str(error)
            has_begun = any(place.has_released(query, batch) for place in places.values())
        return Released(order.request, outcome, has_begun)

    def note_captured(self, number: int, reader: SourceReader, position: Any) -> None:
        """A snapshot that is under way goes on from this position of a source."""
        staging = self.staging.get((operator_of(reader.target), partition_of(reader.target)))
        first = staging.next_number if staging is not None else None
        if first is not None:
            place = operator_of(reader.target), partition_of(reader.target)
            self._covered.setdefault(number, {})[place] = first if position is None else position[0]

    def covered_rows(self, number: int) -> Callable[[], None]:
        """A snapshot was committed, so rows before it are not read again: what is to be done on the disk."""
        covered = self._covered.get(number, {})
        self._covered = {each: firsts for each, firsts in self._covered.items() if each > number}

        def forget() -> None:
            for place, first in covered.items():
                with self._staging_lock:
                    self.staging[place].forget_before(first)

        return forget

    def refresh(self) -> None:
        """Bring figures up to date that are not kept all the time."""
        self.figures.rows_out = self.figures.account.results
        self.figures.messages = self.figures.account.messages
        self.figures.queued_bytes = self.budget.queued
        self.figures.state_bytes = self.budget.state_bytes
        self.figures.late_rows = sum(self._job.plan.late_rows_dropped.values())
        self.figures.paused = self.is_paused

    def close(self) -> None:
        """Let go of what waits here. Sources run the user's code when they are closed: see ``close_ends``."""
        with self._staging_lock:
            for staging in self.staging.values():
                staging.close()

    def close_ends(self) -> None:
        """Close the sources, have sinks let go, and forget states: on the thread that runs the job's code."""
        for reader in self.readers:
            with suppress(Exception):
                reader.split.close()
        if self.goes_on:
            self._job.let_go_sinks()
        else:
            self._job.abandon_sinks()
        self.remains.clear()


def partition_of(address: Address) -> int:
    return int(address.rsplit("/", 1)[1])
