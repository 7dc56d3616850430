"""Runs of a flow that is calibrated, one after the other, and what each came to once it had settled."""

from __future__ import annotations

import time
from contextlib import suppress

from dirigo.calibration.measurement import Measurement
from dirigo.flow.api.dataflow import Dataflow
from dirigo.runtime.client.client import BUDGET_BYTES, Client
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import JobMetrics, JobStatus
from dirigo.runtime.errors import ControlError
from dirigo.scheduling.accounting import percentiles

_PROBE_BUDGET_BYTES = 4 << 20  # little waits, so that it is soon worked to its end
_DRAIN_S_LEAST = 5.0
_FULL_SHARE = 0.3  # of all looks at which sources had to wait
_GROWN_BYTES = 8 << 20  # queues that have become so much longer will be full sooner or later
_NAME_LETTERS_MOST = 150
_LOOK_S = 0.1
_FREE_S = 60.0
_START_S = 60.0
_END_S = 30.0
_OVER = ("finished", "cancelled", "failed")


class Runs:
    """Runs of one flow, one after the other."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def probe(self, flow: Dataflow, seconds: float) -> Measurement | None:
        """Run a flow as fast as its sources go, and work what they gave to its end: what a row costs is the whole of it.

        Nothing if that takes too long, because a message of that flow is too much work.
        """
        job = self._submit("probe", flow, _PROBE_BUDGET_BYTES)
        try:
            began_s = self._wait_for_start(job)
            last, last_s, is_full = self._watch(job, began_s + seconds)
            is_short = last.state in _OVER and last_s - began_s < seconds / 2
            if last.state not in _OVER:
                self._client.end_sources(job.id)
                last, last_s, _ = self._watch(job, last_s + max(seconds, _DRAIN_S_LEAST))
                if last.state not in _OVER:
                    return None
        finally:
            self._end(job)
        return self._told("probe", None, JobMetrics(), last, last_s - began_s, is_short=is_short, is_full=is_full)

    def measure(self, step: str, rate: float, flow: Dataflow, seconds: float, settle_s: float) -> Measurement:
        """Run a flow for so long and count what happens after it has settled; of one that ends by itself, all there was."""
        job = self._submit(step, flow)
        try:
            began_s = self._wait_for_start(job)
            first, first_s, is_full = self._watch(job, began_s + settle_s)
            last, last_s = first, first_s
            if first.state not in _OVER:
                last, last_s, is_full = self._watch(job, began_s + seconds)
        finally:
            self._end(job)
        is_short = last.state in _OVER and last_s - began_s < seconds / 2
        before = first.metrics
        if last.state in _OVER or last.metrics.rows_in == before.rows_in:  # or sources had to wait all the time
            before, first_s = JobMetrics(), began_s
        is_full = is_full or last.metrics.queued_bytes - before.queued_bytes > _GROWN_BYTES
        return self._told(step, rate, before, last, last_s - first_s, is_short=is_short, is_full=is_full)

    def _submit(self, step: str, flow: Dataflow, budget_bytes: int = BUDGET_BYTES) -> Job:
        """Submit a flow once the workers are free: a function of the run before may take its time."""
        until = time.monotonic() + _FREE_S
        while any(worker.state != "ready" or worker.running for worker in self._client.status().workers):
            if time.monotonic() >= until:
                raise ControlError(f"the workers are not free after {_FREE_S:.0f} s; see what they do with 'dirigo top'.")
            time.sleep(_LOOK_S)
        return self._client.submit(flow, name=f"{self._name[:_NAME_LETTERS_MOST]}.{step}", budget_bytes=budget_bytes)

    def _told(
        self, step: str, rate: float | None, first: JobMetrics, last: JobStatus, seconds: float, **flags: bool
    ) -> Measurement:
        metrics = last.metrics
        rows, busy_s = metrics.rows_in - first.rows_in, metrics.busy_s - first.busy_s
        if rows < 1 or busy_s <= 0 or seconds <= 0:
            raise ControlError(f"the sources of '{self._name}' gave no rows in {seconds:.1f} s; see that they have some.")
        latencies = {bucket: count - first.latencies.get(bucket, 0) for bucket, count in metrics.latencies.items()}
        workers = sum(worker.state == "ready" for worker in self._client.status().workers)
        return Measurement(
            step,
            rate,
            workers,
            seconds,
            rows,
            busy_s,
            sum(latencies.values()),
            percentiles({bucket: count for bucket, count in latencies.items() if count}),
            **flags,
        )

    def _wait_for_start(self, job: Job) -> float:
        """When its sources began."""
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            status = self._status(job)
            if status.started_s is not None:
                return status.started_s
            time.sleep(_LOOK_S)
        raise ControlError(f"job '{job.name}' did not start in {_START_S:.0f} s; see whether its workers are ready.")

    def _watch(self, job: Job, until_s: float) -> tuple[JobStatus, float, bool]:
        """How it is at that time, or when it ended before; when that was; and whether its sources had to wait until then."""
        looks = waits = 0
        while True:
            status = self._status(job)
            now_s = time.time()
            looks += 1
            waits += status.metrics.sources_paused
            is_full = waits > _FULL_SHARE * looks
            if status.state in _OVER:
                return status, status.ended_s or now_s, is_full
            if now_s >= until_s:
                return status, now_s, is_full
            time.sleep(min(_LOOK_S, max(0.0, until_s - now_s)))

    def _status(self, job: Job) -> JobStatus:
        status = job.status()
        if status.state == "failed":
            job.wait(_END_S)  # which raises what went wrong
        return status

    def _end(self, job: Job) -> None:
        with suppress(ControlError):  # it may be over
            job.cancel()
        until = time.monotonic() + _END_S
        with suppress(ControlError):
            while job.status().state not in _OVER and time.monotonic() < until:
                time.sleep(_LOOK_S)
