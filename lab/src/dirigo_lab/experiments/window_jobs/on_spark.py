"""Runs windowed jobs on a real cluster, and notes what the simulator notes: the latencies of results, and some figures.

Workers count latencies in buckets a sixteenth of an octave wide, and tell them now and then: a latency is known within 3 %,
and when it came, within the time between two looks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dirigo import Dataflow
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import JobStatus
from dirigo.scheduling import StrategyLike
from dirigo.scheduling.accounting import milliseconds_of
from dirigo_lab.experiments.experiment import Labels, Latencies, Outcome
from dirigo_lab.experiments.window_jobs.job_flow import flow_of
from dirigo_lab.experiments.window_jobs.window_job import WindowJob
from dirigo_lab.jobs import give_up

STARTS_S = 1.0  # the moment of the first row of a schedule: times count from a second before
_INSTALLING_S = 2.0  # until all workers have a job
_LOOK_S = 0.25
_BEAT_S = 1.0  # workers tell at least so often
_OVER = ("finished", "cancelled", "failed")


def run_jobs(
    cluster: Any,
    jobs: Sequence[WindowJob],
    strategy: StrategyLike,
    labels: Labels,
    seed: int,
    seconds: float,
    warm_up_s: float,
) -> Outcome:
    """Run jobs together until all is worked off. Results of the first seconds do not count.

    All sources begin at the same moment, as in the simulator. Were each to begin when its worker has the job, they would be
    some milliseconds apart, others in each run, and so would be the ends of windows, for which all workers have to compute.
    """
    objectives_ms = {job.name: job.objective_s * 1000 for job in jobs}
    begins_s = time.time() + _INSTALLING_S
    flows = [flow_of(job, seconds, begins_s) for job in jobs]
    return run_flows(cluster, flows, objectives_ms, strategy, labels, seed, warm_up_s, zero_s=begins_s - STARTS_S)


def run_flows(
    cluster: Any,
    flows: Sequence[Dataflow],
    objectives_ms: Mapping[str, float],
    strategy: StrategyLike,
    labels: Labels,
    seed: int,
    warm_up_s: float,
    *,
    zero_s: float | None = None,
) -> Outcome:
    """The same for any flows. ``zero_s``: from when times count; otherwise from the start of each job."""
    handles: dict[str, Job] = {}
    before = _messages(cluster)
    try:
        for flow in flows:
            handles[flow.name] = cluster.submit(flow, strategy=strategy)
        results = _follow(handles, zero_s)
        ended = {name: handle.wait() for name, handle in handles.items()}
    except BaseException:
        for handle in handles.values():
            give_up(handle)
        raise
    latencies = [
        Latencies.of(name, objectives_ms[name], [(at, ms) for at, ms in results[name] if at - ms / 1000 > warm_up_s])
        for name in handles
    ]
    after = _messages(cluster)
    per_worker = {"messages": [float(after[worker] - before.get(worker, 0)) for worker in sorted(after)]}
    return Outcome(labels, seed, latencies, _figures(cluster, ended), per_worker)


def _messages(cluster: Any) -> dict[int, int]:
    """What each worker has executed so far, as its last beat told."""
    time.sleep(_BEAT_S)
    return {worker.id: worker.messages for worker in cluster.status().workers}


def _follow(handles: Mapping[str, Job], zero_s: float | None) -> dict[str, list[tuple[float, float]]]:
    """Look at jobs until they are over; each job's results: when, in seconds since then, and their latency in ms."""
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in handles}
    seen: dict[str, dict[int, int]] = {name: {} for name in handles}
    while True:
        statuses = {name: handle.status() for name, handle in handles.items()}
        for name, status in statuses.items():
            if status.started_s is None:
                continue
            since_s = status.started_s if zero_s is None else zero_s
            at = (time.time() if status.ended_s is None else status.ended_s) - since_s
            counts = status.metrics.latencies
            for bucket, count in counts.items():
                new = count - seen[name].get(bucket, 0)
                results[name].extend([(at, milliseconds_of(bucket))] * new)
            seen[name] = dict(counts)
        states = {status.state for status in statuses.values()}
        if states <= set(_OVER) or "failed" in states:
            return results
        time.sleep(_LOOK_S)


def _figures(cluster: Any, ended: Mapping[str, JobStatus]) -> dict[str, float]:
    metrics = {name: status.metrics for name, status in ended.items()}
    seconds = max((status.ended_s or 0.0) - (status.started_s or 0.0) for status in ended.values())
    workers = len(cluster.status().workers)
    figures: dict[str, float] = {
        "utilisation": sum(each.busy_s for each in metrics.values()) / seconds / workers,
        "messages": sum(each.messages for each in metrics.values()),
        "elsewhere": sum(each.forwarded for each in metrics.values()),
        "rounds": sum(each.barriers for each in metrics.values()),
        "rounds_with_lessees": sum(each.gathered for each in metrics.values()),
        "ended_s": seconds,
    }
    for name, each in metrics.items():
        figures[f"in_time_messages:{name}"] = each.satisfaction.messages or 0.0
    return figures
