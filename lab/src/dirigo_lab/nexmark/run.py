"""Runs one Nexmark query: its generated events through a flow on a host, and its rows into files or into a count."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dirigo import SLO, Dataflow, FlowError, Sink, to_callback, to_parquet
from dirigo.flow.api.strategy import strategy_of
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.sources.reader import SourceReader
from dirigo.nexmark.generator import RATE, Generator
from dirigo.nexmark.sources import EventSource
from dirigo.scheduling import Fifo, Strategy, StrategyLike, name_of
from dirigo.scheduling.accounting import Satisfaction
from dirigo.sim.inline import InlineHost
from dirigo.testing import Simulation
from dirigo_lab.nexmark.queries import QUERIES, Query
from dirigo_lab.nexmark.tables import GeneratedTables

HOSTS = ("spark", "sim")
ROWS_AT_ONCE = 4096
_SIMULATED_STEP = timedelta(milliseconds=100)  # of virtual time, between two looks at how far the sources are
_STEPS_MOST = 1_000

Progress = Callable[[int], None]


@dataclass(frozen=True)
class RunReport:
    """What one run of a query came to."""

    query: str
    events: int
    """How many events of the timeline were gone through; the query reads only the kinds that it needs."""
    rows: int
    seconds: float
    """Wall-clock time from the first event read to the last row written."""
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    """p50, p95, p99 and max, from the moment at which events were due to their results; where the host measures it."""
    strategy: str = ""
    slo: SLO | None = None
    satisfaction: Satisfaction = field(default_factory=Satisfaction)
    """How well the objective was met; where the host measures it."""
    forwarded: int = 0
    """Messages that ran at another worker than their actor's home."""

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds


def run_query(
    name: str,
    events: int,
    rate: int = RATE,
    out: Path | None = None,
    host: str = "sim",
    *,
    workers: int = 1,
    chaos: bool = False,
    seed: int = 0,
    strategy: StrategyLike | None = None,
    slo: SLO | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Run a query over the first `events` events. Its rows go to OUT/<query>/*.parquet, or are only counted.

    `strategy`: what schedules, first come first served if not given, or anything at random with `chaos`. `progress` is
    told, now and then, how many of the events have been read.
    """
    query = query_named(name)
    check_run(events, rate, host, workers)
    rows_seen: list[int] = []
    if host != "sim":
        raise FlowError("run_query runs in this process; use run_on_cluster with a cluster on Spark.")
    sink: Sink
    if out is None:
        sink = to_callback(lambda batch: rows_seen.append(batch.num_rows), batches=True, name="count")
    else:
        sink = to_parquet(out / query.name, mode="overwrite")
    flow = Dataflow(query.name, slo=slo)
    query.function(flow, GeneratedTables(events, rate)).sink(sink)
    chosen = strategy_of(strategy) if strategy is not None else None if chaos else Fifo()
    seconds, forwarded = _run_on_sim(flow, workers, chaos, seed, chosen, _told_in_events(events, progress))
    rows = sum(rows_seen) if out is None else _rows_in(out / query.name)
    named = "" if chosen is None else name_of(chosen)
    return RunReport(query.name, events, rows, seconds, strategy=named, slo=slo, forwarded=forwarded)


def query_named(name: str) -> Query:
    """The query of that name; an error that names the nearest one if there is none."""
    if name in QUERIES:
        return QUERIES[name]
    nearest = get_close_matches(name, QUERIES, n=1, cutoff=0.3)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"choose one of {', '.join(QUERIES)}."
    raise FlowError(f"there is no query '{name}'; {hint}")


def check_run(events: int, rate: int, host: str, workers: int) -> None:
    """Refuse what no query can be run with."""
    if events < 1:
        raise FlowError(f"{events} events are too few; ask for at least 1.")
    Generator(rate=rate)  # knows which rates there are
    if host not in HOSTS:
        raise FlowError(f"there is no host '{host}'; use {' or '.join(HOSTS)}.")
    if workers < 1:
        raise FlowError(f"{workers} workers are too few; ask for at least 1.")


# --- hosts -----------------------------------------------------------------------------------------------------------------

_Look = Callable[[list[SourceReader]], None]


def _run_on_sim(
    flow: Dataflow, workers: int, chaos: bool, seed: int, strategy: Strategy | None, look: _Look
) -> tuple[float, int]:
    """Run a flow in this process; the seconds that it took, and how many messages ran at another worker than their home.

    One worker that nothing disturbs needs no simulated network or clock: it runs as quickly as it can, by the real clock.
    """
    if workers == 1 and not chaos and type(strategy) is Fifo:
        job = BoundJob(flow)
        job.prepare_sinks()
        host = InlineHost(job.specs(), Fifo(), time.time)
        began = time.perf_counter()
        host.run(job.readers, ROWS_AT_ONCE, lambda: look(job.readers))
        return time.perf_counter() - began, 0
    how: dict[str, Any] = {"workers": workers, "chaos": chaos, "seed": seed, "strategy": strategy}
    simulation = Simulation(flow, **how, rows_max=ROWS_AT_ONCE, writes=True)
    readers = simulation.job.readers
    began = time.perf_counter()
    # Virtual time goes as event time does, which may be days: no more than so many looks.
    for _ in range(_STEPS_MOST):
        if all(reader.has_ended for reader in readers):
            break
        simulation.advance(_SIMULATED_STEP)
        look(readers)
    simulation.finish()
    look(readers)
    return time.perf_counter() - began, simulation.elsewhere.total()


def _told_in_events(events: int, progress: Progress | None) -> _Look:
    """Tell how many events of the timeline have been read, from the rows of the kinds that a query reads."""

    def look(readers: list[SourceReader]) -> None:
        if progress is not None:
            sources = [reader.source for reader in readers]
            rows = sum(source.total or 0 for source in sources if isinstance(source, EventSource))
            done = sum(reader.rows for reader in readers)
            progress(events * done // rows if rows else events)

    return look


def _rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("part-*.parquet"))
