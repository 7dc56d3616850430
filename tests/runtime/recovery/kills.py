"""One job that is disturbed at random moments, as a seed says."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import dirigo as dg
from dirigo.runtime.client.job import Job
from dirigo.runtime.control import WorkerStatus
from dirigo.runtime.controller.recovery import LOSSES_MOST
from runtime.clusters import LocalCluster, is_alive, until
from runtime.recovery.flows_to_kill import differences, flow_of, left_files, results_of

PATIENCE_S = 90.0


@cache
def undisturbed(rows: int) -> dict[str, Counter[str]]:
    with TemporaryDirectory() as folder:
        flow, out = flow_of(Path(folder), rows)
        dg.run(flow)
        return results_of(Path(folder), out)


class Disturber:
    """Kills workers, and has them sleep for a while."""

    def __init__(self, cluster: LocalCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self.done: list[str] = []
        self._killed: list[WorkerStatus] = []

    @property
    def may_go_on(self) -> bool:
        """A job that loses workers too often in a row fails, as it should. Who was frozen may have been lost, too."""
        return len(self.done) < LOSSES_MOST

    def kill(self) -> None:
        if self.may_go_on:
            self._signal(signal.SIGKILL)

    def freeze(self, seconds: float) -> None:
        """A worker that does not move for so long; it may have been given up when it wakes up."""
        pid = self._signal(signal.SIGSTOP)
        time.sleep(seconds)
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_until_it_recovers(self, job: Job) -> None:
        """Unless the job has lost a worker: kill one after the other until it has. It must not be able to end meanwhile."""
        for number in range(self._cluster.controller.wanted):
            until(lambda: job.status().metrics.rows_in > 0 or job.status().recoveries, "it has begun")
            self._until_noticed()
            if job.status().recoveries:
                return
            self._hit(self._cluster.worker(number), signal.SIGKILL)
        self._until_noticed()
        assert job.status().recoveries, self.done

    def _until_noticed(self) -> None:
        """Until all who were killed have a successor."""
        killed = {(worker.id, worker.incarnation) for worker in self._killed}
        until(lambda: killed.isdisjoint((each.id, each.incarnation) for each in self._cluster.workers()), "all is noticed")
        self._cluster.until_ready()

    def _signal(self, number: signal.Signals) -> int:
        assert self.may_go_on
        workers = [worker for worker in self._cluster.workers() if worker.pid and is_alive(worker.pid)]
        return self._hit(self._random.choice(workers), number) if workers else 0

    def _hit(self, worker: WorkerStatus, number: signal.Signals) -> int:
        self.done.append(f"{number.name} to worker {worker.id} at {time.monotonic() - self._began_s:.2f} s")
        if number == signal.SIGKILL:
            self._killed.append(worker)
        os.kill(worker.pid, number)
        return worker.pid

    def begin(self) -> None:
        self._began_s = time.monotonic()


def _wait_for_recovery(job: Job, before: int) -> None:
    """For a while: a worker that has nothing of the job may have been hit."""
    with suppress(AssertionError):
        until(lambda: job.status().recoveries > before or job.status().ended_s, "it recovers", 3.0)


def disturb(folder: Path, seed: int, *, rows: int = 3_000, most: int = 2) -> str:
    """Run a job to its end through kills; returns what was seen. Raises if a row is lost or there twice, and if the job
    did not have to recover."""
    random = Random(seed)
    wanted = undisturbed(rows)
    gate = folder / "gate"
    flow, out = flow_of(folder / "out", rows, gate)
    with LocalCluster(
        folder / "logs",
        workers=random.choice([2, 3]),
        snapshots=folder / "snapshots",
        every_s=random.choice([0.1, 0.3, 1.0]),
    ) as cluster:
        disturber = Disturber(cluster, random)
        job = cluster.submit(flow)
        disturber.begin()
        if random.random() < 0.8:
            until(lambda: job.status().metrics.rows_in > 0, "it has begun")
        for _ in range(random.randint(1, most)):
            how = random.random()
            if not disturber.may_go_on:
                break
            if how < 0.2:
                before = job.status().recoveries
                disturber.kill()
                _wait_for_recovery(job, before)
                time.sleep(random.random() * 0.3)
                disturber.kill()
            elif how < 0.35:
                disturber.freeze(random.choice([0.3, 1.0]))
            elif how < 0.5:
                disturber.kill_until_it_recovers(job)
                gate.touch()
                until(lambda: job.status().metrics.rows_in >= rows * 5 // 4 or job.status().ended_s, "all is read")
                time.sleep(random.random() * 0.3)
                disturber.kill()
            else:
                time.sleep(random.random() * 2)
                disturber.kill()
        disturber.kill_until_it_recovers(job)
        gate.touch()
        try:
            status = job.wait(PATIENCE_S)
        except TimeoutError as error:
            raise AssertionError(f"seed {seed} hangs after {disturber.done}: {job.status()}") from error
        assert status.state == "finished", (seed, disturber.done, status.error)
        assert status.recoveries > 0, (seed, disturber.done)
        found = results_of(folder / "out", out)
        wrong = differences(found, wanted)
        assert not wrong, (seed, disturber.done, status.recoveries, wrong)
        assert not left_files(folder / "out"), (seed, disturber.done, left_files(folder / "out"))
        return f"seed {seed}: {status.recoveries} recoveries, the last in {status.recovered_in_s}, {disturber.done}"
