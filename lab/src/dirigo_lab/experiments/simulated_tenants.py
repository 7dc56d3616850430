"""The same tenants in the simulator: a whole pool in virtual time, which no other work on this machine disturbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from dirigo import Dataflow
from dirigo.flow.api.strategy import strategy_of
from dirigo.flow.exchange.payloads import rows_of
from dirigo.flow.operators.windows.windowed import Windowed
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.emulation import Work
from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import Address, CriticalRun, Data, Directory, RunnableMessage, Trail, Worker, WorkerId, job_of
from dirigo.runtime.control import JobMetrics
from dirigo.runtime.worker.executor import PACED_EVERY_S
from dirigo.runtime.worker.installed_job import MESSAGE_LEAST_S, MESSAGE_SHARE
from dirigo.scheduling import StrategyLike, for_worker
from dirigo.scheduling.accounting import Account, percentiles
from dirigo.sim.cluster import FetchTime, SimulatedCluster
from dirigo.sim.cores import Cores
from dirigo.sim.feed import Feed
from dirigo.sim.network import Network
from dirigo.sim.service import ServiceTime, ServiceTimes
from dirigo_lab.demo.contest import LOOK_S, WARM_UP_S, Run, Sample, TenantRun
from dirigo_lab.demo.tenants import Tenant
from dirigo_lab.experiments.costs.costs import RuntimeCosts

HOP_S = 0.0008  # as measured between two workers on one machine
MESSAGE_COST_S = 0.0003  # what the runtime takes per message beside the work
_POLL_S = 0.005
_ROWS_MAX = 16_384
_EVENTS_MAX = 100_000_000


def simulate_tenants(
    tenants: Sequence[Tenant],
    strategy: StrategyLike,
    seconds: float,
    workers: int,
    *,
    seed: int = 0,
    name: str | None = None,
) -> Run:
    """Run tenants together on a simulated pool until their bids are worked off."""
    message_s = max(MESSAGE_LEAST_S, MESSAGE_SHARE * min(tenant.latency_ms for tenant in tenants) / 1000)
    pool = FlowPool([tenant.flow(seconds) for tenant in tenants], strategy, workers, seed)
    for tenant in tenants:
        for reader in pool.jobs[tenant.query].readers:
            reader.message_rows = max(1, int(message_s * 1000 / tenant.bid_ms))
    pool.run()
    together_s = max(pool.ended_s.values())
    runs = {tenant.query: pool.tenant_run(tenant) for tenant in tenants}
    return Run(name or str(strategy), runs, sum(pool.busy_s.values()) / together_s / workers)


class FlowPool:
    """Flows that run together on a simulated pool, as on a cluster: the same actors at the same places."""

    def __init__(
        self,
        flows: Sequence[Dataflow],
        strategy: StrategyLike,
        workers: int,
        seed: int,
        *,
        costs: RuntimeCosts | None = None,
    ) -> None:
        """``costs``: as measured by ``dirigo costs``, on cores that all workers share; otherwise a guess."""
        pattern = strategy_of(strategy)
        directory = Directory()
        self.jobs: dict[str, BoundJob] = {}
        more = {}
        for number, flow in enumerate(flows):
            ids = [(number + 1 + offset) % workers for offset in range(workers)]  # not all jobs begin at the same worker
            job = self.jobs[flow.name] = BoundJob(flow, ids)
            job.prepare_sinks()
            directory.add_job(job.specs(performs_work=False))
            for address, work in job.work.items():
                more[address] = _working(work, 0.0 if costs is None else costs.wake_s)
        self.leaves = {
            address
            for job in self.jobs.values()
            for stage in job.plan.stages
            for address, downstreams in zip(stage.addresses, stage.downstreams, strict=True)
            if not downstreams
        }
        self.cluster = SimulatedCluster(
            workers,
            directory,
            lambda _worker, _rng: for_worker(pattern),
            network=Network(HOP_S if costs is None else max(0.0, costs.hop_s - 2 * costs.packet_s)),
            service=ServiceTimes(MESSAGE_COST_S if costs is None else 0.0).with_more(more),
            seed=seed,
            fires_timers=True,
            measure=rows_of,
            fetch_s=0.0 if costs is None else _fetching(costs),
            cores=None if costs is None else Cores(costs.cores, workers, costs.idle_share),
            computing=None if costs is None else _Computing(costs, self.jobs.values()),
            packet_s=0.0 if costs is None else costs.packet_s,
            send_s=0.0 if costs is None else costs.send_s,
            tells_loads=costs is not None,
        )
        self.cluster.account = self._note
        self.cluster.trace = self._trace
        self.accounts = {name: Account() for name in self.jobs}
        self.results: dict[str, list[tuple[float, float]]] = {name: [] for name in self.jobs}  # (when, latency) in seconds
        self.recent: dict[str, Counter[int]] = {name: Counter() for name in self.jobs}
        self.samples: dict[str, list[Sample]] = {name: [] for name in self.jobs}
        self.warm_up: dict[str, Counter[int]] = {name: Counter() for name in self.jobs}
        self.forwarded: Counter[str] = Counter()
        self.busy_s = dict.fromkeys(self.jobs, 0.0)
        self.ended_s: dict[str, float] = dict.fromkeys(self.jobs, 0.0)
        self.homes = {address: home for job in self.jobs.values() for address, home in job.homes.items()}
        self._unread: dict[WorkerId, list[Callable[[], None]]] = {worker: [] for worker in range(workers)}
        for job in self.jobs.values():
            for reader in job.readers:
                reader.split.clock = lambda: self.cluster.now
                reader.split.read_for_s = float("inf")
                feed = self.cluster.source(reader.address, job.homes[reader.address], (reader.target,))
                self.cluster.at(0.0, lambda reader=reader, feed=feed: self._pump(reader, feed))  # type: ignore[misc]

    def run(self) -> None:
        """Until all is worked off."""
        while not self.cluster.quiescent():
            self.cluster.run(until=self.cluster.now + LOOK_S, max_events=_EVENTS_MAX)
            self._sample()

    def _pump(self, reader: SourceReader, feed: Feed) -> None:
        """Read what is due. A worker reads its sources between messages: see the runtime's executor."""
        worker = feed.host.worker
        if worker.running is not None:
            self._unread[worker.id].append(lambda: self._pump(reader, feed))
            return
        now = self.cluster.now
        for emission in reader.read(_ROWS_MAX, now):
            feed.source.emit(emission)
        if not reader.has_ended:
            due_s = reader.split.next_due_s
            # A worker that has nothing to do sleeps until the next row is due, or looks every now and then.
            again_s = now + _POLL_S if due_s is None else max(now + PACED_EVERY_S, due_s)
            self.cluster.at(again_s, lambda: self._pump(reader, feed))

    def _note(self, worker: Worker, message: RunnableMessage, trail: Trail) -> None:
        job = job_of(message.to)
        results = rows_of(message.payload) if type(message) is Data and message.to in self.leaves else 0
        self.accounts[job].note(message, worker.now, trail, results)
        self.busy_s[job] += trail[3] - message.trail[3]
        self.ended_s[job] = worker.now
        if results:
            self.results[job].extend([(worker.now, worker.now - message.created)] * results)
        unread = self._unread[worker.id]
        if unread:
            self._unread[worker.id] = []
            for read in unread:
                read()

    def _trace(self, _now: float, what: str, worker: int, message: Any) -> None:
        if what == "start" and self.homes[message.to] != worker:
            self.forwarded[job_of(message.to)] += 1

    def _sample(self) -> None:
        for job, account in self.accounts.items():
            new = Counter(account.latencies)
            new.subtract(self.recent[job])
            self.recent[job] = Counter(account.latencies)
            if self.cluster.now <= WARM_UP_S:
                self.warm_up[job] = self.recent[job]
            found = percentiles(+new)
            if found:
                self.samples[job].append(Sample(self.cluster.now, found["p50"], found["p99"]))

    def tenant_run(self, tenant: Tenant) -> TenantRun:
        name = tenant.query
        account = self.accounts[name]
        rounds = [host.rounds.get(name, (0, 0)) for host in self.cluster.workers.values()]
        metrics = JobMetrics(
            rows_in=sum(reader.rows for reader in self.jobs[name].readers),
            rows_out=account.results,
            messages=account.messages,
            forwarded=self.forwarded[name],
            barriers=sum(each[0] for each in rounds),
            gathered=sum(each[1] for each in rounds),
            busy_s=self.busy_s[name],
            latency_ms=percentiles(account.latencies),
            latencies=account.latencies,
            satisfaction=account.report(),
        )
        return TenantRun(name, metrics, self.ended_s[name], tenant.latency_ms, self.samples[name], self.warm_up[name])


def _working(work: Work, wake_s: float) -> ServiceTime:
    """What is emulated by sleeping, and how much longer a worker then sleeps."""
    return lambda message, _rng: 0.0 if message.critical else work.seconds(message.payload) + wake_s


def _fetching(costs: RuntimeCosts) -> FetchTime:
    """What it takes to take a message in: if it comes alone, mostly waking up."""
    return lambda _message, is_awake: costs.reply_s if is_awake else costs.fetch_s


class _Computing:
    """What the worker thread computes for a message."""

    def __init__(self, costs: RuntimeCosts, jobs: Iterable[BoundJob]) -> None:
        self._costs = costs
        self._upstreams = {
            address: len(upstreams)
            for job in jobs
            for stage in job.plan.stages
            if isinstance(stage.operator, Windowed)
            for address, upstreams in zip(stage.addresses, stage.upstreams, strict=True)
        }
        self._told: Counter[tuple[Address, Any]] = Counter()  # by actor and time, until all upstream actors have told it

    def __call__(self, message: RunnableMessage, _rng: Random) -> float:
        if not isinstance(message, CriticalRun):
            return self._costs.message_s + self._costs.operator_s
        return self._costs.critical_s + (self._costs.closing_s if self._closes(message) else 0.0)

    def _closes(self, message: CriticalRun) -> bool:
        """Whether it is the last word of a time at a windowed operator."""
        upstreams = self._upstreams.get(message.to)
        if upstreams is None:
            return False
        told = (message.to, message.payload)
        self._told[told] += 1
        if self._told[told] < upstreams:
            return False
        del self._told[told]
        return True
