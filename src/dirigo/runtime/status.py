"""What is told of a cluster, its workers and its jobs to those who look at them."""

from __future__ import annotations

import msgspec

from dirigo.scheduling.accounting import Satisfaction


class JobMetrics(msgspec.Struct, frozen=True):
    """What a job has done so far, over all workers."""

    rows_in: int = 0
    rows_out: int = 0
    messages: int = 0
    forwarded: int = 0  # messages that ran at another worker than their actor's home, because the home would have been late
    barriers: int = 0
    gathered: int = 0  # barriers at which partial states were put together
    queued_bytes: int = 0
    state_bytes: int = 0
    busy_s: float = 0.0
    late_rows: int = 0
    watermark_ms: int | None = None
    sources_paused: bool = False
    latency_ms: dict[str, float] = {}  # p50, p95, p99, max: from a row's intended arrival to its result
    latencies: dict[int, int] = {}  # the same as counts per bucket: see scheduling.accounting
    satisfaction: Satisfaction = Satisfaction()


class SnapshotFigures(msgspec.Struct, frozen=True):
    """The last snapshot of a job that is there."""

    number: int
    began_s: float  # by the time of day: what was read until then is safe
    duration_s: float  # until all of it was on disk
    total_bytes: int
    written_bytes: int  # for this one: what had not changed was there already


class JobStatus(msgspec.Struct, frozen=True):
    """Where a job is in its life."""

    id: str
    name: str
    state: str  # starting, running, recovering, draining, finished, cancelled, failed
    submitted_s: float
    started_s: float | None = None
    ended_s: float | None = None
    error: str | None = None
    traceback: str | None = None
    workers: tuple[int, ...] = ()
    metrics: JobMetrics = JobMetrics()
    strategy: str = ""
    latency_objective_ms: int | None = None
    target: float | None = None
    note: str | None = None  # what to know about it now: whom it waits for, or runs without
    waiting: tuple[str, ...] = ()  # barriers that take longer than some seconds, each with whom it waits for
    labels: dict[str, str] = {}  # as its flow has them
    snapshot: SnapshotFigures | None = None
    snapshot_problem: str | None = None  # why the last one came to nothing, or why none are taken
    generation: int = 0
    recoveries: int = 0
    recovered_in_s: float | None = None  # how long it took the last time, until the job ran again
    restored_from: int = 0  # the snapshot that this generation began with; 0 if it began with nothing
    began_with: str | None = None  # the savepoint of another job
    stopped_into: str | None = None  # the savepoint with which it was ended: it is finished, but not its sources


class WorkerStatus(msgspec.Struct, frozen=True):
    """How one worker is, as its last beat told."""

    id: int
    state: str  # joining, ready, leaving, lost
    incarnation: int = 0
    host: str = ""
    pid: int = 0
    busy: float = 0.0  # share of the last second or so
    messages: int = 0
    queued_bytes: int = 0
    rss_bytes: int = 0
    running: str | None = None
    running_s: float = 0.0
    problem: str | None = None
    leftover: str | None = None  # what runs although its job is over: the actor, or the job


class ClusterStatus(msgspec.Struct, frozen=True):
    """The whole pool."""

    name: str
    uptime_s: float
    workers: tuple[WorkerStatus, ...]
    jobs: tuple[JobStatus, ...]
    refused: dict[str, int] = {}
