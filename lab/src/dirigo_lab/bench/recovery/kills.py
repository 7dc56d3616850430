"""How long a job is away whose worker was killed; and what a neighbour notices of that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from dirigo.runtime.client.job import Job
from dirigo_lab.bench.recovery.keyed_rows import KeyedResults, StateShape, keyed_flow
from dirigo_lab.bench.recovery.local_service import LocalService, wait_until

STEADY_S = 2.5  # a job has come back for good when it has run for a while: see ``STEADY_AFTER_S`` of the product
_LOAD_BYTES_PER_S = 30e6

Progress = Callable[[str], None]


@dataclass(frozen=True)
class AwayTimes:
    """In seconds: from when the loss was noticed until the job ran again; and from the kill on, until a row that fell due
    later had its result, and until a client had one, which with snapshots it gets when they are committed.
    """

    state_mb: int
    every_s: float
    kills: int
    runs_s: tuple[float, ...]
    made_s: tuple[float, ...]
    shown_s: tuple[float, ...]
    wrong: tuple[str, ...]

    @property
    def medians(self) -> tuple[float, float, float]:
        return median(self.runs_s), median(self.made_s), median(self.shown_s)

    @property
    def p99s(self) -> tuple[float, float, float]:
        runs_s, made_s, shown_s = (float(np.percentile(each, 99)) for each in (self.runs_s, self.made_s, self.shown_s))
        return runs_s, made_s, shown_s


@dataclass(frozen=True)
class Bystander:
    """What a job notices of a neighbour whose worker is killed again and again: lateness of its results."""

    kills: int
    calm_p50_ms: float
    calm_p99_ms: float
    p50_ms: float
    p99_ms: float
    recoveries: int  # of itself: none
    wrong: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.p99_ms / self.calm_p99_ms


def load_s(shape: StateShape) -> float:
    """How long the state takes to come into being, about."""
    return 1.0 + shape.total_bytes / _LOAD_BYTES_PER_S


def shape_of(state_mb: int) -> StateShape:
    """Few large keys for much state, so that making it does not take most of the time."""
    bytes_per_key = 1_000 if state_mb <= 1 else 10_000 if state_mb <= 200 else 100_000
    return StateShape(keys=state_mb * 1_000_000 // bytes_per_key, bytes_per_key=bytes_per_key, rows_per_s=100)


def measure_away(tell: Progress, folder: Path, state_mb: int, kills: int, every_s: float = 1.0) -> AwayTimes:
    """Kill one of two workers at a time, when the job has run for a while and all workers are there."""
    shape = shape_of(state_mb)
    runs, made, shown = [], [], []
    with LocalService(folder, 2, every_s) as service:
        tell(f"a state of {state_mb} MB comes into being")
        flow, results = keyed_flow(shape, "killed", load_s(shape))
        job = service.submit(flow)
        for number in range(kills):
            _until_steady(service, job, results, kills=number)
            time.sleep(0.37 * number % every_s)  # not always at the same distance from a snapshot
            tell(f"kill {number + 1} of {kills} with a state of {state_mb} MB")
            workers = job.status().workers
            killed_ms = service.kill(workers[number % len(workers)])
            wait_until(partial(results.first_due_after, killed_ms), "a result after the kill")
            found = results.first_due_after(killed_ms)
            assert found is not None
            status = job.status()
            assert status.recovered_in_s is not None
            runs.append(round(status.recovered_in_s, 3))
            made.append(round((found[0] - killed_ms) / 1000, 3))
            shown.append(round((found[1] - killed_ms) / 1000, 3))
        _until_steady(service, job, results, kills=kills)
        job.cancel()
    wrong = [*results.wrong, *([f"{results.missing()} rows are missing"] if results.missing() else [])]
    return AwayTimes(state_mb, every_s, kills, tuple(runs), tuple(made), tuple(shown), tuple(wrong))


def _until_steady(service: LocalService, job: Job, results: KeyedResults, kills: int) -> None:
    """Until the job has come back as often as it was killed, results are there, and a snapshot that began later."""
    service.wait_ready()
    wait_until(lambda: job.status().recoveries == kills and job.status().state == "running", "the job runs")
    steady_s = time.time() + STEADY_S
    wait_until(lambda: results.first_due_after(steady_s * 1000) is not None, "results are there")

    def is_kept() -> bool:
        snapshot = job.status().snapshot
        return snapshot is not None and snapshot.began_s > steady_s

    wait_until(is_kept, "a snapshot is there")


def measure_bystander(tell: Progress, folder: Path, kills: int, calm_s: float, rows_per_s: int = 200) -> Bystander:
    """Two jobs on five workers. The bystander has its three actors at three; the others are killed in turn.

    What it is compared with is as long before each kill: at one moment alone, the machine may be busier or quieter.
    """
    small = StateShape(keys=1_000, bytes_per_key=100, rows_per_s=rows_per_s, partitions=1)
    beside = StateShape(keys=1_000, bytes_per_key=1_000, rows_per_s=rows_per_s, partitions=8)
    before: list[tuple[float, float]] = []
    windows: list[tuple[float, float]] = []
    with LocalService(folder, 5, 1.0) as service:
        tell("a bystander and its neighbour begin")
        quiet_flow, quiet = keyed_flow(small, "bystander", load_s(small))
        bystander = service.submit(quiet_flow)
        flow, results = keyed_flow(beside, "neighbour", load_s(beside))
        neighbour = service.submit(flow)
        _until_steady(service, bystander, quiet, kills=0)
        _until_steady(service, neighbour, results, kills=0)
        for number in range(kills):
            tell(f"the bystander while its neighbour is well, {number + 1} of {kills}")
            calm_ms = time.time() * 1000
            time.sleep(calm_s / kills)
            before.append((calm_ms, time.time() * 1000))
            tell(f"the bystander while its neighbour crashes, {number + 1} of {kills}")
            mine = bystander.status().workers
            killed_ms = service.kill(next(worker for worker in neighbour.status().workers if worker not in mine))
            wait_until(partial(results.first_due_after, killed_ms), "the neighbour is back")
            windows.append((killed_ms, time.time() * 1000))
            _until_steady(service, neighbour, results, kills=number + 1)
        time.sleep(1.5)  # the last rows are shown with the next snapshot
        recoveries = bystander.status().recoveries
        for job in (bystander, neighbour):
            job.cancel()
    undisturbed = np.concatenate([quiet.late_ms(*window) for window in before])
    disturbed = np.concatenate([quiet.late_ms(*window) for window in windows])
    calm_p50, calm_p99 = (round(float(rank), 2) for rank in np.percentile(undisturbed, (50, 99)))
    p50, p99 = (round(float(rank), 2) for rank in np.percentile(disturbed, (50, 99)))
    return Bystander(kills, calm_p50, calm_p99, p50, p99, recoveries, (*quiet.wrong, *results.wrong))
