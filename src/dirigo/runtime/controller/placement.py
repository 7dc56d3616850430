"""Where jobs run: each gets its workers, is installed there, and begins when all of them know it.

A job that has not begun has lost nothing when one of its workers is lost: it is taken back from the others and placed anew,
under the number of another attempt, so that what is still said of the earlier one is told apart.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from dirigo.runtime import control
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.controller.membership import Slot

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller

_log = logging.getLogger(__name__)

# A job waits this long for workers that are missing, and then begins on those that are ready: the processes of a pool start
# within some seconds of each other, and one that died is usually back by then.
PLACE_AFTER_S = 10.0
NO_WORKER_S = 120.0  # a job that no worker at all was ready for in this time fails
# A job fails when the same worker is lost so often before it has begun: it may be its own imports that end the process. Per
# worker, because all workers of a large pool may be lost at once, and are then heard of one after the other.
LOSSES_MOST = 3
_STOPPED = ("cancelled", "failed")  # jobs whose code may have been running when they ended


class Placement:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._has_ready = False  # whether there is a worker that is ready
        self._has_ready_since_s = time.monotonic()
        self._were_all_ready = False  # whether all workers that are wanted have been ready at some time

    def place_waiting(self, now: float) -> None:
        """Give jobs their workers: all that are wanted, or after a while those that are ready."""
        controller = self._controller
        ready = sorted(slot.worker for slot in controller.slots.values() if slot.state == "ready")
        if self._has_ready != bool(ready):
            self._has_ready, self._has_ready_since_s = bool(ready), now
        self._were_all_ready = self._were_all_ready or len(ready) >= controller.wanted
        missing = self._missing()
        engaged = self._engaged()
        free = [worker for worker in ready if worker not in engaged]
        for job in list(controller.jobs.values()):
            if job.state == "waiting" and job.outcome is None and not job.is_restoring:
                waited_s = now - max(job.waits_since_s, self._has_ready_since_s)
                # Nobody waits for a lost worker to be there again. But in a service that has only begun, where jobs of the
                # one before are resumed, all are about to come, and jobs stay where they are placed.
                is_urgent = job.recoveries > 0 and self._were_all_ready
                if free and (is_urgent or len(free) >= controller.wanted or waited_s >= PLACE_AFTER_S):
                    first = controller.submissions.count % len(free)  # not all jobs begin at the same worker
                    job.place((*free[first:], *free[:first]))
                    controller.order_all(free, job.install())
                elif not ready and waited_s >= NO_WORKER_S:
                    controller.fail(job.id, f"no worker was ready for {NO_WORKER_S:g} s: {self._why_missing()}", None)
            job.note = missing and f"it {'waits for' if job.state == 'waiting' else 'runs without'} {missing}"
            if job.state == "waiting" and engaged and not missing:
                job.note = f"it waits for worker {min(engaged)}, where code of a job that is over has still to stop"

    def _engaged(self) -> set[int]:
        """Workers that have code of a job to stop, or may have: they may be about to end for it."""
        controller = self._controller
        asked = {worker for job in controller.jobs.values() if job.outcome in _STOPPED for worker in job.removing}
        return asked | {slot.worker for slot in controller.slots.values() if slot.is_there and slot.figures.leftover}

    def _missing(self) -> str | None:
        """The workers that are wanted and not there, as a part of a sentence."""
        slots = [slot for slot in self._controller.slots.values() if slot.state in ("joining", "lost")]
        if len(slots) == 1:
            return f"worker {slots[0].worker}, which {'was lost' if slots[0].state == 'lost' else 'has not joined'}"
        return f"workers {', '.join(str(slot.worker) for slot in slots)}, which are not there" if slots else None

    def _why_missing(self) -> str:
        controller = self._controller
        problems = [controller.pool.problem(slot.worker) or slot.problem for slot in controller.slots.values()]
        return next((problem for problem in problems if problem), "see the log of the cluster for what keeps them.")

    def note_installed(self, slot: Slot, record: control.Installed) -> None:
        controller = self._controller
        job = controller.of_run(record.job)
        if job is None or not job.is_live or job.outcome is not None:
            controller.order(slot.worker, control.Remove(record.job))  # it ended, or was taken back, meanwhile
            return
        job.installing.discard(slot.worker)
        if record.error is not None and slot.worker not in job.workers:
            _log.warning("worker %d cannot help with job %s: %s", slot.worker, job.id, record.error)
            return
        if record.error is not None:
            controller.fail(job.id, f"worker {slot.worker} cannot install the job: {record.error}", record.traceback)
            return
        job.installed.add(slot.worker)
        for source, split in record.pushed:
            if split in range(job.manifest.pushed.get(source, (0, b""))[0]):  # no other is asked for
                job.places[source, split] = slot.worker
        if job.state == "starting":
            self._look_for_start(job)
        elif job.state in ("running", "draining"):  # a newcomer
            controller.order(slot.worker, self._start(job))
            self.tell_helpers(job)

    def note_lost(self, job: JobRecord, worker: int, how: str) -> None:
        """A worker is gone before a job has begun: place the job anew, unless it can do without that worker."""
        if worker not in job.workers:
            self._look_for_start(job)
            return
        job.losses[worker] += 1
        if job.losses[worker] >= LOSSES_MOST:
            self._controller.fail(
                job.id,
                f"worker {worker} was lost {LOSSES_MOST} times before job '{job.name}' had begun, the last time because it "
                f"{how}; see that loading the job does not end the process, and submit it again.",
                None,
            )
            return
        _log.warning("job %s had not begun when worker %d was lost, and is placed anew", job.id, worker)
        there = [slot.worker for slot in self._controller.slots.values() if slot.is_there]  # newcomers were told of it too
        self._controller.take_back(job, there)

    def _look_for_start(self, job: JobRecord) -> None:
        """A job begins when all workers that it was placed on know it."""
        if job.installing or not job.installed.issuperset(job.workers):
            return
        job.state = "running"
        job.started_s = job.started_s or time.time()
        job.runs_since_s = time.monotonic()
        job.losses.clear()  # what loads once is not what ends the process
        if job.recovering_since_s is not None:
            job.recovered_in_s = time.monotonic() - job.recovering_since_s
            job.recovering_since_s = None
            _log.warning("job %s runs again, after %.2f s", job.id, job.recovered_in_s)
        if job.snapshots is not None:
            job.snapshots.plan_first(time.monotonic(), is_back=job.generation > 0)
        job.helpers_version += 1
        self._controller.order_all(job.installed, self._start(job))
        self._controller.requests.commits.go_on(job)
        for wanted in list(job.to_drain):
            self._controller.drain(job, wanted)

    def _helpers(self, job: JobRecord) -> tuple[int, ...]:
        """The workers that a job's messages may run at: they know it, and are to stay."""
        return tuple(sorted(worker for worker in job.installed if self._controller.slots[worker].state == "ready"))

    def _start(self, job: JobRecord) -> control.Start:
        return control.Start(job.run, self._helpers(job), job.helpers_version)

    def tell_helpers(self, job: JobRecord) -> None:
        job.helpers_version += 1
        self._controller.order_all(job.installed, control.Helpers(job.run, self._helpers(job), job.helpers_version))
