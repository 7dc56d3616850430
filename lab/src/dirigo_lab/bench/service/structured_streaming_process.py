"""The process that `structured_streaming` starts: the queries in a Spark session of its own, figures on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dirigo_lab.bench.service.paced_bids import PacedBids
from dirigo_lab.bench.service.structured_streaming import StreamingFigures, StreamingLatency, StreamingSettings
from dirigo_lab.nexmark.oracles import duckdb_oracle
from dirigo_lab.nexmark.oracles.comparison import difference
from dirigo_lab.nexmark.oracles.spark_oracle import local_session

WINDOW_S = 10  # of both queries
LATENCY_WINDOW_S = 1
START_AFTER_S = 2  # until then the query is planned
SETTLE_S = 3  # windows in which a new query catches up with what fell due while it started
BEHIND_MOST_S = 300  # a query that is later than this does not keep up, even on a busy machine with a cold Java
COLUMNS = {"q7": ("auction", "bidder", "price", "date_time", "extra"), "q12_event": ("bidder", "date_time")}
_SESSION = {"spark.driver.memory": "4g"}
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_BATCHES_REMEMBERED = 100_000
_SQL = {
    "q7": """
        SELECT best.auction, best.bidder, best.price, best.date_time, best.extra, window_end
        FROM (
            SELECT MAX(STRUCT(price, auction, bidder, date_time, extra)) AS best, window_end
            FROM placed
            GROUP BY window_end
        )
        """,
    "q12_event": """
        SELECT bidder, COUNT(*) AS bid_count, window_end - INTERVAL {seconds} SECONDS AS window_start, window_end
        FROM placed
        GROUP BY bidder, window_end
        """,
}


def measure_throughput(
    spark: Any, query: str, events: Path, candidates: Sequence[StreamingSettings], repeats: int, warm_ups: int
) -> list[StreamingFigures]:
    """The best run with each of the settings, after a run whose answer is looked at and some that warm Java up."""
    results = _checked_results(spark, query, events, candidates[0])
    for _ in range(warm_ups):
        _run_over_files(spark, query, events, candidates[0])
    runs = [(choice, *_run_over_files(spark, query, events, choice)) for _ in range(repeats) for choice in candidates]
    found = [
        StreamingFigures(
            query=query,
            settings=choice,
            bids=sum(batch["numInputRows"] for batch in batches),
            results=results,
            seconds=seconds,
            cpu_s=cpu_s,
            per_batch_s=_durations(batches),
        )
        for choice, seconds, cpu_s, batches in runs
    ]
    return [min((each for each in found if each.settings == choice), key=lambda each: each.seconds) for choice in candidates]


def measure_latency(
    spark: Any, query: str, rate_per_s: int, seconds: float, settings: StreamingSettings, warm_up_seconds: float
) -> StreamingLatency:
    """The latencies of all windows that end in so many `seconds`, however late they come.

    Before them go a whole query that warms Java up, for at least `warm_up_seconds`, and the first windows of the second one.
    """
    _run_paced(spark, query, PacedBids(rate_per_s, _start_ms()), settings, (0, warm_up_seconds))
    bids = PacedBids(rate_per_s, _start_ms())
    seen, batches = _run_paced(spark, query, bids, settings, (SETTLE_S, SETTLE_S + seconds))
    latencies_ms = [latency_ms for _, latency_ms in seen]
    p50, p95, p99 = np.percentile(latencies_ms, (50, 95, 99)).tolist()
    return StreamingLatency(
        query=query,
        rate_per_s=rate_per_s,
        settings=settings,
        results=len(seen),
        windows=len({end_ms for end_ms, _ in seen}),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=max(latencies_ms),
        per_batch_s=_durations(batches),
    )


def _run_paced(
    spark: Any, query: str, bids: PacedBids, settings: StreamingSettings, span_s: tuple[float, float]
) -> tuple[list[tuple[int, float]], list[Any]]:
    """End and latency of every row whose window ends in the span, counted from the start, and Spark's batches."""
    from dirigo_lab.bench.service.structured_streaming_source import NAME, PacedBidsSource

    session = _session(spark, settings)
    session.dataSource.register(PacedBidsSource)
    options = {"rate_per_s": bids.rate_per_s, "start_ms": bids.start_ms, "columns": ",".join(COLUMNS[query])}
    first_ms, last_ms = (bids.start_ms + 1000 * end_s for end_s in span_s)
    seen: list[tuple[int, float]] = []
    is_last_there = Event()

    def look(rows: pa.Table) -> None:
        now_ms = time.time() * 1000
        ends_ms = rows["window_end"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        seen.extend((end_ms, now_ms - end_ms) for end_ms in ends_ms if first_ms < end_ms <= last_ms)
        if ends_ms and max(ends_ms) >= last_ms:  # a window's rows come together, and after those of the windows before it
            is_last_there.set()

    stream = session.readStream.format(NAME).options(**options).load()
    with TemporaryDirectory(prefix="dirigo-streaming-", dir=_folder_in_memory()) as checkpoint:
        result = _result(session, query, stream, LATENCY_WINDOW_S)
        writer = result.writeStream.foreachBatch(lambda batch, _: look(batch.toArrow()))
        running = _start(writer.trigger(processingTime="0 seconds"), checkpoint)
        try:
            _wait_for(running, is_last_there, last_ms / 1000 + BEHIND_MOST_S, bids.rate_per_s)
            return seen, running.recentProgress
        finally:
            running.stop()


def _run_over_files(
    spark: Any, query: str, events: Path, settings: StreamingSettings, look: Callable[[pa.Table], None] | None = None
) -> tuple[float, float, list[Any]]:
    """Seconds on the wall, seconds of the processors, and what Spark says about each batch."""
    session = _session(spark, settings)
    folder = str(events / "bid")
    schema = session.read.parquet(folder).schema
    stream = session.readStream.schema(schema).option("maxFilesPerTrigger", settings.files_per_batch).parquet(folder)
    writer = _result(session, query, stream, WINDOW_S).writeStream
    writer = writer.format("noop") if look is None else writer.foreachBatch(lambda batch, _: look(batch.toArrow()))
    is_once = settings.trigger == "available now"
    writer = writer.trigger(availableNow=True) if is_once else writer.trigger(processingTime="0 seconds")
    with TemporaryDirectory(prefix="dirigo-streaming-", dir=_folder_in_memory()) as checkpoint:
        begin, begin_cpu_s = time.perf_counter(), _java_cpu_s(spark)
        running = _start(writer, checkpoint)
        try:
            if is_once:
                running.awaitTermination()
            else:
                running.processAllAvailable()
            seconds, cpu_s = time.perf_counter() - begin, _java_cpu_s(spark) - begin_cpu_s
            return seconds, cpu_s, running.recentProgress
        finally:
            running.stop()


def _checked_results(spark: Any, query: str, events: Path, settings: StreamingSettings) -> int:
    """How many rows come out, after comparing them with DuckDB's. The last window stays open: nothing comes after it."""
    tables: list[pa.Table] = []
    _run_over_files(spark, query, events, settings, tables.append)
    answer = pa.concat_tables(tables)
    if query == "q7":
        answer = answer.drop_columns("window_end")
    last_file = max((events / "bid").glob("*.parquet"))
    latest = pc.max(pq.read_table(last_file, columns=["date_time"])["date_time"]).as_py()
    expected = duckdb_oracle.run(query, events)
    started = expected["date_time" if query == "q7" else "window_start"]
    still_open = int(latest.timestamp()) // WINDOW_S * WINDOW_S
    expected = expected.filter(pc.less(started.cast(pa.int64()), still_open * 1000))
    if found := difference(answer, expected, "Structured Streaming", "DuckDB"):
        raise RuntimeError(f"{query}: one of them is wrong. {found}")
    return int(answer.num_rows)


def _session(spark: Any, settings: StreamingSettings) -> Any:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", str(settings.shuffle_partitions))
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_BATCHES_REMEMBERED))
    store = _ROCKSDB if settings.state_store == "rocksdb" else _IN_MEMORY
    session.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    return session


def _result(session: Any, query: str, bids: Any, window_s: int) -> Any:
    window_us = window_s * 1_000_000
    end = f"timestamp_micros((unix_micros(date_time) DIV {window_us} + 1) * {window_us})"
    placed = bids.selectExpr("*", f"{end} AS window_end").withWatermark("window_end", f"{window_s} seconds")
    placed.createOrReplaceTempView("placed")
    return session.sql(_SQL[query].format(seconds=window_s))


def _start_ms() -> int:
    """Soon, on a whole second, so that windows of 1 s begin with the bids."""
    return (int(time.time()) + 1 + START_AFTER_S) * 1000


def _start(writer: Any, checkpoint: str) -> Any:
    return writer.outputMode("append").option("checkpointLocation", checkpoint).start()


def _wait_for(running: Any, event: Event, until_s: float, rate_per_s: int) -> None:
    while not event.wait(0.1):
        if not running.isActive:
            raise RuntimeError(f"the query ended on its own: {running.exception()}")
        if time.time() > until_s:
            raise RuntimeError(f"the query does not keep up with {rate_per_s:,} bids per second: measure with fewer")


def _durations(batches: Sequence[Any]) -> tuple[float, ...]:
    return tuple(batch["durationMs"]["triggerExecution"] / 1000 for batch in batches)


def _java_cpu_s(spark: Any) -> float:
    process = spark.sparkContext._jvm.java.lang.ProcessHandle.current()
    return float(process.info().totalCpuDuration().get().toMillis()) / 1000


def _folder_in_memory() -> str | None:
    """Where a checkpoint costs least; None for the usual place of temporary files."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() else None


def main() -> None:
    work = json.loads(sys.argv[1])
    kind, query = work.pop("measure"), work.pop("query")
    if query not in _SQL:
        raise ValueError(f"there is no streaming SQL for {query!r}: ask for one of {', '.join(_SQL)}")
    with local_session(_SESSION) as spark:
        found: Any
        if kind == "throughput":
            events, candidates = Path(work.pop("events")), [StreamingSettings(**each) for each in work.pop("candidates")]
            found = [asdict(each) for each in measure_throughput(spark, query, events, candidates, **work)]
        else:
            found = asdict(measure_latency(spark, query, settings=StreamingSettings(**work.pop("settings")), **work))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
