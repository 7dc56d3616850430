"""Savepoints of jobs: who has asked for one, and the end of a job that is stopped with one.

A savepoint is a copy of the next snapshot that is begun. To stop a job, its sources are not read any further behind the cut;
when the copy is complete and the sinks have committed that snapshot, the job ends, and what came behind the cut is void.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dirigo.runtime import control
from dirigo.runtime.errors import ControlError

if TYPE_CHECKING:
    from dirigo.runtime.controller.controller import Controller
    from dirigo.runtime.controller.job_record import JobRecord
    from dirigo.runtime.controller.snapshots import Taking

LOST_AT_THE_END = (
    "the job lost a worker while it was being stopped, and goes on from that snapshot; stop it again, with another folder."
)
_TAKES_NONE = "; start it with one (snapshots='file:///...' or --snapshots), and submit the job again."


@dataclass(eq=False)
class WantedSavepoint:
    """Somebody waits for a savepoint."""

    place: str
    tell: Callable[[str | None], None]  # what is wrong; None if it is complete, and the job has ended if that was wanted
    after: int  # snapshots from the next one on will do
    stops: bool = False  # the job ends with it
    is_given_up: bool = False  # it took too long; the job is not to end any more


class Savepoints:
    """Part of the controller, on its thread."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def want(self, job: JobRecord, place: str, *, stops: bool, tell: Callable[[str | None], None]) -> WantedSavepoint:
        """Have one taken; whoever waits is told later, but for what is wrong already."""
        snapshots = job.snapshots
        if snapshots is None:
            why = job.no_snapshots or f"this cluster has no folder for snapshots{_TAKES_NONE}"
            raise ControlError(f"no savepoint can be taken of job '{job.name}': {why}")
        if job.manifest.pushed:
            names = ", ".join(job.manifest.pushed)
            raise ControlError(
                f"no savepoint can be taken of job '{job.name}': its source '{names}' is a DataFrame, and rows that Spark "
                "has handed over and the job has not read would be lost; drain the job, so that it works them off."
            )
        if stops and job.state == "draining":
            raise ControlError(f"job '{job.name}' is being drained, so it ends by itself; wait for its end, or cancel it.")
        wanted = WantedSavepoint(place, tell, snapshots.number, stops)
        snapshots.savepoints.append(wanted)
        return wanted

    def check_not_stopping(self, job: JobRecord) -> None:
        """Refuse to end sources while a savepoint is made to go on from: they would have ended in it, with rows unread."""
        snapshots = job.snapshots
        if snapshots is None:
            return
        is_under_way = snapshots.taking is not None and snapshots.taking.stops
        if is_under_way or any(wanted.stops for wanted in snapshots.savepoints):
            raise ControlError(f"job '{job.name}' is being stopped with a savepoint; wait until it has, or cancel it.")

    def give_up(self, job: JobRecord, wanted: WantedSavepoint) -> str:
        """Nobody waits any longer; why it has not come."""
        snapshots = job.snapshots
        wanted.is_given_up = True
        if snapshots is None:
            return "the job takes no snapshots any more"
        taking = snapshots.taking
        if taking is not None and wanted in taking.saved:
            taking.saved.remove(wanted)
            why = f"it is in '{wanted.place}', but sinks have not committed what is in it"
        elif wanted not in snapshots.savepoints:
            why = f"it is still being written to '{wanted.place}'"
        elif job.state not in ("running", "draining"):
            why = f"the job is {job.status().state}"
        elif taking is not None:
            why = self._controller.snapshots.missing(job, snapshots, taking)
        else:
            why = snapshots.problem or "no snapshot was begun"
        snapshots.savepoints = [each for each in snapshots.savepoints if each is not wanted]
        self._read_on(job)
        return why

    def refuse_all(self, job: JobRecord, problem: str) -> None:
        """There is none for those who wait now."""
        assert job.snapshots is not None
        refused, job.snapshots.savepoints = job.snapshots.savepoints, []
        for wanted in refused:
            wanted.tell(problem)
        if any(wanted.stops for wanted in refused):
            self._read_on(job)

    def note_copied(self, run: str, taking: Taking, outcomes: Sequence[tuple[WantedSavepoint, str | None]]) -> None:
        """Copies of a snapshot are complete, or cannot be."""
        job = self._controller.of_run(run)
        is_now = job is not None and job.snapshots is not None and job.snapshots.taking is taking
        taking.copying.clear()
        for wanted, problem in outcomes:
            if not wanted.stops or taking.is_final or problem is not None:
                wanted.tell(problem)
            elif job is not None and job.outcome is not None:
                wanted.tell(f"job '{job.name}' is {job.outcome}, and was not stopped; its savepoint is complete.")
            elif not is_now:
                wanted.tell(LOST_AT_THE_END)
            elif not wanted.is_given_up:
                taking.saved.append(wanted)
        if job is not None and taking.saved:
            self.look_for_the_stop(job)
        elif job is not None and is_now and taking.stops:
            self._read_on(job)

    def look_for_the_stop(self, job: JobRecord) -> None:
        """End a job that is stopped, once all that its savepoint holds is visible."""
        taking = job.snapshots.taking if job.snapshots is not None else None
        if taking is None or taking.to_commit or job.outcome is not None or not self._controller.logs.is_shown(job.id):
            return
        job.stopped_into = taking.saved[0].place
        is_long = job.snapshots is not None and bool(job.snapshots.copied)
        self._controller.end(job, "finished", None)

        def tell() -> None:
            for wanted in taking.saved:
                wanted.tell(None)

        # Behind the removal of its folder: whoever has heard of it may begin another job with the savepoint, and if the
        # service dies now, the next one must not resume this one.
        self._controller.beside(lambda: tell, is_long=is_long)

    def _read_on(self, job: JobRecord) -> None:
        """Nobody wants the job to stop any more."""
        snapshots = job.snapshots
        if snapshots is None or job.outcome is not None or any(wanted.stops for wanted in snapshots.savepoints):
            return
        taking = snapshots.taking
        if taking is not None and taking.stops:
            if taking.saved or not all(wanted.is_given_up for wanted in taking.copying):  # for somebody else
                return
            taking.stops = False
            if taking.is_there:
                snapshots.taking = None
        self._controller.order_all(job.installed, control.ReadOn(job.run))
