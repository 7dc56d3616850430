"""Rows and messages per second, from what a cluster counted at two times."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dirigo.runtime.control import ClusterStatus, JobStatus

_WINDOW_S = 3.0  # workers tell their figures some times per second: over a shorter time rates would flicker


@dataclass(frozen=True)
class _Counts:
    at_s: float
    jobs: dict[str, tuple[int, int]]  # rows in and out, by id
    workers: dict[tuple[int, int], int]  # messages, by worker and incarnation


class Rates:
    """Over the last few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[_Counts] = deque()

    def note(self, status: ClusterStatus) -> None:
        now = self._clock()
        while len(self._seen) > 1 and now - self._seen[0].at_s > _WINDOW_S:
            self._seen.popleft()
        jobs = {job.id: (job.metrics.rows_in, job.metrics.rows_out) for job in status.jobs}
        workers = {(worker.id, worker.incarnation): worker.messages for worker in status.workers}
        self._seen.append(_Counts(now, jobs, workers))

    def rows(self, job: JobStatus) -> tuple[float | None, float | None]:
        """Rows in and out per second; nothing before there are two counts."""
        known = [counts for counts in self._seen if job.id in counts.jobs]
        if len(known) < 2 or known[-1].at_s <= known[0].at_s:
            return None, None
        seconds = known[-1].at_s - known[0].at_s
        (in_before, out_before), (in_now, out_now) = known[0].jobs[job.id], known[-1].jobs[job.id]
        return max(0, in_now - in_before) / seconds, max(0, out_now - out_before) / seconds

    def messages(self, worker: int, incarnation: int) -> float | None:
        """Messages per second of one worker."""
        key = (worker, incarnation)
        known = [counts for counts in self._seen if key in counts.workers]
        if len(known) < 2 or known[-1].at_s <= known[0].at_s:
            return None
        return max(0, known[-1].workers[key] - known[0].workers[key]) / (known[-1].at_s - known[0].at_s)
