"""Jobs on their way into the cluster: what is refused, what each becomes, and which of those that are over are forgotten."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dirigo.runtime import control
from dirigo.runtime.client.shipment import named_shipment
from dirigo.runtime.controller.claims import Claims
from dirigo.runtime.controller.job_record import JobRecord
from dirigo.runtime.errors import ControlError
from dirigo.runtime.results.log.errors import LogError
from dirigo.runtime.results.shelf import number_of
from dirigo.scheduling import StrategyLike

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller

JOBS_REMEMBERED = 200


class Submissions:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller, strategy: StrategyLike, snapshots_every_s: float | None) -> None:
        """`snapshots_every_s`: of jobs that do not say; None if there is no folder for snapshots."""
        self._controller = controller
        self._strategy = named_shipment(strategy)  # of jobs that come without one
        self._every_s_default = snapshots_every_s
        self.claims = Claims()
        self.count = controller.logs.last_number  # ids of jobs are never used twice for results that are kept

    def claim(self, request: control.ClaimPlaces) -> None:
        """Keep places for a job that is about to be submitted."""
        if request.places:
            self._refuse_running(request.job)
        self.claims.take(request.claim, request.job, request.places, self._controller.jobs.values())

    def _refuse_running(self, name: str) -> None:
        for job in self._controller.jobs.values():
            if job.name == name and job.is_live and job.outcome is None:
                raise ControlError(
                    f"a job '{name}' is running already; cancel it first, or submit this one with another name."
                )

    def submit(self, request: control.Submit) -> JobRecord:
        if self._controller.failure is not None:
            raise ControlError(f"the cluster cannot go on, so start another one: {self._controller.failure}")
        self._refuse_running(request.name)
        self.claims.check(request.name, request.manifest.places, self._controller.jobs.values(), request.claim)
        self.count += 1
        job_id = f"{request.name}~{self.count}"
        strategy, strategy_name = self._strategy
        if request.strategy is not None:
            strategy, strategy_name = request.strategy, request.strategy_name
        job = JobRecord(
            job_id,
            request.name,
            request.manifest,
            request.shipment,
            request.budget_bytes,
            strategy,
            strategy_name,
            time.time(),
        )
        job.beginning = request.beginning
        job.logs_ended = not request.manifest.sinks
        every_s = self._snapshots_every_s(job, request)
        try:
            self._controller.logs.add(job.id, job.name, request.manifest, holds_back=every_s is not None)
        except LogError as error:
            self._controller.recovery.give_up_rows(job)
            raise ControlError(str(error)) from error
        self._controller.jobs[job.id] = job
        self.claims.let_go(request.claim)
        if every_s is not None:
            self._controller.recovery.begin(job, every_s)
        self._forget_old_jobs()
        self._controller.place_waiting()
        return job

    def _snapshots_every_s(self, job: JobRecord, request: control.Submit) -> float | None:
        """How often snapshots are taken of a job; None if none are."""
        every_s = request.snapshots_every_s
        if self._every_s_default is None:
            if every_s is not None:
                raise ControlError(
                    "this cluster has no folder for snapshots; start it with one (snapshots='file:///...' or --snapshots), "
                    "or submit the job without snapshots_every."
                )
            return None
        if request.manifest.not_replayable:
            names = ", ".join(request.manifest.not_replayable)
            why, instead = f"source '{names}' cannot go back to an earlier position", "use a source that can"
        elif (problem := self._controller.recovery.prepare_rows(job)) is not None:
            names = ", ".join(request.manifest.pushed)
            why, instead = (
                f"rows of source '{names}' cannot be kept {problem}",
                "let the cluster have another folder for them",
            )
        else:
            return every_s or self._every_s_default
        if every_s is not None:
            raise ControlError(
                f"no snapshots can be taken of job '{job.name}', because its {why}; {instead}, or submit the job without "
                "snapshots_every."
            )
        job.no_snapshots = f"no snapshots are taken, because the {why}"
        return None

    def adopt(self, job: JobRecord) -> None:
        """A job of an earlier service goes on in this one."""
        self._controller.jobs[job.id] = job
        self.count = max(self.count, number_of(job.id))

    def _forget_old_jobs(self) -> None:
        over = [job for job in self._controller.jobs.values() if not job.is_live]
        for job in over[: max(0, len(over) - JOBS_REMEMBERED)]:
            del self._controller.jobs[job.id]
            self._controller.logs.remove(job.id)
