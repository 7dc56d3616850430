"""Snapshots of jobs: when one is due, what of it has come, and when it is there.

The sources of a job are asked to let a barrier follow what they have given; workers report what each actor kept when the
barrier had come to it. When all of it is on disk, the manifest is written, on a thread of its own, and from then on the
snapshot counts: the results log shows its rows, and sinks commit. One snapshot of a job is taken at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dirigo.errors import DirigoError
from dirigo.flow.errors import said
from dirigo.runtime import control
from dirigo.runtime.controller.savepoints import LOST_AT_THE_END, Savepoints, WantedSavepoint
from dirigo.runtime.snapshots.manifest import ActorEntry, SnapshotManifest
from dirigo.runtime.snapshots.savepoint import copy_to
from dirigo.runtime.snapshots.store import SnapshotStore

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller
    from dirigo.runtime.controller.job_record import JobRecord

_log = logging.getLogger(__name__)

KEPT = 3  # snapshots of each job
LONG_S = 10.0  # a snapshot that takes longer says so in the job's status
# Snapshots get ever closer to a row that ends its worker's process, and then one is taken before it each time. So only a job
# that has gone on for this long counts as one that has come back.
STEADY_AFTER_S = 2.0
# Results are shown with snapshots. Whoever has waited for a job to come back is not to wait for the usual time once more.
FIRST_AFTER_S = 0.2
# Who reads a state has so long for it. Of the snapshots that are read, only a few are held: those asked for last.
HELD_S = 60.0
HELD_MOST = 5
AGAIN_AFTER_S = 1.0  # one that came to nothing; less if the next one is due anyway


@dataclass
class Taking:
    """A snapshot under way."""

    number: int
    began_s: float  # by the time of day
    since_s: float  # by the monotonic clock
    is_final: bool = False  # the job has ended: this is what its sinks have to commit
    splits: dict[str, bytes] = field(default_factory=dict)
    actors: dict[str, ActorEntry] = field(default_factory=dict)
    logs: dict[str, int] | None = None  # where the results logs are cut
    written_bytes: int = 0
    is_kept: bool = False  # all of it has come, and the manifest is being written
    is_there: bool = False  # the manifest is written
    fresh: list[Callable[[int], None]] = field(default_factory=list)  # who is told its number when it is there
    to_commit: set[int] = field(default_factory=set)  # workers whose sinks have still to make it visible; at the end only
    stops: bool = False  # sources are read no further: a savepoint of this ends the job
    copying: list[WantedSavepoint] = field(default_factory=list)  # that are to end the job once they are copied
    saved: list[WantedSavepoint] = field(default_factory=list)  # which are complete by now


@dataclass
class JobSnapshots:
    """What the controller knows of the snapshots of one job."""

    root: str
    store: SnapshotStore
    every_s: float
    number: int = 0  # of the last one that was begun
    due_s: float = 0.0
    taking: Taking | None = None
    last: control.SnapshotFigures | None = None  # the last one that is there
    last_manifest: SnapshotManifest | None = None
    ended: dict[str, ActorEntry] = field(default_factory=dict)  # actors that get no barrier any more
    rewrite: tuple[str, ...] = ()  # places of actors whose states lie in files that are kept for little
    problem: str | None = None  # why the last one came to nothing
    savepoints: list[WantedSavepoint] = field(default_factory=list)
    fresh: list[Callable[[int], None]] = field(default_factory=list)  # who waits for one that begins from now on
    not_before_s: float = 0.0  # after one that came to nothing, another is not begun for somebody who waits
    held: dict[int, float] = field(default_factory=dict)  # snapshots that are read -> until when they stay
    copied: set[int] = field(default_factory=set)  # those of which a savepoint is being made

    def plan_first(self, now: float, *, is_back: bool) -> None:
        """A generation begins to run."""
        self.due_s = now + (min(FIRST_AFTER_S, self.every_s) if is_back else self.every_s)

    def forget(self) -> None:
        """A generation is over: what was under way is void."""
        self.wait_on()
        taking, self.taking = self.taking, None
        for wanted in taking.saved if taking is not None else ():
            wanted.tell(LOST_AT_THE_END)
        self.ended.clear()

    def wait_on(self) -> None:
        """Who waits for the snapshot that is under way gets the next one."""
        if self.taking is not None:
            self.fresh += self.taking.fresh
            self.taking.fresh = []

    def wants_one(self, now: float) -> bool:
        return now >= self.due_s or (bool(self.savepoints or self.fresh) and now >= self.not_before_s)

    def hold(self, number: int) -> None:
        """Have a snapshot stay for a while, since somebody reads it."""
        self.held.pop(number, None)  # so that it is the last one in the dict
        self.held[number] = time.monotonic() + HELD_S
        for longest in list(self.held)[:-HELD_MOST]:
            del self.held[longest]

    def held_now(self) -> set[int]:
        now = time.monotonic()
        self.held = {number: until_s for number, until_s in self.held.items() if now < until_s}
        return self.copied | set(self.held)


class Snapshots:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.savepoints = Savepoints(controller)

    def look(self, now: float) -> None:
        """Begin what is due."""
        for job in self._controller.jobs.values():
            snapshots = job.snapshots
            if snapshots is None or job.state not in ("running", "draining") or job.outcome is not None:
                continue
            if snapshots.taking is None and snapshots.wants_one(now) and not job.is_complete:
                self._begin(job, snapshots, now)
            taking = snapshots.taking
            if taking is None and job.is_complete:  # the snapshot that was under way at its end came to nothing
                self._controller.look_for_the_end(job)
            if taking is not None and not taking.is_there and now - taking.since_s >= LONG_S:
                snapshots.problem = (
                    f"snapshot {taking.number} has taken {now - taking.since_s:.0f} s so far: "
                    f"{self.missing(job, snapshots, taking)}"
                )
            if taking is not None and taking.is_final:  # the results log may be all that was missing
                self._controller.look_for_the_end(job)
            elif taking is not None and taking.saved:
                self.savepoints.look_for_the_stop(job)

    def _begin(self, job: JobRecord, snapshots: JobSnapshots, now: float) -> None:
        snapshots.number += 1
        stops = any(wanted.stops for wanted in snapshots.savepoints)
        snapshots.taking = Taking(snapshots.number, time.time(), now, stops=stops)
        snapshots.taking.fresh, snapshots.fresh = snapshots.fresh, []
        order = control.TakeSnapshot(job.run, snapshots.number, snapshots.rewrite, stops)
        self._controller.order_all(job.workers, order)

    def missing(self, job: JobRecord, snapshots: JobSnapshots, taking: Taking) -> str:
        if taking.is_kept:
            return f"its manifest is being written to {snapshots.store.place.shown}"
        splits = job.manifest.splits - len(taking.splits)
        actors = job.manifest.partitions - len(taking.actors.keys() | snapshots.ended.keys())
        logs = "" if taking.logs is not None or not job.manifest.sinks else ", and of the results log"
        return f"the captures of {splits} sources and {actors} actors are missing{logs}"

    # --- what comes ----------------------------------------------------------------------------------------------------

    def captured(self, job: JobRecord, record: control.Captured) -> None:
        snapshots = job.snapshots
        if snapshots is None:
            return
        taking = snapshots.taking
        if not record.number and record.problem is not None:  # of an actor that has ended
            self._controller.fail(job.id, f"the last results cannot be kept: {record.problem}", None)
        elif not record.number:
            snapshots.ended.update(record.actors)
        elif taking is None or taking.number != record.number:
            if record.problem is not None and not record.is_void and record.number == snapshots.number:
                snapshots.problem = _not_taken(record.number, record.problem)  # others only knew that it came to nothing
                self.savepoints.refuse_all(job, snapshots.problem)
            return
        elif record.problem is not None:
            self._give_up(job, snapshots, record.problem, is_void=record.is_void)
        else:
            taking.splits.update(record.splits)
            taking.actors.update(record.actors)
            taking.written_bytes += record.written_bytes
        self._look_at(job, snapshots)

    def actor_ended(self, job: JobRecord, place: str) -> None:
        """An actor has ended that keeps nothing any more."""
        if job.snapshots is not None:
            job.snapshots.ended.setdefault(place, ActorEntry(b"", None, True))
            self._look_at(job, job.snapshots)

    def logs_cut(self, job: JobRecord, number: int, cuts: dict[str, int]) -> None:
        snapshots = job.snapshots
        if snapshots is not None and snapshots.taking is not None and snapshots.taking.number == number:
            snapshots.taking.logs = cuts
            self._look_at(job, snapshots)

    def logs_ended(self, job: JobRecord) -> None:
        """All results of a job are on disk: a snapshot under way may have waited for just that."""
        if job.snapshots is not None:
            self._look_at(job, job.snapshots)

    def _give_up(self, job: JobRecord, snapshots: JobSnapshots, problem: str, *, is_void: bool = False) -> None:
        """There will be no such snapshot; the one before it stays the last one. After a void one the next may be there."""
        assert snapshots.taking is not None
        snapshots.wait_on()
        number, snapshots.taking = snapshots.taking.number, None
        snapshots.problem = _not_taken(number, problem)
        snapshots.due_s = snapshots.not_before_s = time.monotonic() + min(AGAIN_AFTER_S, snapshots.every_s)
        if not is_void:
            self.savepoints.refuse_all(job, snapshots.problem)

    def _look_at(self, job: JobRecord, snapshots: JobSnapshots) -> None:
        """See whether all has come."""
        taking = snapshots.taking
        if taking is None or taking.is_kept or job.outcome is not None:
            return
        if taking.logs is None and job.logs_ended:  # nobody who could post a cut was left, so the logs' end is the cut
            taking.logs = self._controller.logs.cuts(job.id, taking.number)
        has_actors = len(taking.actors.keys() | snapshots.ended.keys()) >= job.manifest.partitions
        has_logs = taking.logs is not None or not job.manifest.sinks
        if not (has_actors and has_logs and len(taking.splits) >= job.manifest.splits):
            return
        self._keep(job, snapshots, taking)

    # --- the manifest --------------------------------------------------------------------------------------------------

    def _keep(self, job: JobRecord, snapshots: JobSnapshots, taking: Taking) -> None:
        """Write the manifest, elsewhere; the snapshot is there when it is."""
        taking.is_kept = True
        actors = snapshots.ended | taking.actors
        duration_s = time.monotonic() - taking.since_s
        manifest = SnapshotManifest(
            job=job.id,
            name=job.name,
            number=taking.number,
            generation=job.generation,
            began_s=taking.began_s,
            duration_s=duration_s,
            written_bytes=taking.written_bytes + sum(len(entry.head) for entry in actors.values()),
            total_bytes=sum(len(entry.head) + (entry.body.length if entry.body else 0) for entry in actors.values()),
            is_final=taking.is_final,
            sources=dict(taking.splits),
            actors=actors,
            logs=taking.logs or {},
            plan=job.manifest.plan,
        )
        run, store = job.run, snapshots.store

        def keep() -> Callable[[], None]:
            try:
                store.write_manifest(manifest)
            except Exception as error:
                problem = str(error) if isinstance(error, DirigoError) else said(error)
                return lambda: self._not_kept(run, taking, problem)
            return lambda: self._kept(run, taking, manifest)

        self._controller.beside(keep)

    def _not_kept(self, run: str, taking: Taking, problem: str) -> None:
        job = self._controller.of_run(run)
        if job is None or job.snapshots is None or job.snapshots.taking is not taking or job.outcome is not None:
            return
        if taking.is_final:
            self._controller.fail(job.id, f"the last results cannot be committed: {problem}", None)
        else:
            _log.warning("snapshot %d of job %s cannot be kept: %s", taking.number, job.id, problem)
            self._give_up(job, job.snapshots, problem)

    def _kept(self, run: str, taking: Taking, manifest: SnapshotManifest) -> None:
        """The snapshot is on disk: from now on the job never goes back behind it."""
        job = self._controller.of_run(run)
        if job is None or job.snapshots is None or job.snapshots.taking is not taking or job.outcome is not None:
            return
        snapshots = job.snapshots
        snapshots.problem = None
        snapshots.last_manifest = manifest
        snapshots.last = snapshot_figures(manifest)
        for tell in taking.fresh:
            tell(manifest.number)
        snapshots.due_s = taking.since_s + snapshots.every_s
        if taking.since_s - job.runs_since_s >= STEADY_AFTER_S:
            job.losses_in_row = 0
            job.last_culprit = None
        if job.manifest.sinks:
            self._controller.logs.commit(job.id, manifest.number)
        self._controller.order_all(job.installed, control.CommitSnapshot(job.run, manifest.number))
        if taking.is_final:
            taking.to_commit = set(job.workers)  # the sinks' actors are at home there; others may come and go
        elif taking.stops:
            taking.is_there, taking.to_commit = True, set(job.workers)
        else:
            snapshots.taking = None
        self._tidy(job, snapshots, taking, manifest)
        self._controller.look_for_the_end(job)

    def _tidy(self, job: JobRecord, snapshots: JobSnapshots, taking: Taking, manifest: SnapshotManifest) -> None:
        """Have what was asked for copied as a savepoint, and remove snapshots that nobody goes back to."""
        self._copy(job, snapshots, taking, manifest)
        run, store, held = job.run, snapshots.store, snapshots.held_now()

        def tidy() -> Callable[[], None]:
            rewrite: tuple[str, ...] = ()
            try:
                store.retain(KEPT, held)
                rewrite = tuple(sorted(store.worth_rewriting(manifest)))
            except Exception as error:  # next time, perhaps
                _log.warning("old snapshots of job %s cannot be removed: %s", run, error)

            def done() -> None:
                if (now := self._controller.of_run(run)) is not None and now.snapshots is not None:
                    now.snapshots.rewrite = rewrite

            return done

        self._controller.beside(tidy)

    def _copy(self, job: JobRecord, snapshots: JobSnapshots, taking: Taking, manifest: SnapshotManifest) -> None:
        """Make savepoints of a snapshot, which stays meanwhile. No manifest, and no job that comes back, waits for that."""
        run, store = job.run, snapshots.store
        savepoints = [wanted for wanted in snapshots.savepoints if wanted.after < manifest.number]
        if not savepoints and not taking.stops:
            return
        snapshots.savepoints = [wanted for wanted in snapshots.savepoints if wanted not in savepoints]
        snapshots.copied.add(manifest.number)
        taking.copying = [wanted for wanted in savepoints if wanted.stops]

        def is_wanted() -> bool:  # whoever waits has been told that the service ends, which waits for what is done here
            return not self._controller.is_stopping

        def copy() -> Callable[[], None]:
            outcomes: list[tuple[WantedSavepoint, str | None]] = []
            for wanted in savepoints:
                try:
                    copy_to(store, manifest, wanted.place, is_wanted)
                    outcomes.append((wanted, None))
                except Exception as error:
                    outcomes.append((wanted, str(error) if isinstance(error, DirigoError) else said(error)))

            def done() -> None:
                snapshots.copied.discard(manifest.number)
                self.savepoints.note_copied(run, taking, outcomes)

            return done

        self._controller.beside(copy, is_long=True)

    # --- the end -------------------------------------------------------------------------------------------------------

    def finish(self, job: JobRecord) -> bool:
        """All of a job has ended: whether its last snapshot is committed, which is begun here."""
        snapshots = job.snapshots
        if snapshots is None:
            return True
        if snapshots.taking is None:
            snapshots.number += 1
            snapshots.taking = Taking(snapshots.number, time.time(), time.monotonic(), is_final=True)
            snapshots.taking.logs = self._controller.logs.cuts(job.id, snapshots.number) if job.manifest.sinks else {}
            self._keep(job, snapshots, snapshots.taking)
            return False
        taking = snapshots.taking
        is_committed = taking.is_final and _is_last(snapshots) and not taking.to_commit
        return is_committed and self._controller.logs.is_shown(job.id)  # who waits for the end reads all

    def committed(self, job: JobRecord, worker: int, number: int) -> None:
        """The sinks at a worker have made a snapshot visible."""
        taking = job.snapshots.taking if job.snapshots is not None else None
        if taking is None or taking.number != number:
            return
        taking.to_commit.discard(worker)
        if taking.is_final:
            self._controller.look_for_the_end(job)
        elif taking.saved:
            self.savepoints.look_for_the_stop(job)

    def job_ended(self, job: JobRecord) -> None:
        """Whoever waits for a savepoint of it waits in vain."""
        if job.snapshots is not None:
            how = {"finished": "has finished", "cancelled": "was cancelled"}.get(job.outcome or "", "has failed")
            taking = job.snapshots.taking
            self.savepoints.refuse_all(job, f"job '{job.name}' {how} before the savepoint was complete.")
            for wanted in taking.saved if taking is not None and job.stopped_into is None else ():
                wanted.tell(f"job '{job.name}' {how} before it could be stopped; its savepoint is complete.")


def snapshot_figures(manifest: SnapshotManifest) -> control.SnapshotFigures:
    return control.SnapshotFigures(
        manifest.number, manifest.began_s, manifest.duration_s, manifest.total_bytes, manifest.written_bytes
    )


def _not_taken(number: int, problem: str) -> str:
    return f"snapshot {number} could not be taken: {problem}"


def _is_last(snapshots: JobSnapshots) -> bool:
    return snapshots.last_manifest is not None and snapshots.last_manifest.is_final
