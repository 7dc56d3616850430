"""What clients ask of the controller, and the answers, some of which have to wait."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from dirigo.runtime import control
from dirigo.runtime.controller.checks import WAIT_S_MOST, check_request, check_role
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.controller.savepoints import WantedSavepoint
from dirigo.runtime.errors import ControlError
from dirigo.runtime.ingest.commits import Commits

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller

_log = logging.getLogger(__name__)

_WAITING_MOST = 10_000
SAVEPOINT_S_MOST = 24 * 3600.0
FRESH_S_MOST = 600.0  # for a snapshot that is taken for somebody
_CLIENTS_REMEMBERED = 4096
_encoder = msgspec.msgpack.Encoder()

# Requests that change something: asked again, because a connection was cut, they are not carried out again.
_CHANGES = (
    control.Submit
    | control.ClaimPlaces
    | control.CancelJob
    | control.EndSources
    | control.TakeSavepoint
    | control.FailJob
    | control.Resize
    | control.StopCluster
    | control.ReleaseBatch
)


@dataclass
class _Change:
    """The last request of a client that changes something, and what it was answered."""

    number: int
    answer: bytes | None = None  # None while it has to wait


@dataclass
class _Waiting:
    """A client that waits for a job to end."""

    identity: bytes
    number: int
    job: str
    until_s: float


@dataclass
class _Saving:
    """A savepoint that is not complete."""

    identity: bytes
    number: int
    job: JobRecord
    until_s: float
    wait_s: float
    wanted: WantedSavepoint


@dataclass
class _Fresh:
    """A client that waits for a snapshot which is taken for it."""

    identity: bytes
    number: int
    job: str
    until_s: float


class Requests:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._waiting: list[_Waiting] = []
        self._saving: list[_Saving] = []
        self._fresh: list[_Fresh] = []
        self.commits = Commits(controller, self._answer_asker)
        self._changes: OrderedDict[bytes, _Change] = OrderedDict()  # by client, the longest silent first

    def refuse(self, identity: bytes, parts: list[bytes], error: Exception) -> None:
        """Answer a request that cannot be read, if it is one."""
        number = control.asked_number(parts)
        if number is not None:
            sentence = f"this is no request that the controller knows: {error}."
            self._controller.answer(identity, _encoder.encode(control.Answer(number, None, sentence)))

    def take(self, identity: bytes, asked: control.Asked, role: str) -> None:
        number, request = asked.number, asked.request
        try:
            check_role(role, request)
            check_request(request)
        except ControlError as error:
            self._controller.answer(identity, _encoder.encode(control.Answer(number, None, str(error))))
            return
        if self._is_known(identity, asked):
            return
        if self._controller.is_stopping:
            self._answer(identity, number, None, "the cluster is stopping, and takes no more requests.")
            return
        if isinstance(request, _CHANGES):
            self._changes[identity] = _Change(number)
            self._changes.move_to_end(identity)
            if len(self._changes) > _CLIENTS_REMEMBERED:
                self._changes.popitem(last=False)
        try:
            done, value = self._do(identity, number, request)
        except ControlError as error:
            self._answer(identity, number, None, str(error))
            return
        except Exception as error:  # a client that gets no answer knows nothing
            _log.exception("the controller could not handle %s", type(request).__name__)
            self._answer(identity, number, None, f"the controller failed: {type(error).__name__}: {error}")
            return
        if done:
            self._answer(identity, number, value)

    def _is_known(self, identity: bytes, asked: control.Asked) -> bool:
        """Whether a request was asked before; if so, it is answered as it was, or told that its answer has to wait."""
        number = asked.number
        answer: bytes | None = None
        waits: list[_Waiting | _Fresh] = [*self._waiting, *self._fresh]
        is_known = isinstance(asked.request, control.GetJob | control.FindSnapshot) and any(
            (each.identity, each.number) == (identity, number) for each in waits
        )
        change = self._changes.get(identity)
        if change is not None and number < change.number:
            return True  # a copy that was long on its way; nobody waits for it
        if change is not None and number == change.number:
            is_known, answer = True, change.answer
        if is_known:
            self._controller.answer(identity, answer or _encoder.encode(control.Answer(number, is_pending=True)))
        return is_known

    def _answer(self, identity: bytes, number: int, value: Any, error: str | None = None) -> None:
        answer = _encoder.encode(control.Answer(number, value, error))
        change = self._changes.get(identity)
        if change is not None and change.number == number:
            change.answer = answer
        self._controller.answer(identity, answer)

    def _answer_asker(self, asker: tuple[bytes, int], value: Any, error: str | None) -> None:
        self._answer(*asker, value, error)

    def _do(self, identity: bytes, number: int, request: control.Request) -> tuple[bool, Any]:
        """(whether the answer is known, the answer)"""
        controller = self._controller
        match request:
            case control.GetStatus():
                return True, self._status()
            case control.Submit():
                return True, controller.submissions.submit(request).status()
            case control.ClaimPlaces():
                controller.submissions.claim(request)
                return True, None
            case control.GetJob():
                job = self._job(request.job)
                if request.wait_s > 0 and job.is_live and len(self._waiting) < _WAITING_MOST:
                    until = time.monotonic() + min(request.wait_s, WAIT_S_MOST)
                    self._waiting.append(_Waiting(identity, number, job.id, until))
                    return False, None
                return True, job.status()
            case control.FindSnapshot():
                return self._find_snapshot(identity, number, request)
            case control.CancelJob():
                job = self._live(request.job)
                controller.end(job, "cancelled", None)
                return True, job.status()
            case control.EndSources():
                job = self._job(request.job)
                if (job.outcome or job.state) == "finished":  # even if the last figures have not come yet
                    return True, job.status()  # its sources have ended, which is what was wanted
                job = self._live(request.job)
                self._check_source(job, request.source)
                controller.snapshots.savepoints.check_not_stopping(job)
                controller.drain(job, request.source)
                if job.snapshots is None:
                    return True, job.status()
                # Behind the note of it, which a later service reads: nobody tells it again.
                controller.beside(lambda: lambda: self._answer(identity, number, job.status()))
                return False, None
            case control.TakeSavepoint():
                self._save(identity, number, request)
                return False, None
            case control.FailJob():
                controller.fail(self._job(request.job).id, request.error, None)
                return True, None
            case control.Resize():
                controller.resize(request.workers)
                return True, None
            case control.StopCluster():
                controller.is_stopping = True
                return True, None
            case control.GetPlaces():
                return True, self._places(request)
            case control.IsCommitting():
                self.commits.is_committing((identity, number), self._job(request.job), request)
                return False, None
            case control.ReleaseBatch():
                job = self._live(request.job)
                self._check_source(job, request.source)
                self.commits.release((identity, number), job, request)
                return False, None

    def look(self, now: float, *, is_last: bool = False) -> None:
        """Answer those whose wait is over."""
        still = []
        for waiting in self._waiting:
            job = self._controller.jobs.get(waiting.job)
            if job is None or not job.is_live or now >= waiting.until_s or is_last:
                value = None if job is None else job.status()
                self._answer(waiting.identity, waiting.number, value)
            else:
                still.append(waiting)
        self._waiting = still
        for saving in [each for each in self._saving if now >= each.until_s or is_last]:
            if saving.job.stopped_into is not None and not is_last:  # about to be told
                continue
            self._saving.remove(saving)
            if saving.job.stopped_into is not None:
                self._answer(saving.identity, saving.number, saving.job.status())
                continue
            why = self._controller.snapshots.savepoints.give_up(saving.job, saving.wanted)
            took = f"the savepoint of job '{saving.job.name}' was not complete after {saving.wait_s:g} s"
            self._answer(saving.identity, saving.number, None, f"{took}: {why}; the job goes on.")
        self._look_at_fresh(now, is_last=is_last)
        self.commits.look(now, is_last=is_last)

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def _job(self, name: str) -> JobRecord:
        jobs = self._controller.jobs
        if name in jobs:
            return jobs[name]
        named = [job for job in jobs.values() if job.name == name]
        if named:
            return named[-1]
        there = ", ".join(sorted({job.name for job in jobs.values()})) or "none yet"
        raise ControlError(f"there is no job '{name}' in this cluster; its jobs: {there}.")

    def _live(self, name: str) -> JobRecord:
        job = self._job(name)
        if not job.is_live or job.outcome is not None:
            raise ControlError(f"job '{job.name}' is over: it is {job.outcome or job.state}.")
        return job

    def _status(self) -> control.ClusterStatus:
        controller = self._controller
        refused = dict(controller.refusals.counts)
        for slot in controller.slots.values():
            for reason, count in slot.figures.refused.items():
                refused[reason] = refused.get(reason, 0) + count
        return control.ClusterStatus(
            controller.name,
            time.monotonic() - controller.began_s,
            tuple(slot.status(controller.pool.problem(slot.worker)) for slot in controller.slots.values()),
            tuple(job.status() for job in controller.jobs.values()),
            refused,
        )

    def _save(self, identity: bytes, number: int, request: control.TakeSavepoint) -> None:
        """Have a savepoint taken, and answer when it is there."""
        job = self._live(request.job)

        def tell(problem: str | None) -> None:
            if saving in self._saving:
                self._saving.remove(saving)
                self._answer(identity, number, None if problem else job.status(), problem)

        wait_s = min(request.wait_s, SAVEPOINT_S_MOST)
        wanted = self._controller.snapshots.savepoints.want(job, request.place, stops=request.stops, tell=tell)
        saving = _Saving(identity, number, job, time.monotonic() + wait_s, wait_s, wanted)
        self._saving.append(saving)

    # --- states that are read ------------------------------------------------------------------------------------------

    def _find_snapshot(self, identity: bytes, number: int, request: control.FindSnapshot) -> tuple[bool, Any]:
        job = self._live(request.job)
        snapshots = job.snapshots
        if snapshots is None:
            why = job.no_snapshots or "this cluster takes no snapshots"
            what = (
                "use a source that can"
                if job.no_snapshots
                else "start it with a folder for them (snapshots=... or --snapshots)"
            )
            raise ControlError(f"the state of job '{job.name}' cannot be read: {why}; {what}.")
        if request.fresh:
            if len(self._fresh) >= _WAITING_MOST:
                raise ControlError("too many clients wait for fresh snapshots; read the last one, or try again later.")
            waiting = _Fresh(identity, number, job.id, time.monotonic() + min(request.wait_s, FRESH_S_MOST))
            self._fresh.append(waiting)
            snapshots.fresh.append(lambda taken: self._taken(waiting, taken))
            return False, None
        if snapshots.last is None:
            why = f" ({snapshots.problem})" if snapshots.problem else ""
            raise ControlError(
                f"no snapshot of job '{job.name}' has been committed yet{why}; try again soon, or ask for a fresh one."
            )
        return True, self._held(job, snapshots.last.number if request.number is None else request.number)

    def _held(self, job: JobRecord, number: int) -> control.SnapshotPlace:
        assert job.snapshots is not None
        job.snapshots.hold(number)
        return control.SnapshotPlace(job.snapshots.root, job.id, number)

    def _taken(self, waiting: _Fresh, taken: int) -> None:
        if waiting in self._fresh:  # it may have given up
            self._fresh.remove(waiting)
            self._answer(waiting.identity, waiting.number, self._held(self._controller.jobs[waiting.job], taken))

    def _look_at_fresh(self, now: float, *, is_last: bool) -> None:
        for waiting in list(self._fresh):
            job = self._controller.jobs.get(waiting.job)
            is_over = job is None or not job.is_live or job.outcome is not None
            if not is_over and now < waiting.until_s and not is_last:
                continue
            self._fresh.remove(waiting)
            if job is None or is_over or is_last:
                error = f"job '{waiting.job}' has ended, or the cluster has, before a fresh snapshot was there."
            else:
                problem = job.snapshots.problem if job.snapshots is not None else None
                error = f"no fresh snapshot of job '{job.name}' was there in time: {problem or 'it takes longer than that'}."
            self._answer(waiting.identity, waiting.number, None, error)

    # --- rows from outside ---------------------------------------------------------------------------------------------

    def _check_source(self, job: JobRecord, source: str | None) -> None:
        if source is not None and source not in job.manifest.pushed:
            names = ", ".join(job.manifest.pushed) or "none"
            raise ControlError(f"job '{job.name}' has no source '{source}' that takes rows from outside; it has {names}.")

    def _places(self, request: control.GetPlaces) -> control.SourcePlaces:
        job = self._live(request.job)
        names = list(job.manifest.pushed)
        source = request.source
        if source is None:
            if len(names) != 1:
                raise ControlError(
                    f"job '{job.name}' has {len(names)} sources that take rows from outside ({', '.join(names) or 'none'}); "
                    "name one with the option 'source'."
                )
            source = names[0]
        self._check_source(job, source)
        count, schema = job.manifest.pushed[source]
        is_kept = job.decisions is not None
        if job.state in ("waiting", "starting") and is_kept:
            return control.SourcePlaces(job.id, source, schema, (), job.run, is_kept)
        if job.state in ("waiting", "starting"):
            raise ControlError(f"job '{job.name}' is starting; try again in a moment.")
        splits = []
        for split in range(count):
            slot = self._controller.slots[job.places[source, split]]
            assert slot.hello is not None
            splits.append(control.SplitPlace(split, slot.worker, slot.incarnation, slot.hello.ingest, slot.hello.key))
        return control.SourcePlaces(job.id, source, schema, tuple(splits), job.run, is_kept)
