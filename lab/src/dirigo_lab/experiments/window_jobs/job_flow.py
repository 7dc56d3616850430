"""The windowed job of the experiments as a dataflow, for real workers: the same sources, functions, costs and windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count as numbers

import pyarrow as pa

from dirigo import SLO, Dataflow, Tumbling, to_nothing
from dirigo import max as largest
from dirigo.flow.exchange.partitions import partition_of
from dirigo.kernel import CriticalOutput
from dirigo_lab.experiments.window_jobs.scheduled_rows import Entry, ScheduledRows
from dirigo_lab.experiments.window_jobs.window_job import RunningJob, WindowJob

ROWS, WINDOWS = "rows", "windows"


def flow_of(job: WindowJob, seconds: float, begins_s: float | None = None) -> Dataflow:
    """The rows of so many seconds. Where its actors live is the cluster's business, not the job's.

    ``begins_s``: see ``ScheduledRows``.
    """
    flow = Dataflow(
        job.name,
        slo=SLO(latency=f"{round(job.objective_s * 1000)}ms", throughput=job.rows_per_s),
        splits=len(job.loads),
        partitions=job.windows,
        watermark_every="1ms",
        combines_early=False,
    )
    every = f"{round(job.window_every_s * 1000)}ms"
    schedules = (partial(_schedule, job, index, seconds) for index in range(len(job.loads)))
    rows = flow.source(ScheduledRows(*schedules, begins_s=begins_s))
    windows = rows.key_by("value").window(Tumbling(every)).aggregate(best=largest("due_s")).named(WINDOWS)
    if job.has_whole:
        windows = windows.window(Tumbling(every)).aggregate(best=largest("best")).named("whole")
    windows.sink(to_nothing())
    flow.emulate(ROWS, per_message=_microseconds(job.map_s))
    flow.emulate(WINDOWS, per_message=_microseconds(job.window_s))
    return flow


def _microseconds(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"


def _schedule(job: WindowJob, index: int, seconds: float) -> Iterator[Entry]:
    """What the simulator's source emits, with keys that are hashed to the very function that the map would choose."""
    keys = _keys(job.windows)
    targets = job.targets(index)
    for at, output in RunningJob(job).emissions(index, seconds, index / len(job.loads)):
        if isinstance(output, CriticalOutput):
            yield Entry(at, None)
        else:
            target = targets[job.choice(output.payload, len(targets))]
            yield Entry(at, keys[int(target.rpartition("/")[2])])


def _keys(partitions: int) -> list[int]:
    """A key for each partition."""
    found: dict[int, int] = {}
    for key in numbers():
        found.setdefault(int(partition_of([pa.array([key])], partitions)[0]), key)
        if len(found) == partitions:
            return [found[partition] for partition in range(partitions)]
    raise AssertionError("there are infinitely many numbers")
