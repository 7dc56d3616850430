"""Workers on Spark are killed at random moments while queries run: each row is in files and results logs, once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from statistics import median

import pytest

import dirigo as dg
from dirigo.runtime.client.job import Job
from dirigo.runtime.controller.recovery import LOSSES_MOST
from nexmark.flows_on_spark import NAMES, RATE, SlowTables, answers, assert_rows, flow_of
from runtime.clusters import until
from spark import standalone

STEADY_S = 2.5  # after which a snapshot makes losses no longer count as losses in a row, and some more
OVER = ("finished", "failed", "cancelled")
PATIENCE_S = 180.0


class WorkerKills:
    """Kills workers, and notes how long it takes until it is noticed and until all jobs run again."""

    def __init__(self, cluster: dg.Cluster, jobs: Mapping[str, Job], random: Random, victim: Callable[[int], int]) -> None:
        self._victim = victim
        self._cluster = cluster
        self._jobs = jobs
        self._random = random
        self._in_row = 0
        self.noticed_s: list[float] = []
        self.running_s: list[float] = []

    def kill(self) -> None:
        """A worker that serves a job: one that has come back only helps, until another one is lost."""
        statuses = {name: job.status() for name, job in self._jobs.items()}
        ready = until(self._ready, "a worker that serves a job is ready")
        worker = self._random.choice(sorted(ready))
        before = {name: status.recoveries for name, status in statuses.items() if worker in status.workers}
        began_s = time.monotonic()
        os.kill(self._victim(ready[worker]), signal.SIGKILL)
        until(lambda: self._have_noticed(before), "the jobs notice")
        self.noticed_s.append(time.monotonic() - began_s)
        until(self._all_run, "the jobs run again")
        self.running_s.append(time.monotonic() - began_s)

    def pause(self) -> None:
        """For a moment, or until losses before no longer count."""
        if self._in_row < LOSSES_MOST and self._random.random() < 0.6:
            time.sleep(self._random.uniform(0.0, 1.5))
        else:
            self._in_row = 0
            steady_s = time.time() + STEADY_S
            until(lambda: self.is_over() or self._have_snapshots_of(steady_s), "snapshots of jobs that have run for a while")
            time.sleep(self._random.uniform(0.0, 1.0))
        self._in_row += 1

    def told(self) -> str:
        both = [f"{median(times):.2f} s, at most {max(times):.2f} s" for times in (self.noticed_s, self.running_s)]
        return f"{len(self.noticed_s)} kills: noticed within {both[0]}; running again within {both[1]}"

    def _ready(self) -> dict[int, int]:
        """The processes of workers that serve a job, by worker."""
        serving = {worker for job in self._jobs.values() for worker in job.status().workers}
        workers = self._cluster.status().workers
        return {worker.id: worker.pid for worker in workers if worker.state == "ready" and worker.id in serving}

    def _have_noticed(self, before: Mapping[str, int]) -> bool:
        return self.is_over() or all(self._jobs[name].status().recoveries > count for name, count in before.items())

    def _all_run(self) -> bool:
        return all(job.status().state in ("running", "draining", *OVER) for job in self._jobs.values())

    def _have_snapshots_of(self, moment_s: float) -> bool:
        snapshots = [job.status().snapshot for job in self._jobs.values()]
        return all(snapshot is not None and snapshot.began_s > moment_s for snapshot in snapshots)

    def is_over(self) -> bool:
        return any(job.status().state in OVER for job in self._jobs.values())


def process_of(worker: int) -> int:
    return worker


def executor_of(worker: int) -> int:
    """A worker's parent is PySpark's daemon, whose parent is the executor."""
    return parent(parent(worker))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def check(
    folder: Path,
    names: tuple[str, ...],
    seed: int,
    *,
    kills: int,
    seconds: float,
    speed: float = 1.0,
    workers: int = 2,
    master: str | None = None,
    victim: Callable[[int], int] = process_of,
) -> str:
    """Kill so often while the queries run; what that took. Raises if a row is lost or there twice."""
    out, events = folder / "out", round(RATE * seconds * speed)
    with dg.Cluster(workers, master=master, snapshots=folder / "snapshots", every="500ms") as cluster:
        cluster.wait_ready()
        flows = {name: flow_of(name, out, SlowTables(events, speed=speed), splits=workers) for name in names}
        jobs = {name: cluster.submit(flow) for name, (flow, _) in flows.items()}
        until(lambda: all(job.metrics().rows_in for job in jobs.values()), "all jobs read")
        disturber = WorkerKills(cluster, jobs, Random(seed), victim)
        for _ in range(kills):
            disturber.pause()
            if disturber.is_over():  # the machine is busy, and all rows were read before
                break
            disturber.kill()
        statuses = {name: job.wait(PATIENCE_S) for name, job in jobs.items()}
        assert len(disturber.running_s) > kills // 3
        assert sum(status.recoveries for status in statuses.values()) >= len(disturber.running_s)
        results = {name: memory.table for name, (_, memory) in flows.items()}
    assert_rows(out, results, answers(names, events, folder / "events"))
    return disturber.told()


def tell(sentence: str) -> None:
    sys.stderr.write(f"\n{sentence}\n")


def test_rows_are_there_once_after_three_kills(tmp_path: Path) -> None:
    tell(check(tmp_path, ("q12_event", "timed"), 1, kills=3, seconds=9, speed=3))


@pytest.mark.acceptance
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_all_queries_are_there_once_after_ten_kills(tmp_path: Path, seed: int) -> None:
    tell(check(tmp_path, NAMES, seed, kills=10, seconds=80, workers=2 + seed % 2))


@pytest.mark.acceptance
def test_rows_are_there_once_after_the_kill_of_an_executor(tmp_path: Path) -> None:
    with standalone.cluster(tmp_path) as master:
        tell(check(tmp_path, NAMES, 1, kills=1, seconds=30, workers=3, master=master, victim=executor_of))
