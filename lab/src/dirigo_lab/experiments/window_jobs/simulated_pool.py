"""A simulated pool that runs windowed jobs: workers, a network and costs as measured, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dirigo.kernel import Directory, RunnableMessage, Trail, Worker, WorkerId, job_of, operator_of
from dirigo.scheduling import Strategy, for_worker
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTime, ServiceTimes
from dirigo_lab.experiments.costs.costs import RuntimeCosts
from dirigo_lab.experiments.experiment import Labels, Latencies, Outcome
from dirigo_lab.experiments.window_jobs.window_job import RunningJob, WindowJob

_EVENTS_MAX = 1_000_000_000


class SimulatedPool:
    """One run."""

    def __init__(self, workers: int, jobs: Sequence[WindowJob], strategy: Strategy, costs: RuntimeCosts, seed: int) -> None:
        self.seed = seed
        directory = Directory()
        self.jobs = {job.name: RunningJob(job) for job in jobs}
        times: dict[str, ServiceTime] = {}
        for job in jobs:
            specs = list(self.jobs[job.name].specs())
            directory.add_job(specs)
            seconds = {"map": job.map_s, "window": job.window_s, "whole": job.whole_s}
            for spec in specs:
                times[spec.address] = _service_time(seconds[operator_of(spec.address)] + costs.message_s, costs.critical_s)
        self.cluster = SimulatedCluster(
            workers,
            directory,
            lambda _worker, _rng: for_worker(strategy),
            network=Network(costs.hop_s),
            service=ServiceTimes(costs.message_s, times),
            seed=seed,
            fetch_s=costs.fetch_s,
        )
        self.cluster.account = self._note
        self._whose = {spec.address: (job_of(spec.address), spec.home) for spec in directory}
        self.busy_s = dict.fromkeys(range(workers), 0.0)
        self.executed: dict[str, Counter[WorkerId]] = {name: Counter() for name in self.jobs}
        self.elsewhere: Counter[str] = Counter()  # messages of each job that did not run at home
        self.in_time: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        rng = self.cluster.rng("phases")
        self._feeds = [
            (self.cluster.source(job.source(index), job.home(index), (job.map(index),)), run, index, rng.random())
            for job, run in ((run.job, run) for run in self.jobs.values())
            for index in range(len(job.loads))
        ]

    def run(self, labels: Labels, seconds: float, warm_up_s: float) -> Outcome:
        """Let rows come for so long, and everything be worked off. Results of the first seconds do not count."""
        for feed, run, index, phase in self._feeds:
            feed.play(run.emissions(index, seconds, phase))
        self.cluster.run(max_events=_EVENTS_MAX)
        latencies = [
            Latencies.of(
                name,
                run.job.objective_s * 1000,
                ((at, latency_s * 1000) for at, latency_s in run.results if at - latency_s > warm_up_s),
            )
            for name, run in self.jobs.items()
        ]
        return Outcome(labels, self.seed, latencies, self._figures(seconds), self._per_worker())

    def _note(self, worker: Worker, message: RunnableMessage, trail: Trail) -> None:
        address, now = message.to, worker.now
        name, home = self._whose[address]
        self.busy_s[worker.id] += trail[3] - message.trail[3]
        if not message.critical:
            self.messages[name] += 1
            self.executed[name][worker.id] += 1
            self.in_time[name] += now <= message.deadline
            if home != worker.id:
                self.elsewhere[name] += 1
        run = self.jobs[name]
        if run.closed:
            run.results.extend((now, now - over_s) for over_s in run.closed)
            run.closed.clear()

    def _figures(self, seconds: float) -> dict[str, float]:
        workers = self.cluster.workers
        rounds = [counts for worker in workers.values() for counts in worker.rounds.values()]
        figures: dict[str, float] = {
            "utilisation": sum(self.busy_s.values()) / max(seconds, self.cluster.now) / len(workers),
            "messages": self.messages.total(),
            "elsewhere": self.elsewhere.total(),
            "rounds": sum(each[0] for each in rounds),
            "rounds_with_lessees": sum(each[1] for each in rounds),
            "events": self.cluster.metrics.events,
            "control": self.cluster.metrics.control_delivered,
            "ended_s": self.cluster.now,
        }
        for name in self.jobs:
            figures[f"in_time_messages:{name}"] = self.in_time[name] / max(1, self.messages[name])
        return figures

    def _per_worker(self) -> dict[str, list[float]]:
        ids = sorted(self.cluster.workers)
        per_worker = {
            f"messages:{name}": [float(counts[worker]) for worker in ids] for name, counts in self.executed.items()
        }
        in_all = [float(sum(counts[worker] for counts in self.executed.values())) for worker in ids]
        return per_worker | {"messages": in_all, "busy_s": [self.busy_s[worker] for worker in ids]}


def _service_time(data_s: float, critical_s: float) -> ServiceTime:
    def seconds(message: RunnableMessage, _rng: Any) -> float:
        return critical_s if message.critical else data_s

    return seconds
