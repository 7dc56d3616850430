"""What experiments on this machine's Spark have in common: a job that workers on a few cores can take, and its objective.

Work is emulated by sleeping, so that several workers mean something on a few cores, and messages are long beside what the
runtime computes for them on the same cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dirigo.errors import DirigoError
from dirigo.flow.sources.load_shapes import Load, constant
from dirigo_lab.experiments.experiment import Size
from dirigo_lab.experiments.window_jobs.on_spark import run_jobs
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

WORKERS = 8
MAP_S, WINDOW_S = 0.001, 0.010
RUNTIME_S = 0.0008  # about what the runtime takes on top, for both messages of a row
WINDOW_EVERY_S = 1.0  # long beside messages: a barrier lets one worker alone go on
SECONDS = {Size.FULL: 30.0, Size.QUICK: 12.0, Size.TINY: 4.0}
WARM_UP_S = 3.0  # the source's own second, and until workers know what messages cost
_CALIBRATION_S = 12.0
_RESIZE_S = 60.0
_LOOK_S = 0.1

_objectives: WeakKeyDictionary[Any, dict[tuple[str, int, int], float]] = WeakKeyDictionary()


def window_job(
    name: str, loads: Sequence[Load], functions: int, objective_s: float, *, shuffles: bool = False, has_whole: bool = True
) -> WindowJob:
    return WindowJob(
        name,
        loads,
        range(WORKERS),
        functions,
        MAP_S,
        WINDOW_S,
        WINDOW_EVERY_S,
        objective_s,
        shuffles=shuffles,
        has_whole=has_whole,
    )


def rate(workers: int, utilisation: float) -> float:
    """Rows per second over all sources that keep so many workers busy for so much of the time."""
    return workers * utilisation / (MAP_S + WINDOW_S + RUNTIME_S)


def calibrated_s(cluster: Any, job: WindowJob, workers: int) -> float:
    """The paper's way, on real workers: alone, constant input, half utilisation, twice the tail. Once per cluster."""
    known = _objectives.setdefault(cluster, {})
    key = (job.name, job.windows, workers)
    if key not in known:
        load = constant(rate(workers, 0.5) / len(job.loads))
        alone = replace(job, loads=[load] * len(job.loads), objective_s=60.0)
        outcome = run_jobs(cluster, [alone], "fifo", {}, 0, _CALIBRATION_S + WARM_UP_S, WARM_UP_S)
        known[key] = 2 * float(np.percentile(outcome.latencies[0].latency_ms, 99)) / 1000
    return known[key]


@contextmanager
def workers_of(cluster: Any, workers: int) -> Iterator[None]:
    """So many workers for a while, of a cluster at rest."""
    before: int | None = len(cluster.status().workers)
    _resize(cluster, workers)
    try:
        yield
    except KeyboardInterrupt:
        before = None  # the cluster is about to be stopped: nobody waits until workers have been started once more
        raise
    finally:
        if before is not None:
            _resize(cluster, before)


def _resize(cluster: Any, workers: int) -> None:
    cluster.resize(workers)
    until = time.monotonic() + _RESIZE_S
    while len(cluster.status().workers) != workers:
        if time.monotonic() > until:
            raise DirigoError(f"the cluster still does not have {workers} workers after {_RESIZE_S:.0f} s.")
        time.sleep(_LOOK_S)
    cluster.wait_ready()


def assumptions(window_every_s: float = WINDOW_EVERY_S) -> list[str]:
    return [
        (
            f"{WORKERS} workers on the cores of one machine. A row takes {MAP_S * 1000:g} ms at its map and "
            f"{WINDOW_S * 1000:g} ms at "
            "its window function, in which the worker sleeps: what is measured is scheduling, not computing."
        ),
        f"Windows are {window_every_s * 1000:g} ms long. Latencies are known within 3 %.",
    ]
