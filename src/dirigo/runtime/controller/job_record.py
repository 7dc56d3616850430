"""A job in the eyes of the controller: where it is in its life, and what its workers count."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dirigo.kernel import operator_of
from dirigo.runtime.control import AttemptRef, Beginning, Install, JobFigures, JobMetrics, JobStatus, Manifest
from dirigo.runtime.generations import run_of
from dirigo.runtime.ingest.decisions import Decisions
from dirigo.scheduling.accounting import percentiles, summed

if TYPE_CHECKING:
    from dirigo.runtime.controller.snapshots import JobSnapshots

_log = logging.getLogger(__name__)
_OVER = {"cancelled": "was cancelled", "failed": "had failed", "finished": "had finished"}
LIVE = ("waiting", "starting", "running", "draining")


@dataclass
class BatchCommit:
    """A micro-batch that is being released: whoever replays it, it is always made of the same attempts."""

    batch: int
    attempts: tuple[AttemptRef, ...]
    has_begun: bool = False  # some worker has released its part
    is_done: bool = False


@dataclass
class JobRecord:
    """One submission."""

    id: str
    name: str
    manifest: Manifest
    shipment: bytes
    budget_bytes: int
    strategy: bytes
    strategy_name: str
    submitted_s: float
    state: str = "waiting"  # for workers; then starting, running, draining, finished, cancelled, failed
    workers: tuple[int, ...] = ()  # where its lessors are
    error: str | None = None
    traceback: str | None = None
    started_s: float | None = None
    ended_s: float | None = None
    installing: set[int] = field(default_factory=set)  # workers that have still to answer
    installed: set[int] = field(default_factory=set)
    generation: int = 0  # how often it was placed before: it had not begun, or goes on from a snapshot
    losses: Counter[int] = field(default_factory=Counter)  # how often each worker was lost before the job began
    removing: set[int] = field(default_factory=set)  # workers whose last figures have not come
    outcome: str | None = None  # what the job is once these have come
    to_drain: list[str | None] = field(default_factory=list)  # sources that were asked to end; None for all
    ended_leaves: set[str] = field(default_factory=set)
    logs_ended: bool = False
    places: dict[tuple[str, int], int] = field(default_factory=dict)  # (source, split) -> worker
    commits: dict[tuple[str, str], BatchCommit] = field(default_factory=dict)  # the last one of each (source, query)
    figures: dict[int, JobFigures] = field(default_factory=dict)  # by worker
    helpers_version: int = 0  # of the last order about its helpers
    waits_since_s: float = field(default_factory=time.monotonic)
    note: str | None = None  # whom it waits for, or runs without
    snapshots: JobSnapshots | None = None
    decisions: Decisions | None = None  # about micro-batches, where rows that are pushed into it are kept
    no_snapshots: str | None = None  # why none are taken
    restore: int = 0  # the snapshot that this generation goes on from
    is_restoring: bool = False  # that snapshot is being looked for
    is_resumed: bool = False  # by a service that knows nothing of it yet
    recoveries: int = 0
    recovering_since_s: float | None = None
    recovered_in_s: float | None = None  # the last time
    runs_since_s: float = 0.0  # this generation, by the monotonic clock
    losses_in_row: int = 0  # without a snapshot of a generation that had run for a while
    last_culprit: str | None = None  # the actor that was executing when a worker was lost
    beginning: Beginning | None = None  # the savepoint that it goes on from as long as it has no snapshot of its own
    stopped_into: str | None = None  # the savepoint that it ends with
    earlier: list[JobFigures] = field(default_factory=list)  # of generations that are over

    @property
    def run(self) -> str:
        """What its workers call this generation of it."""
        return run_of(self.id, self.generation)

    def forget_worker(self, worker: int) -> None:
        for workers in (self.installing, self.installed, self.removing):
            workers.discard(worker)

    def take_figures(self, worker: int, figures: JobFigures) -> None:
        """Keep a worker's figures; a barrier that waits is told in the log when it is first heard of."""
        known = self.figures.get(worker)
        if figures.waiting and not (known and known.waiting):
            _log.warning("job %s: %s", self.id, "; ".join(figures.waiting))
        elif known and known.waiting and not figures.waiting:
            _log.warning("job %s: the barriers that waited at worker %d go on", self.id, worker)
        self.figures[worker] = figures

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_complete(self) -> bool:
        return self.logs_ended and len(self.ended_leaves) >= self.manifest.leaves

    def place(self, workers: tuple[int, ...]) -> None:
        """Give it its workers: no more than it has actors, which go to them in turn, so that each has at least one."""
        self.workers = workers[: max(1, self.manifest.partitions)]
        self.state = "starting"
        self.installing = set(workers)

    def take_back(self) -> None:
        """Have it wait again, as if it had never been placed: whatever is said of this generation from now on is void."""
        self.generation += 1
        self.earlier = [summed_figures([*self.earlier, *self.figures.values()])]
        self.state = "waiting"
        self.workers = ()
        self.installing, self.installed = set(), set()
        self.places.clear()
        self.figures.clear()
        self.ended_leaves.clear()
        self.logs_ended = not self.manifest.sinks
        self.removing = set()
        self.waits_since_s = time.monotonic()

    def install(self) -> Install:
        root = self.snapshots.root if self.snapshots is not None else ""
        return Install(
            self.run, self.shipment, self.workers, self.budget_bytes, self.strategy, root, self.restore, self.beginning
        )

    def was_served_by(self, worker: int) -> bool:
        figures = self.figures.get(worker)
        return worker in self.workers or (figures is not None and figures.messages > 0)

    def loss_by(self, worker: int, how: str, culprit: str | None, owner: JobRecord | None) -> str:
        """Why the job fails when a worker is lost; ``culprit``: the actor that was executing there, of the job ``owner``."""
        sentence = f"worker {worker} {how}, and with it went a part of the states of job '{self.name}'"
        if culprit is not None:
            whose = f"operator '{operator_of(culprit)}' of this job" if owner is self else described(culprit, owner)
            sentence += f"; it was executing {whose}"
        return f"{sentence}; submit the job again."

    def needs(self, worker: int) -> bool:
        """Whether a worker has to stay: it has done something for the job, or others may have sent it something to do."""
        if self.was_served_by(worker):
            return True
        others = [self.figures.get(each, JobFigures()) for each in self.installed - {worker}]
        return worker in self.installed and any(
            each.helpers_version < self.helpers_version or worker in each.lent_to for each in others
        )

    def metrics(self) -> JobMetrics:
        now = list(self.figures.values())
        figures = [*self.earlier, *now]
        account = summed(each.account for each in figures)
        watermarks = [each.watermark_ms for each in now if each.watermark_ms is not None]
        is_live = self.is_live
        return JobMetrics(
            rows_in=sum(each.rows_in for each in figures),
            rows_out=sum(each.rows_out for each in figures),
            messages=sum(each.messages for each in figures),
            forwarded=sum(each.forwarded for each in figures),
            barriers=sum(each.rounds for each in figures),
            gathered=sum(each.gathered for each in figures),
            queued_bytes=sum(each.queued_bytes for each in now) if is_live else 0,
            state_bytes=sum(each.state_bytes for each in now) if is_live else 0,
            busy_s=round(sum(each.busy_s for each in figures), 6),
            late_rows=sum(each.late_rows for each in figures),
            watermark_ms=min(watermarks, default=None),
            sources_paused=is_live and any(each.paused for each in now),
            latency_ms=percentiles(account.latencies),
            latencies=account.latencies,
            satisfaction=account.report(),
        )

    def status(self) -> JobStatus:
        state = "starting" if self.state == "waiting" else self.state
        if state == "starting" and self.recovering_since_s is not None:
            state = "recovering"
        snapshots = self.snapshots
        problem = snapshots.problem if snapshots is not None else self.no_snapshots
        return JobStatus(
            self.id,
            self.name,
            state,
            self.submitted_s,
            self.started_s,
            self.ended_s,
            self.error,
            self.traceback,
            self.workers,
            self.metrics(),
            self.strategy_name,
            self.manifest.latency_ms,
            self.manifest.target,
            self.note if self.is_live else None,
            tuple(told for figures in self.figures.values() for told in figures.waiting) if self.is_live else (),
            self.manifest.labels,
            snapshots.last if snapshots is not None else None,
            problem if self.is_live else None,
            self.generation,
            self.recoveries,
            self.recovered_in_s,
            self.restore,
            None if self.beginning is None else self.beginning.place,
            self.stopped_into,
        )


def summed_figures(figures: list[JobFigures]) -> JobFigures:
    """What generations that are over have counted: only what grows."""
    return JobFigures(
        rows_in=sum(each.rows_in for each in figures),
        rows_out=sum(each.rows_out for each in figures),
        messages=sum(each.messages for each in figures),
        busy_s=sum(each.busy_s for each in figures),
        late_rows=sum(each.late_rows for each in figures),
        forwarded=sum(each.forwarded for each in figures),
        rounds=sum(each.rounds for each in figures),
        gathered=sum(each.gathered for each in figures),
        account=summed(each.account for each in figures),
    )


def described(leftover: str, owner: JobRecord | None, *, goes_on: bool = False) -> str:
    """An actor, or a job of which nothing else is known, as a part of a sentence; ``owner`` is its job, if it is known."""
    name = leftover.split("/")[0]
    what = f"operator '{operator_of(leftover)}' of job '{name}'" if "/" in leftover else f"code of job '{name}'"
    if owner is None or owner.outcome is None:
        return what
    return f"{what}, which {_OVER[owner.outcome]}{',' if goes_on else ''}"
