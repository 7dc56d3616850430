"""Flows in the simulator: virtual time that a test advances, results that it can look at, and chaos if it wants."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa

from dirigo.errors import DirigoError
from dirigo.flow.api.dataflow import Dataflow
from dirigo.flow.api.duration import Duration, milliseconds
from dirigo.flow.exchange.payloads import rows_of
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.emulation import Work
from dirigo.flow.sources.reader import SourceReader
from dirigo.kernel import Data, Directory, RunnableMessage, Trail, Worker, WorkerId, job_of, operator_of
from dirigo.scheduling import Chaos, Fifo
from dirigo.scheduling.accounting import Account, Satisfaction
from dirigo.sim.cluster import SimulatedCluster
from dirigo.sim.feed import Feed
from dirigo.sim.network import Network, disorderly_network
from dirigo.sim.service import ServiceTime, ServiceTimes
from dirigo.testing.scripted import ScriptedSource, ScriptedSplit
from dirigo.testing.simulated_flow import SimulatedFlow
from dirigo.testing.source_names import SourceNames
from dirigo.testing.strategies import SimulatedStrategy, factory_of

_log = logging.getLogger("dirigo")

ROWS_MAX = 4096
_POLL_S = 0.01
_SERVICE_S = 0.000_01
_EVENTS_MAX = 1_000_000_000  # a simulation that never ends is ended by its source


class Simulation:
    """One run of a flow, or of several that share the workers, deterministic for its seed.

    ``rows`` replaces what sources read, by the name of the source (or for the only one): lists of rows, with ``Pause`` and
    ``Abort`` in between. A source that is in ``open_sources`` gets its rows from ``push``, until ``end``.
    Results are collected instead of written, unless ``writes`` is set.
    ``strategy`` is what schedules: a name such as "edf", "module:Class", a ``Strategy``, or a function that makes the one of
    each worker from its number and a generator of random numbers. A dict says one for each flow, by the flow's name.

    Of several flows, ``simulation["name"]`` has the rows and figures of each. A source whose name several of them have is
    given as "flow/source".
    """

    def __init__(
        self,
        flow: Dataflow | Sequence[Dataflow],
        rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
        *,
        open_sources: str | Iterable[str] = (),
        workers: int = 1,
        seed: int = 0,
        chaos: bool = False,
        strategy: SimulatedStrategy | None = None,
        rows_max: int = ROWS_MAX,
        writes: bool = False,
        network: Network | None = None,
        service: ServiceTimes | None = None,
        begins_at_s: float = 0.0,
    ) -> None:
        if rows_max < 1:
            raise DirigoError(f"a source reads at least one row at a time, not {rows_max}.")
        if workers < 1:
            raise DirigoError(f"a simulation needs at least one worker, not {workers}.")
        flows = _all_different(flow)
        self._sources = SourceNames(flows)
        self._scripted = self._sources.stand_ins(rows, open_sources)
        self.flows: dict[str, SimulatedFlow] = {}
        directory = Directory()
        for number, each in enumerate(flows):
            ids = [(number + offset) % workers for offset in range(workers)]  # not all jobs begin at the same worker
            scripted = {source: script for (of, source), script in self._scripted.items() if of == each.name}
            made = self.flows[each.name] = SimulatedFlow(each, ids, scripted, writes=writes)
            directory.add_job(made.specs)
        if strategy is None:
            strategy = Chaos if chaos else Fifo
        jobs = [each.job for each in self.flows.values()]
        work = {address: _emulated(work) for job in jobs for address, work in job.work.items()}
        self.cluster = SimulatedCluster(
            workers,
            directory,
            factory_of(strategy, [job.properties for job in jobs]),
            network=network or (disorderly_network() if chaos else None),
            service=(service or ServiceTimes(_random_service if chaos else _SERVICE_S)).with_more(work),
            seed=seed,
            begins_at=begins_at_s,
            trace=self._note,
            fires_timers=True,
            measure=rows_of,
        )
        for made in self.flows.values():
            made.workers = self.cluster.workers.values()
        self.cluster.account = self._account
        self._rng = self.cluster.rng("sources")
        self._chaos = chaos
        self._rows_max = rows_max
        self._readers = [reader for job in jobs for reader in job.readers]
        self._feeds = {reader.address: self._feed(job, reader) for job in jobs for reader in job.readers}
        for reader in self._readers:
            reader.split.clock = lambda: self.cluster.now
            reader.split.read_for_s = float("inf")
            self.cluster.at(begins_at_s, lambda reader=reader: self._pump(reader))  # type: ignore[misc]

    def __getitem__(self, flow: str) -> SimulatedFlow:
        """One of the flows, by its name."""
        if flow not in self.flows:
            raise DirigoError(f"there is no flow {flow!r} in this simulation; it has {', '.join(self.flows)}.")
        return self.flows[flow]

    @property
    def _only(self) -> SimulatedFlow:
        if len(self.flows) > 1:
            first = next(iter(self.flows))
            raise DirigoError(
                f"several flows run in this simulation, {', '.join(self.flows)}: say which one is meant, for example "
                f"simulation['{first}'].rows()."
            )
        return next(iter(self.flows.values()))

    # --- time ----------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.cluster.now

    def advance(self, duration: Duration) -> None:
        """Let so much time go by."""
        self._run(until=self.cluster.now + milliseconds(duration, "advance") / 1000)

    def finish(self) -> Simulation:
        """End the open sources and run until nothing is left to do."""
        for reader in self._readers:
            if not reader.source.is_bounded:
                raise DirigoError(
                    f"the source '{reader.source.name}' never ends; use advance(...), or give it other rows with rows=..."
                )
        for source in self._scripted.values():
            source.end()
        self._run()
        unfinished = self.cluster.unfinished()
        for flow in self.flows.values():
            for operator, rows in flow.late_rows_dropped.items():
                _log.warning(
                    "%d row(s) came too late for '%s' and were dropped; take them with .late, or raise the source's "
                    "out_of_orderness",
                    rows,
                    operator if len(self.flows) == 1 else f"{flow.name}/{operator}",
                )
        if unfinished:
            names = ", ".join(f"'{name}'" for name in self.flows)
            which = f"flow {names}" if len(self.flows) == 1 else f"flows {names}"
            raise DirigoError(f"the {which} came to a standstill: {'; '.join(unfinished[:5])}.")
        return self

    def _run(self, **until: float) -> None:
        try:
            self.cluster.run(**until, max_events=_EVENTS_MAX)
        except BaseException:  # whatever failed, the jobs end here, as they would on a cluster
            for flow in self.flows.values():
                for reader in flow.job.readers:
                    with suppress(Exception):
                        reader.split.close()
                flow.job.abandon_sinks()
            raise

    # --- rows in -------------------------------------------------------------------------------------------------------

    def push(self, source: str, rows: Iterable[Any]) -> None:
        """Hand rows to an open source; they are read when time goes on."""
        self._open(source).push(rows)

    def end(self, source: str) -> None:
        """No more rows come from an open source."""
        self._open(source).end()

    def _open(self, source: str) -> ScriptedSource:
        script = self._scripted.get(self._sources.of(source))
        if script is None:
            raise DirigoError(f"'{source}' is no open source of this simulation; name it in open_sources=[...].")
        return script

    # --- of the only flow ----------------------------------------------------------------------------------------------

    @property
    def flow(self) -> Dataflow:
        return self._only.flow

    @property
    def job(self) -> BoundJob:
        return self._only.job

    def rows(self, sink: str | None = None) -> list[dict[str, Any]]:
        """What has come to a sink so far; the name can be left out if there is only one."""
        return self._only.rows(sink)

    def table(self, sink: str | None = None) -> pa.Table:
        return self._only.table(sink)

    @property
    def sinks(self) -> list[str]:
        return self._only.sinks

    def state(self, operator: str) -> dict[Any, dict[str, Any]]:
        """What a function holds now, wherever it ran: for each key, or partition, the value of each state."""
        return self._only.state(operator)

    @property
    def late_rows_dropped(self) -> dict[str, int]:
        """How many rows came too late and had nowhere to go, by the operator that they were too late for."""
        return self._only.late_rows_dropped

    @property
    def elsewhere(self) -> Counter[str]:
        """By operator: how many messages ran at a lessee."""
        return self._only.elsewhere

    @property
    def account(self) -> Account:
        return self._only.account

    @property
    def satisfaction(self) -> Satisfaction:
        """How well the flow's latency objective was met, in virtual time."""
        return self._only.satisfaction

    @property
    def latency_ms(self) -> dict[str, float]:
        """p50, p95, p99 and max of results, in virtual time."""
        return self._only.latency_ms

    # --- inside --------------------------------------------------------------------------------------------------------

    def _feed(self, job: BoundJob, reader: SourceReader) -> Feed:
        return self.cluster.source(reader.address, job.homes[reader.address], (reader.target,))

    def _pump(self, reader: SourceReader) -> None:
        """Read a source once, and come back when its next rows are due.

        Time goes as event time does, except in chaos, and except for sources that are open or keep to the clock themselves.
        """
        now = self.cluster.now
        feed = self._feeds[reader.address]
        before_ms, rows_before = reader.newest_ms, reader.rows
        rows_max = self._rng.randint(1, self._rows_max) if self._chaos else self._rows_max
        emissions = reader.read(rows_max, now)
        for emission in emissions:
            feed.source.emit(emission)
        if reader.has_ended:
            return
        due_s = reader.split.next_due_s
        if due_s is not None:
            wait_s = _POLL_S if due_s > now else 0.0
        elif emissions and not (isinstance(reader.split, ScriptedSplit) and reader.split.is_open):
            wait_s = max((reader.newest_ms - before_ms) / 1000, 0.0) if before_ms > 0 else 0.0
        else:
            wait_s = _POLL_S
        if self._chaos and emissions:  # faster than anybody can follow, so that much is under way at once
            wait_s = self._rng.uniform(0.0, _POLL_S)
        again_s = now + max(wait_s, _SERVICE_S)
        # Right after rows it is asked once more, and tells time; one that may become idle is asked all the time.
        if due_s is not None and reader.rows == rows_before and reader.source.idle_after_ms is None:
            again_s = max(again_s, due_s)
        self.cluster.at(again_s, lambda: self._pump(reader))

    def _account(self, worker: Worker, message: RunnableMessage, trail: Trail) -> None:
        flow = self.flows[job_of(message.to)]
        results = rows_of(message.payload) if type(message) is Data and message.to in flow.leaves else 0
        flow.account.note(message, worker.now, trail, results)

    def _note(self, _now: float, what: str, worker: WorkerId, message: Any) -> None:
        if what == "start":
            flow = self.flows[job_of(message.to)]
            if flow.job.homes[message.to] != worker:
                flow.elsewhere[operator_of(message.to)] += 1


def run(
    flow: Dataflow | Sequence[Dataflow], rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None, **options: Any
) -> Simulation:
    """Run a flow, or several together, in the simulator until all input has ended. Options as for ``Simulation``."""
    return Simulation(flow, rows, **options).finish()


def _all_different(flow: Dataflow | Sequence[Dataflow]) -> list[Dataflow]:
    """The flows, each with a name of its own."""
    flows = [flow] if isinstance(flow, Dataflow) or not isinstance(flow, Iterable) else list(flow)
    for each in flows:
        if not isinstance(each, Dataflow):
            raise DirigoError(f"a simulation runs flows, a dg.Dataflow or a list of them, not {type(each).__name__}.")
    if not flows:
        raise DirigoError("a simulation needs at least one flow.")
    names = Counter(each.name for each in flows)
    for name, count in names.items():
        if count > 1:
            raise DirigoError(f"{count} flows of this simulation have the name '{name}'; give each a name of its own.")
    return flows


def _random_service(_message: Any, rng: Random) -> float:
    return rng.uniform(0.0, 0.01)


def _emulated(work: Work) -> ServiceTime:
    def seconds(message: RunnableMessage, _: Random) -> float:
        return 0.0 if message.critical else work.seconds(message.payload)

    return seconds
