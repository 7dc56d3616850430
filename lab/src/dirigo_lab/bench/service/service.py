"""What the service on Spark costs and gives, beside Structured Streaming and bare sockets, in one run on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from dirigo import to_callback, to_memory, to_nothing
from dirigo.runtime.control import JobStatus
from dirigo.spark.cluster import Cluster
from dirigo.spark.input.source import from_spark
from dirigo_lab.bench.service import structured_streaming
from dirigo_lab.bench.service.flows import COLUMNS, BidsInRealTime, hops, over_files, over_source
from dirigo_lab.bench.service.raw_messages import HopCost, measure_hop
from dirigo_lab.bench.service.structured_streaming import StreamingFigures, StreamingLatency, write_bid_files

QUERIES = ("q7", "q12_event")
THROUGHPUT_LEAST = 3.0  # times Structured Streaming's events per second
LATENCY_MOST = 0.1  # times its p99
MANY_ACTORS = 100

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ServiceSizes:
    """How much is measured."""

    events: int = 10_000_000
    repeats: int = 3
    latency_s: float = 20.0
    hop_rows: int = 2_000
    burst_rows: int = 20_000
    worker_counts: tuple[int, ...] = (2, 8, 32)
    actor_counts: tuple[int, ...] = (10, 100, 1_000, 10_000)
    few_events: int = 2_000_000  # for the counts of workers and actors
    fewest_events: int = 100_000  # for thousands of actors, which leave few rows to a message


QUICK_SERVICE = ServiceSizes(
    events=2_000_000,
    repeats=2,
    latency_s=10.0,
    hop_rows=500,
    burst_rows=5_000,
    worker_counts=(2, 8),
    actor_counts=(10, 100, 1_000),
    few_events=500_000,
    fewest_events=50_000,
)


@dataclass(frozen=True)
class QueryCost:
    """One query from the same files, by both engines on the same cores."""

    query: str
    bids: int
    bids_per_s: float
    one_worker_bids_per_s: float
    from_spark_bids_per_s: float
    streaming: StreamingFigures

    @property
    def ratio(self) -> float:
        return self.bids_per_s / self.streaming.events_per_s


@dataclass(frozen=True)
class Latency:
    """How long after the end of its window, of 1 s, a result was at the client, at the same rate for both engines."""

    query: str
    rate_per_s: int
    results: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    streaming: StreamingLatency

    @property
    def ratio(self) -> float:
        return self.p99_ms / self.streaming.p99_ms


@dataclass(frozen=True)
class Hop:
    """One message from an actor's code at one worker to another's at another, and a bare socket as the limit."""

    hop_us: float
    hop_p99_us: float
    messages_per_s: float
    limit: HopCost


@dataclass(frozen=True)
class CountCost:
    """What many workers, or many actors, cost on the same cores."""

    what: str
    count: int
    bids_per_s: float


@dataclass(frozen=True)
class ServiceReport:
    """Everything that was measured of the service."""

    start_s: float  # from nothing to workers that are ready
    first_result_s: float  # from nothing to the rows of a first small job
    queries: tuple[QueryCost, ...]
    latencies: tuple[Latency, ...]
    hop: Hop
    counts: tuple[CountCost, ...]

    def over_budget(self) -> tuple[str, ...]:
        slow = [f"{each.query} on Spark" for each in self.queries if each.ratio < THROUGHPUT_LEAST]
        late = [f"{each.query}'s latency" for each in self.latencies if each.ratio > LATENCY_MOST]
        return (*slow, *late)


def measure_service(tell: Progress, sizes: ServiceSizes) -> ServiceReport:
    """Run everything, one thing after the other."""
    with TemporaryDirectory(prefix="dirigo-bench-") as folder:
        events = Path(folder) / "events"
        tell("nothing yet: writing bids to files")
        bids = write_bid_files(events, sizes.events)
        few = Path(folder) / "few"
        few_bids = write_bid_files(few, sizes.few_events)
        fewest = Path(folder) / "fewest"
        fewest_bids = write_bid_files(fewest, sizes.fewest_events)
        spark = {}
        for query in QUERIES:
            tell(f"Structured Streaming's {query}")
            spark[query] = structured_streaming.throughput(query, events, repeats=sizes.repeats)
        tell("the start of a cluster")
        began = time.perf_counter()
        with Cluster(2) as cluster:
            cluster.wait_ready()
            start_s = time.perf_counter() - began
            cluster.run(over_files("q7", few, to_memory(), splits=1), name="first")
            first_result_s = time.perf_counter() - began
            fast = {query: _best(cluster, query, events, bids, 2, sizes.repeats, tell) for query in QUERIES}
            pushed = {query: _from_spark(cluster, query, events, bids, sizes.repeats, tell) for query in QUERIES}
            tell("one hop")
            hop = _hop(cluster, sizes)
            latencies = []
            for query in QUERIES:
                rate = int(spark[query].events_per_s / 2)
                tell(f"{query}'s latency")
                latencies.append((query, rate, _latency(cluster, query, rate, sizes.latency_s)))
            counts = [
                _actors(cluster, *((few, few_bids) if count <= MANY_ACTORS else (fewest, fewest_bids)), count, tell)
                for count in sizes.actor_counts
            ]
        with Cluster(1) as cluster:
            cluster.wait_ready()
            alone = {query: _best(cluster, query, events, bids, 1, sizes.repeats, tell) for query in QUERIES}
        counts += [_workers(few, few_bids, count, tell) for count in sizes.worker_counts]
        beside = []
        for query, rate, found in latencies:
            tell(f"Structured Streaming's {query} at {rate:,} bids per second")
            theirs = structured_streaming.latency(query, rate, sizes.latency_s, spark[query].settings)
            p50, p99, longest = (round(float(rank), 2) for rank in np.percentile(found, (50, 99, 100)))
            beside.append(Latency(query, rate, len(found), p50, p99, longest, theirs))
        costs = tuple(QueryCost(query, bids, fast[query], alone[query], pushed[query], spark[query]) for query in QUERIES)
    return ServiceReport(round(start_s, 2), round(first_result_s, 2), costs, tuple(beside), hop, tuple(counts))


def _best(cluster: Cluster, query: str, events: Path, bids: int, workers: int, repeats: int, tell: Progress) -> float:
    tell(f"{query} on {workers} worker{'s' if workers > 1 else ''}")
    times = [_seconds(cluster.run(over_files(query, events, to_nothing(), splits=workers))) for _ in range(repeats + 1)]
    return bids / min(times[1:])  # the first run warms up


def _from_spark(cluster: Cluster, query: str, events: Path, bids: int, repeats: int, tell: Progress) -> float:
    """The whole way: Spark reads the files as a stream, its tasks push the rows to the workers."""
    tell(f"{query} fed by Spark")
    folder = str(events / "bid")
    schema = cluster.spark.read.parquet(folder).schema
    times = []
    for _ in range(repeats + 1):
        stream = cluster.spark.readStream.schema(schema).option("maxFilesPerTrigger", 20).parquet(folder)
        rows = from_spark(stream.select(*COLUMNS[query]), time="date_time", trigger="availableNow", name="bids")
        times.append(_seconds(cluster.run(over_source(query, rows, to_nothing(), "10s", splits=2))))
    return bids / min(times[1:])


def _seconds(status: JobStatus) -> float:
    assert status.ended_s is not None
    assert status.started_s is not None
    return status.ended_s - status.started_s


def _latency(cluster: Cluster, query: str, rate: int, seconds: float) -> list[float]:
    """Milliseconds from the end of a window to the arrival of each of its rows at the client; the first windows warm up."""
    found: list[tuple[int, float]] = []  # end of the window, how late the result was

    def arrived(batch: pa.RecordBatch) -> None:
        now_ms = time.time() * 1000
        if "window_end" in batch.schema.names:
            ends = batch.column("window_end").cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
        else:  # q7 gives bids as they were
            ends = (batch.column("date_time").cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy() // 1000 + 1) * 1000
        found.extend((int(end), now_ms - float(end)) for end in ends)

    warm_up_s = 3
    start_ms = int(time.time() + 2) * 1000
    source = BidsInRealTime(query, rate, start_ms, seconds + warm_up_s + 1)
    cluster.run(over_source(query, source, to_callback(arrived, batches=True), "1s"))
    last_ms = start_ms + (seconds + warm_up_s) * 1000  # the last window ends with the stream, not with its time
    return [late for end, late in found if start_ms + warm_up_s * 1000 <= end <= last_ms]


def _hop(cluster: Cluster, sizes: ServiceSizes) -> Hop:
    paced = to_memory()
    cluster.run(hops(sizes.hop_rows, 500, paced))
    times = np.array(paced.table.column("hop_us"))[sizes.hop_rows // 10 :]
    began = cluster.run(hops(sizes.burst_rows, None, to_nothing()))
    per_s = sizes.burst_rows / _seconds(began)
    limit = measure_hop(curve=True)
    return Hop(round(float(np.median(times)), 1), round(float(np.percentile(times, 99)), 1), round(per_s), limit)


def _actors(cluster: Cluster, events: Path, bids: int, count: int, tell: Progress) -> CountCost:
    tell(f"{count:,} actors")
    flow: Any = over_files("q12_event", events, to_nothing(), splits=2, partitions=count)
    return CountCost("actors", count, bids / _seconds(cluster.run(flow, name=f"actors-{count}")))


def _workers(events: Path, bids: int, count: int, tell: Progress) -> CountCost:
    tell(f"{count} workers")
    with Cluster(count) as cluster:
        cluster.wait_ready(300)
        times = []
        for _ in range(2):
            flow = over_files("q12_event", events, to_nothing(), splits=min(count, 8), partitions=max(4, count))
            times.append(_seconds(cluster.run(flow)))
    return CountCost("workers", count, bids / min(times))
