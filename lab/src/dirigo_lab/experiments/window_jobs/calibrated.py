"""The latency objective of a simulated job, the paper's way: alone, constant input, half utilisation, twice the tail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dirigo.flow.sources.load_shapes import constant
from dirigo.scheduling import Fifo, Strategy
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.window_jobs.simulated_pool import SimulatedPool
from dirigo_lab.experiments.window_jobs.window_job import WindowJob

UTILISATION = 0.5
_RESULTS = 64  # windows; of the tail of fewer, chance decides
_WARM_UP_S = 1.0


def calibrated_s(job: WindowJob, workers: int, costs: RuntimeCosts, strategy: Strategy | None = None) -> float:
    """Seconds. The job's own loads do not matter: they are replaced by a constant one, the same at all sources.

    ``strategy``: for a job with so few functions that it has to scale in order to take half of the workers; FIFO otherwise.
    """
    rate_per_s = workers * UTILISATION / message_s(job, costs)
    alone = replace(job, loads=[constant(rate_per_s / len(job.loads))] * len(job.loads), objective_s=float("inf"))
    pool = SimulatedPool(workers, [alone], strategy or Fifo(), costs, 0)
    results = _RESULTS if job.has_whole else max(8, _RESULTS // job.windows)
    outcome = pool.run({}, _WARM_UP_S + (results + 1) * job.window_every_s, _WARM_UP_S)
    return 2 * float(np.percentile(outcome.latencies[0].latency_ms, 99)) / 1000


def message_s(job: WindowJob, costs: RuntimeCosts) -> float:
    """What a row of a source takes of the workers in all."""
    return job.map_s + job.window_s + 2 * costs.message_s
