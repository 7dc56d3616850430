"""How jobs come back: after the loss of a worker, and after the end of a service that did not end in order.

A job goes on from its last snapshot as the next generation: what the one before holds anywhere is forgotten, the results
log is cut back, and the job is placed on the workers that are ready now. Jobs that had nothing at the lost worker notice
nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from dirigo.errors import DirigoError
from dirigo.flow.errors import said
from dirigo.kernel import operator_of
from dirigo.runtime import control
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.controller.snapshots import JobSnapshots, snapshot_figures
from dirigo.runtime.ingest.decisions import Decisions
from dirigo.runtime.ingest.kept import rows_folder
from dirigo.runtime.results.log.errors import LogError
from dirigo.runtime.results.shelf import number_of
from dirigo.runtime.snapshots.errors import SnapshotError
from dirigo.runtime.snapshots.manifest import SnapshotManifest, StoredJob
from dirigo.runtime.snapshots.store import SnapshotStore, prepare_folder, stored_jobs

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller

_log = logging.getLogger(__name__)

SUBMIT_AGAIN = "; submit the job again."  # what is told of a loss, where a job does not come back by itself
_DECISIONS = "decisions"
LOSSES_MOST = 3  # in a row, each soon after the one before: see ``STEADY_AFTER_S``


class ResumableJob(msgspec.Struct, frozen=True):
    """What is needed to begin a job again, by a service that has never heard of it."""

    id: str
    name: str
    manifest: control.Manifest
    shipment: bytes
    budget_bytes: int
    strategy: bytes
    strategy_name: str
    submitted_s: float
    every_s: float
    generation: int
    recoveries: int
    beginning: control.Beginning | None = None
    to_drain: tuple[str | None, ...] = ()  # sources that were asked to end; None for all


_decoder = msgspec.msgpack.Decoder(ResumableJob)


class Recovery:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller, root: str | None) -> None:
        self._controller = controller
        self._root = root

    def recover(self, job: JobRecord, why: str, culprit: str | None = None) -> None:
        """A job has lost a part of itself: have it go on from its last snapshot, or fail. ``culprit``: the actor of it that
        was executing at the worker which was lost."""
        controller = self._controller
        if not job.is_live or job.outcome is not None:
            return
        snapshots = job.snapshots
        if snapshots is None:
            controller.fail(job.id, why, None)
            return
        job.losses_in_row += 1
        job.last_culprit = culprit or job.last_culprit
        if job.losses_in_row > LOSSES_MOST:
            whose = f", where operator '{operator_of(job.last_culprit)}' was executing" if job.last_culprit else ""
            controller.fail(
                job.id,
                f"it has lost a worker {LOSSES_MOST + 1} times, each time soon after it had come back{whose}; "
                f"the last time: {why}",
                None,
            )
            return
        _log.warning("job %s goes on from its last snapshot: %s", job.id, why.removesuffix(SUBMIT_AGAIN))
        job.recoveries += 1
        job.recovering_since_s = time.monotonic()
        self.take_back(job, [slot.worker for slot in controller.slots.values() if slot.is_there])

    def note_culprit(self, culprit: str | None) -> None:
        """What a process was doing when it ended is known only now, from the one in its place."""
        job = None if culprit is None else self._controller.owner_of(culprit)
        if job is not None and job.losses_in_row:
            job.last_culprit = culprit

    def take_back(self, job: JobRecord, workers: Iterable[int]) -> None:
        """Have a job placed anew, as its next generation. These workers may know of the one before."""
        snapshots = job.snapshots
        self._controller.order_all(workers, control.Remove(job.run, goes_on=snapshots is not None))
        job.take_back()
        if snapshots is not None:
            snapshots.forget()
            self._find_snapshot(job, snapshots)
        elif job.manifest.sinks:  # nothing has come of it yet
            self._controller.logs.roll_back(job.id, None, job.run, {})

    def _find_snapshot(self, job: JobRecord, snapshots: JobSnapshots) -> None:
        """Look, elsewhere, for the last snapshot that is whole; then the job is placed."""
        job.is_restoring = True
        run, store, stored = job.run, snapshots.store, _stored(job, snapshots)
        may_go_behind = not _shows_results(job)

        def find() -> Callable[[], None]:
            try:
                manifest = _newest(store, stored, may_go_behind=may_go_behind)
            except Exception as error:
                problem = str(error) if isinstance(error, DirigoError) else said(error)
                return lambda: self._not_found(run, problem)
            return lambda: self._restore(run, manifest)

        self._controller.beside(find)

    def _not_found(self, run: str, problem: str) -> None:
        job = self._controller.of_run(run)
        if job is not None:
            self._controller.fail(job.id, f"it lost a worker, and its snapshots cannot be read: {problem}", None)

    def _restore(self, run: str, manifest: SnapshotManifest | None) -> None:
        controller = self._controller
        job = controller.of_run(run)
        if job is None or job.snapshots is None or job.outcome is not None:
            return
        snapshots = job.snapshots
        snapshots.last_manifest = manifest
        snapshots.last = None if manifest is None else snapshot_figures(manifest)
        job.restore = 0
        ended: dict[str, set[int]] = {sink: set() for sink in job.manifest.sinks}
        if manifest is not None:
            job.restore = manifest.number
            snapshots.number = max(snapshots.number, manifest.number)
            snapshots.ended = {place: entry for place, entry in manifest.actors.items() if entry.ended}
            for place in snapshots.ended:
                sink, _, partition = place.rpartition("/")
                if sink in ended:
                    ended[sink].add(int(partition))
        cuts = manifest.logs if manifest is not None else None
        logs = controller.logs
        try:
            if job.manifest.sinks:
                (logs.resume if job.is_resumed else logs.roll_back)(job.id, cuts, run, ended)
        except LogError as error:
            controller.fail(job.id, str(error), None)
            return
        job.is_restoring = job.is_resumed = False
        if controller.is_running:
            controller.place_waiting()

    # --- a service that comes back -------------------------------------------------------------------------------------

    def begin(self, job: JobRecord, every_s: float) -> None:
        """Take snapshots of a job from now on."""
        assert self._root is not None
        job.snapshots = snapshots = JobSnapshots(self._root, SnapshotStore(self._root, job.id), every_s)
        store, stored = snapshots.store, _stored(job, snapshots)
        run = job.run

        def write() -> Callable[[], None]:
            try:
                store.prepare()
                store.write_job(stored)
            except Exception as error:
                problem = str(error) if isinstance(error, DirigoError) else said(error)
                return lambda: self._not_begun(run, problem)
            return _nothing

        self._controller.beside(write)

    def prepare_rows(self, job: JobRecord) -> str | None:
        """Have a place for the rows that are pushed into a job; or why and where there is none. Waits for a disk."""
        if not job.manifest.pushed:
            return None
        assert self._root is not None
        place = SnapshotStore(self._root, job.id).place
        folder = rows_folder(place)
        if folder is None:
            return f"in {place.shown}, which is no folder of a file system"
        try:
            place.make()
            job.decisions = Decisions(folder / _DECISIONS)
        except SnapshotError as error:
            return f"in {place.shown}: {error}".rstrip(".")
        except (OSError, ValueError) as error:
            return f"in {place.shown}: {said(error)}"
        return None

    def give_up_rows(self, job: JobRecord) -> None:
        """A job is refused after all: the place for its rows goes."""
        if job.decisions is None or self._root is None:
            return
        store = SnapshotStore(self._root, job.id)

        def remove() -> Callable[[], None]:
            try:
                store.remove()
            except Exception as error:
                _log.warning("the folder of job %s, which was refused, cannot be removed: %s", job.id, error)
            return _nothing

        self._controller.beside(remove)

    def note_drain(self, job: JobRecord) -> None:
        """Sources were asked to end: a service that resumes the job has to know, because nobody asks again."""
        snapshots = job.snapshots
        if snapshots is None:
            return
        store, stored = snapshots.store, _stored(job, snapshots)

        def write() -> Callable[[], None]:
            try:
                store.write_job(stored)
            except Exception as error:
                _log.warning(
                    "if job %s is resumed by another service, its sources have to be ended again: %s", job.id, error
                )
            return _nothing

        self._controller.beside(write)

    def _not_begun(self, run: str, problem: str) -> None:
        job = self._controller.of_run(run)
        if job is not None and job.snapshots is not None:
            _log.warning("job %s: %s", job.id, problem)
            job.snapshots.problem = problem

    def resume_all(self) -> None:
        """Go on with the jobs of a service that died: called once, before anything else."""
        if self._root is None:
            return
        submissions = self._controller.submissions
        try:
            prepare_folder(self._root)
            found = stored_jobs(self._root)
        except DirigoError as error:
            _log.warning("no jobs can be resumed: %s", error)
            return
        for job_id in sorted(found, key=number_of):
            submissions.count = max(submissions.count, number_of(job_id))  # the snapshots of a failed job are its own
            try:
                stored = SnapshotStore(self._root, job_id).read_job()
                if stored is not None:
                    self._resume(_decoder.decode(stored.content))
            except (DirigoError, msgspec.DecodeError) as error:
                _log.warning("job %s cannot be resumed: what is kept of it cannot be read (%s)", job_id, error)

    def _resume(self, stored: ResumableJob) -> None:
        assert self._root is not None
        controller = self._controller
        job = JobRecord(
            stored.id,
            stored.name,
            stored.manifest,
            stored.shipment,
            stored.budget_bytes,
            stored.strategy,
            stored.strategy_name,
            stored.submitted_s,
        )
        job.beginning = stored.beginning
        job.generation, job.recoveries = stored.generation + 1, stored.recoveries + 1
        job.recovering_since_s = time.monotonic()
        job.logs_ended = not stored.manifest.sinks
        job.snapshots = JobSnapshots(self._root, SnapshotStore(self._root, job.id), stored.every_s)
        job.is_resumed = True
        job.to_drain = list(stored.to_drain)
        if (problem := self.prepare_rows(job)) is not None:
            raise SnapshotError(f"The rows of job '{job.id}' cannot be kept {problem}.")
        stored_again = _stored(job, job.snapshots)
        manifest = _newest(job.snapshots.store, stored_again, may_go_behind=not _shows_results(job))
        controller.submissions.adopt(job)
        self._restore(job.run, manifest)
        _log.info("job %s is resumed from snapshot %d", job.id, job.restore)

    def forget(self, job: JobRecord) -> None:
        """A job is over: nobody is to resume it. What a failed one has come to stays, to be looked at.

        One that failed because the service cannot go on is resumed by the next service."""
        snapshots = job.snapshots
        if snapshots is None or (job.outcome == "failed" and self._controller.failure is not None):
            return
        store, stays = snapshots.store, job.outcome == "failed"

        def remove() -> Callable[[], None]:
            try:
                store.forget_job() if stays else store.remove()
            except Exception as error:
                _log.warning("the snapshots of job %s cannot be removed: %s", job.id, error)
            return _nothing

        self._controller.beside(remove, is_long=bool(snapshots.copied))  # behind the copies that read it


def _stored(job: JobRecord, snapshots: JobSnapshots) -> StoredJob:
    content = ResumableJob(
        job.id,
        job.name,
        job.manifest,
        job.shipment,
        job.budget_bytes,
        job.strategy,
        job.strategy_name,
        job.submitted_s,
        snapshots.every_s,
        job.generation,
        job.recoveries,
        job.beginning,
        tuple(job.to_drain),
    )
    return StoredJob(job=job.id, name=job.name, began_s=job.submitted_s, content=msgspec.msgpack.encode(content))


def _shows_results(job: JobRecord) -> bool:
    """Whether somebody may have seen what the last snapshot has committed."""
    return bool(job.manifest.sinks or job.manifest.promises_once)


def _newest(store: SnapshotStore, stored: StoredJob, *, may_go_behind: bool) -> SnapshotManifest | None:
    """The last snapshot of a job that is whole; of those that are damaged, results may have been seen."""
    complaints: list[str] = []
    store.write_job(stored)  # so that no later service uses this generation again
    manifest = store.newest(complaints)
    for complaint in complaints:
        _log.warning("job %s: %s", stored.job, complaint)
    if complaints and not may_go_behind:
        raise SnapshotError(
            f"{complaints[0]} Results up to it have been shown, and would come twice if the job went on from the snapshot "
            "before it; remove them, and submit the job again."
        )
    return manifest


def _nothing() -> None:
    """Nothing is left to do."""
