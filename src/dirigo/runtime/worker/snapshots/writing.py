"""The thread of a worker that brings captures to the disk: no barrier, and no function, waits for it.

What comes while it writes is written together next: one file, and one wait for the disk, for all of it. Small states are
part of the report, and of the manifest, and need no file at all.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dirigo.errors import DirigoError
from dirigo.flow.errors import said
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.states import StageCapture
from dirigo.flow.sources.reader import ReaderCapture
from dirigo.kernel import Address, Kept
from dirigo.runtime import control
from dirigo.runtime.snapshots.codec import encode
from dirigo.runtime.snapshots.manifest import ActorEntry
from dirigo.runtime.snapshots.places import Buffer
from dirigo.runtime.threads import ServiceThread
from dirigo.runtime.worker.snapshots.captures import WrittenBody, actor_head, place_of_actor, source_entry

if TYPE_CHECKING:
    from dirigo.runtime.worker.installed_job import InstalledJob

_log = logging.getLogger(__name__)
INLINE_BYTES_MOST = 4096
GAVE_WAY = "it gave way to a SYNC_ONE of the job, or an operator could not be captured"


@dataclass(frozen=True)
class SourceCapture:
    """Where a split is."""

    job: InstalledJob
    number: int
    source: Address
    captured: ReaderCapture


@dataclass(frozen=True)
class ActorCapture:
    """What an actor keeps; of one that has ended, without a number."""

    job: InstalledJob
    number: int
    actor: Address
    captured: StageCapture | DirigoError
    kept: Kept
    changes: int


@dataclass(frozen=True)
class VoidSnapshot:
    """There will be no such snapshot."""

    job: InstalledJob
    number: int


Capture = SourceCapture | ActorCapture | VoidSnapshot


@dataclass
class _Part:
    """What is written of one snapshot of one job at a time."""

    splits: dict[str, bytes] = field(default_factory=dict)
    actors: dict[str, ActorEntry] = field(default_factory=dict)
    problem: str | None = None
    bodies: list[tuple[ActorCapture, Sequence[Buffer], bytes]] = field(default_factory=list)


class SnapshotWriting:
    """Captures go in, reports to the controller come out."""

    def __init__(self, report: Callable[[control.FromWorker], None]) -> None:
        self._report = report
        self._waiting: deque[Capture] = deque()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._thread: ServiceThread | None = None

    def put(self, capture: Capture) -> None:
        """Called by the worker thread."""
        with self._wake:
            self._waiting.append(capture)
            if self._thread is None:
                self._thread = ServiceThread(self._run, name="snapshots", on_escape=_log.critical)
                self._thread.start()
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._is_stopping:
                    self._wake.wait()
                if self._is_stopping:
                    return
                taken = list(self._waiting)
                self._waiting.clear()
            by_snapshot: defaultdict[tuple[str, int], list[Capture]] = defaultdict(list)
            for capture in taken:
                by_snapshot[capture.job.id, capture.number].append(capture)
            for (_, number), captures in by_snapshot.items():
                self._bring(captures[0].job, number, captures)

    def _bring(self, job: InstalledJob, number: int, captures: list[Capture]) -> None:
        """To the disk, and then tell of it."""
        try:
            report = self._written(job, number, captures)
        except Exception as error:  # a folder may fail in any way, and a sink is somebody's code
            sentence = str(error) if isinstance(error, DirigoError) else said(error)
            _log.warning("snapshot %d of job %s cannot be written: %s", number, job.id, sentence)
            report = control.Captured(job.id, number, problem=sentence)
        self._report(report)
        ended = [each.actor for each in captures if isinstance(each, ActorCapture) and not number]
        for address in ended if report.problem is None else ():
            self._report(control.ActorEnded(job.id, address))

    def _written(self, job: InstalledJob, number: int, captures: list[Capture]) -> control.Captured:
        part = _Part()
        for capture in captures:
            if isinstance(capture, VoidSnapshot):
                part.problem = part.problem or GAVE_WAY  # which is why, if nobody knows better
            elif isinstance(capture, SourceCapture):
                part.splits[place_of_actor(capture.source)] = source_entry(capture.captured)
            elif isinstance(capture.captured, DirigoError):
                part.problem = str(capture.captured)
            else:
                self._take(job, capture, capture.captured, part)
        written = 0
        if part.bodies and part.problem is None:
            refs = job.write_bodies(number, [buffers for _, buffers, _ in part.bodies])
            for (capture, _, digest), ref in zip(part.bodies, refs, strict=True):
                assert isinstance(capture.captured, StageCapture)
                written += ref.length
                job.bodies[capture.actor] = WrittenBody(capture.changes, ref, digest)
                head = actor_head(capture.captured.head, capture.kept)
                part.actors[place_of_actor(capture.actor)] = ActorEntry(head, ref, not number)
        is_void = part.problem == GAVE_WAY
        return control.Captured(job.id, number, part.splits, part.actors, written, part.problem, is_void)

    def _take(self, job: InstalledJob, capture: ActorCapture, captured: StageCapture, part: _Part) -> None:
        place, own = place_of_actor(capture.actor), captured.own
        operator = job.operators[capture.actor]
        if isinstance(operator, SinkRows):
            operator.sync(own)
        known = job.bodies.get(capture.actor)
        if own is None:
            job.bodies.pop(capture.actor, None)  # no manifest names it any more, and then its file goes
            part.actors[place] = ActorEntry(actor_head(captured.head, capture.kept), None, not capture.number)
        elif known is not None and known.changes == capture.changes and place not in job.rewrite:
            part.actors[place] = ActorEntry(actor_head(captured.head, capture.kept), known.ref, not capture.number)
        else:
            self._take_changed(job, capture, captured, part)

    def _take_changed(self, job: InstalledJob, capture: ActorCapture, captured: StageCapture, part: _Part) -> None:
        """What may have changed. Time moves many states without changing them, so what is there already is recognised."""
        place, known = place_of_actor(capture.actor), job.bodies.get(capture.actor)
        buffers = encode(captured.own)
        if sum(memoryview(each).nbytes for each in buffers) <= INLINE_BYTES_MOST:
            job.bodies.pop(capture.actor, None)
            inline = b"".join(buffers)
            part.actors[place] = ActorEntry(actor_head(captured.head, capture.kept, inline), None, not capture.number)
            return
        digest = digest_of(buffers)
        if known is not None and known.digest == digest and place not in job.rewrite:
            job.bodies[capture.actor] = known._replace(changes=capture.changes)
            part.actors[place] = ActorEntry(actor_head(captured.head, capture.kept), known.ref, not capture.number)
        else:
            part.bodies.append((capture, buffers, digest))


def digest_of(buffers: Sequence[Buffer]) -> bytes:
    """Equal for equal bytes only. Other threads go on meanwhile."""
    digest = hashlib.blake2b(digest_size=32)
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()
