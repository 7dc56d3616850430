"""A flow in the simulator: virtual time that a test advances, results that it can look at, and chaos if it wants."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pyarrow as pa

from dirigo.flow.api.dataflow import Dataflow, SourceNode, live_nodes
from dirigo.flow.api.duration import Duration, milliseconds
from dirigo.flow.api.strategy import strategy_of
from dirigo.flow.exchange.payloads import rows_of
from dirigo.flow.operators.sink_rows import SinkRows
from dirigo.flow.plan.emulation import Work
from dirigo.flow.plan.job import Job
from dirigo.flow.sinks.memory import MemorySink
from dirigo.flow.sources.reader import SourceReader
from dirigo.flow.sources.source import Source
from dirigo.kernel import Data, Directory, DirigoError, RunnableMessage, Trail, Worker, WorkerId, operator_of
from dirigo.scheduling import Chaos, Fifo, Strategy, StrategyLike, for_worker
from dirigo.scheduling.accounting import Account, Satisfaction, percentiles
from dirigo.sim.cluster import SimulatedCluster, StrategyFactory
from dirigo.sim.feed import Feed
from dirigo.sim.network import Network, disorderly_network
from dirigo.sim.service import ServiceTime, ServiceTimes
from dirigo.testing.scripted import ScriptedSource

_log = logging.getLogger("dirigo")

ROWS_MAX = 4096
_POLL_S = 0.01
_SERVICE_S = 0.000_01
_EVENTS_MAX = 1_000_000_000  # a simulation that never ends is ended by its source


class Simulation:
    """One run of a flow, deterministic for its seed.

    ``rows`` replaces what sources read, by the name of the source (or for the only one): lists of rows, with ``Pause`` and
    ``Abort`` in between. A source that is in ``open_sources`` gets its rows from ``push``, until ``end``.
    Results are collected instead of written, unless ``writes`` is set.
    ``strategy`` is what schedules: a name such as "edf", "module:Class", a ``Strategy``, or a function that makes the one of
    each worker from its number and a generator of random numbers.
    """

    def __init__(
        self,
        flow: Dataflow,
        rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
        *,
        open_sources: str | Iterable[str] = (),
        workers: int = 1,
        seed: int = 0,
        chaos: bool = False,
        strategy: StrategyLike | StrategyFactory | None = None,
        rows_max: int = ROWS_MAX,
        writes: bool = False,
        network: Network | None = None,
        service: ServiceTimes | None = None,
    ) -> None:
        if rows_max < 1:
            raise DirigoError(f"a source reads at least one row at a time, not {rows_max}.")
        if workers < 1:
            raise DirigoError(f"a simulation needs at least one worker, not {workers}.")
        self.flow = flow
        self._scripted = _stand_ins(flow, rows, open_sources)
        nodes = live_nodes(flow)
        self._collected = {node.name: MemorySink(node.name) for node in nodes if isinstance(node.work, SinkRows)}
        ids = list(range(workers))
        self.job = Job(flow, ids, sources=self._scripted, sinks=None if writes else self._collected)
        self.job.prepare_sinks()
        specs = self.job.specs(performs_work=False)  # its time goes by on the virtual clock
        directory = Directory()
        directory.add_job(specs)
        if strategy is None:
            strategy = Chaos if chaos else Fifo
        self.elsewhere: Counter[str] = Counter()  # operator -> messages that ran at a lessee
        self.cluster = SimulatedCluster(
            workers,
            directory,
            _factory(strategy),
            network=network or (disorderly_network() if chaos else None),
            service=(service or ServiceTimes(_random_service if chaos else _SERVICE_S)).with_more(
                {address: _emulated(work) for address, work in self.job.work.items()}
            ),
            seed=seed,
            trace=self._note,
            fires_timers=True,
            measure=rows_of,
        )
        self._leaves = {spec.address for spec in specs if not spec.downstreams}
        self.account = Account()  # of what was executed: latencies, how much was in time, and why not
        self.cluster.account = self._account
        self._rng = self.cluster.rng("sources")
        self._chaos = chaos
        self._rows_max = rows_max
        self._feeds = {reader.address: self._feed(reader) for reader in self.job.readers}
        for reader in self.job.readers:
            reader.split.clock = lambda: self.cluster.now
            reader.split.read_for_s = float("inf")
            self.cluster.at(0.0, lambda reader=reader: self._pump(reader))  # type: ignore[misc]

    # --- time ----------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.cluster.now

    def advance(self, duration: Duration) -> None:
        """Let so much time go by."""
        self.cluster.run(until=self.cluster.now + milliseconds(duration, "advance") / 1000, max_events=_EVENTS_MAX)

    def finish(self) -> Simulation:
        """End the open sources and run until nothing is left to do."""
        for reader in self.job.readers:
            if not reader.source.is_bounded:
                raise DirigoError(
                    f"the source '{reader.source.name}' never ends; use advance(...), or give it other rows with rows=..."
                )
        for source in self._scripted.values():
            for split in source.opened:
                split.end()
        self.cluster.run(max_events=_EVENTS_MAX)
        unfinished = self.cluster.unfinished()
        for operator, rows in self.late_rows_dropped.items():
            _log.warning(
                "%d row(s) came too late for '%s' and were dropped; take them with .late, or raise the source's "
                "out_of_orderness",
                rows,
                operator,
            )
        if unfinished:
            raise DirigoError(f"the flow '{self.flow.name}' came to a standstill: {'; '.join(unfinished[:5])}.")
        return self

    # --- rows in, rows out ---------------------------------------------------------------------------------------------

    def push(self, source: str, rows: Iterable[Any]) -> None:
        """Hand rows to an open source; they are read when time goes on."""
        for split in self._open(source).opened:
            split.push(rows)

    def end(self, source: str) -> None:
        """No more rows come from an open source."""
        for split in self._open(source).opened:
            split.end()

    def rows(self, sink: str | None = None) -> list[dict[str, Any]]:
        """What has come to a sink so far; the name can be left out if there is only one."""
        return self._sink(sink).rows

    def table(self, sink: str | None = None) -> pa.Table:
        return self._sink(sink).table

    def _sink(self, sink: str | None) -> MemorySink:
        if sink is None and len(self._collected) == 1:
            (sink,) = self._collected
        if sink not in self._collected:
            raise DirigoError(f"name one of the sinks {', '.join(self._collected)}, not {sink!r}.")
        return self._collected[sink]

    @property
    def late_rows_dropped(self) -> dict[str, int]:
        """How many rows came too late and had nowhere to go, by the operator that they were too late for."""
        return dict(+self.job.plan.late_rows_dropped)

    @property
    def sinks(self) -> list[str]:
        return list(self._collected)

    @property
    def satisfaction(self) -> Satisfaction:
        """How well the flow's latency objective was met, in virtual time."""
        return self.account.report()

    @property
    def latency_ms(self) -> dict[str, float]:
        """p50, p95, p99 and max of results, in virtual time."""
        return percentiles(self.account.latencies)

    # --- inside --------------------------------------------------------------------------------------------------------

    def _feed(self, reader: SourceReader) -> Feed:
        return self.cluster.source(reader.address, self.job.homes[reader.address], (reader.target,))

    def _open(self, source: str) -> ScriptedSource:
        if source not in self._scripted:
            raise DirigoError(f"'{source}' is no open source of this simulation; name it in open_sources=[...].")
        return self._scripted[source]

    def _pump(self, reader: SourceReader) -> None:
        """Read a source once, and come back when its next rows are due.

        Time goes as event time does, except in chaos, and except for a source that keeps to the clock itself.
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
        elif emissions:
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
        results = rows_of(message.payload) if type(message) is Data and message.to in self._leaves else 0
        self.account.note(message, worker.now, trail, results)

    def _note(self, _now: float, what: str, worker: WorkerId, message: Any) -> None:
        if what == "start" and self.job.homes[message.to] != worker:
            self.elsewhere[operator_of(message.to)] += 1


def run(flow: Dataflow, rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None, **options: Any) -> Simulation:
    """Run a flow in the simulator until its input has ended. Options as for ``Simulation``."""
    return Simulation(flow, rows, **options).finish()


def _factory(given: StrategyLike | StrategyFactory) -> StrategyFactory:
    if callable(given) and not isinstance(given, Strategy | type):
        return given
    pattern = strategy_of(given)
    return lambda *_: for_worker(pattern)


def _random_service(_message: Any, rng: Random) -> float:
    return rng.uniform(0.0, 0.01)


def _emulated(work: Work) -> ServiceTime:
    def seconds(message: RunnableMessage, _: Random) -> float:
        return 0.0 if message.critical else work.seconds(message.payload)

    return seconds


def _stand_ins(
    flow: Dataflow, rows: Mapping[str, Iterable[Any]] | Iterable[Any] | None, open_sources: str | Iterable[str]
) -> dict[str, ScriptedSource]:
    sources: dict[str, Source] = {node.name: node.source for node in flow.nodes if isinstance(node, SourceNode)}
    open_sources = [open_sources] if isinstance(open_sources, str) else list(open_sources)
    scripts: dict[str, Iterable[Any]] = {}
    if isinstance(rows, Mapping):
        scripts = dict(rows)
    elif rows is not None:
        if len(sources) != 1:
            raise DirigoError(f"say which rows are for which source: rows={{...}} with the names {', '.join(sources)}.")
        scripts = {next(iter(sources)): rows}
    for name in [*scripts, *open_sources]:
        if name not in sources:
            raise DirigoError(f"the flow '{flow.name}' has no source '{name}'; it has {', '.join(sources)}.")
    stand_ins = {name: ScriptedSource(sources[name], script) for name, script in scripts.items()}
    stand_ins |= {name: ScriptedSource(sources[name], ends=False) for name in open_sources}
    return stand_ins
