"""What snapshots cost a job that nothing happens to: with them and without, in turns, on two services side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from dirigo import Dataflow, to_callback, to_nothing
from dirigo.runtime.status import SnapshotFigures
from dirigo_lab.bench.recovery.keyed_rows import StateShape, keyed_flow
from dirigo_lab.bench.recovery.kills import load_s
from dirigo_lab.bench.recovery.local_service import PATIENCE_S, LocalService, wait_until
from dirigo_lab.bench.service.flows import BidsInRealTime, over_files, result_of

_MADE = pa.schema([("late_ms", pa.float64()), ("end_ms", pa.int64())])
_WARM_UP_S = 3
_SNAPSHOTS_LEAST = 3  # with 1 GB, one may take longer than all of the measured time

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Throughput:
    """A query from files, a snapshot every second against none; bids per second of each run."""

    query: str
    bids: int
    without: tuple[float, ...]
    with_snapshots: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return median(self.with_snapshots) / median(self.without)


@dataclass(frozen=True)
class Lateness:
    """From the end of a window of 1 s until its result was made, at half of what the query takes from files."""

    query: str
    rate_per_s: int
    without_p50_ms: float
    without_p99_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class LargeState:
    """A job that keeps much of which little changes; medians over its snapshots."""

    what: str
    state_mb: int
    changed_mb_per_s: float
    rows_per_s: int
    snapshots: int
    written_mb: float
    duration_s: float
    longest_s: float
    rows_done_per_s: float
    p99_ms: float  # from due to made
    without_p99_ms: float


def measure_throughput(
    tell: Progress, without: LocalService, with_them: LocalService, query: str, events: Path, bids: int, repeats: int
) -> Throughput:
    found: dict[bool, list[float]] = {False: [], True: []}
    for number in range(repeats + 1):  # the first turn warms up
        for has_snapshots in (False, True) if number % 2 else (True, False):
            how = "with" if has_snapshots else "without"
            tell(f"{query} {how} snapshots, {number} of {repeats}")
            service = with_them if has_snapshots else without
            took_s = service.run_s(over_files(query, events, to_nothing(), splits=2))
            if number:
                found[has_snapshots].append(round(bids / took_s))
    return Throughput(query, bids, tuple(found[False]), tuple(found[True]))


def measure_lateness(
    tell: Progress, without: LocalService, with_them: LocalService, query: str, rate: int, seconds: float, turns: int
) -> Lateness:
    found: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(turns):
        for has_snapshots in (False, True) if turn % 2 else (True, False):
            tell(f"{query} at {rate:,} bids per second {'with' if has_snapshots else 'without'} snapshots")
            service = with_them if has_snapshots else without
            found[has_snapshots] += _late_ms(service, query, rate, seconds)
    ranks = [round(float(rank), 2) for has in (False, True) for rank in np.percentile(found[has], (50, 99))]
    return Lateness(query, rate, *ranks)


def _late_ms(service: LocalService, query: str, rate: int, seconds: float) -> list[float]:
    found: list[tuple[int, float]] = []

    def made(batch: pa.RecordBatch) -> pa.RecordBatch:
        if "window_end" in batch.schema.names:
            ends = batch.column("window_end").cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
        else:  # q7 gives bids as they were
            ends = (batch.column("date_time").cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy() // 1000 + 1) * 1000
        return pa.record_batch([pa.array(time.time() * 1000 - ends), pa.array(ends)], schema=_MADE)

    def arrived(batch: pa.RecordBatch) -> None:
        found.extend(zip(batch.column(1).to_pylist(), batch.column(0).to_pylist(), strict=True))

    start_ms = int(time.time() + 2) * 1000
    flow = Dataflow(query, splits=1)
    source = BidsInRealTime(query, rate, start_ms, seconds + _WARM_UP_S + 1)
    result = result_of(query, flow.source(source), "1s")
    result.map_batches(made, schema=_MADE).sink(to_callback(arrived, batches=True))
    service.run_s(flow)
    last_ms = start_ms + (seconds + _WARM_UP_S) * 1000  # the last window ends with the stream, not with its time
    return [late for end, late in found if start_ms + _WARM_UP_S * 1000 <= end <= last_ms]


def measure_large_state(
    tell: Progress, without: LocalService, with_them: LocalService, what: str, shape: StateShape, seconds: float
) -> LargeState:
    tell(f"{shape.total_bytes // 1_000_000} MB of state, {what}, without snapshots")
    bare_p99, _, _ = _keep_much(without, shape, seconds, snapshots_least=0)
    tell(f"{shape.total_bytes // 1_000_000} MB of state, {what}, with snapshots")
    p99, done_per_s, snapshots = _keep_much(with_them, shape, seconds, _SNAPSHOTS_LEAST)
    changed_mb = shape.rows_per_s * shape.bytes_per_key / 1e6
    return LargeState(
        what,
        shape.total_bytes // 1_000_000,
        round(changed_mb, 2),
        shape.rows_per_s,
        len(snapshots),
        round(median(each.written_bytes for each in snapshots) / 1e6, 1),
        round(median(each.duration_s for each in snapshots), 3),
        round(max(each.duration_s for each in snapshots), 3),
        round(done_per_s, 1),
        p99,
        bare_p99,
    )


def _keep_much(
    service: LocalService, shape: StateShape, seconds: float, snapshots_least: int
) -> tuple[float, float, list[SnapshotFigures]]:
    """The 99th percentile of how late results were made, rows per second, and the snapshots that were taken."""
    flow, results = keyed_flow(shape, "large", load_s(shape))
    job = service.submit(flow)
    wait_until(lambda: results.first_due_after(0) is not None, "results are there")
    time.sleep(3.0)  # the first snapshot writes all of it
    seen: dict[int, SnapshotFigures] = {}
    first_ms = time.time() * 1000
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(seen) < snapshots_least:
        if time.monotonic() > end + PATIENCE_S:
            raise TimeoutError(f"in vain for {PATIENCE_S:g} s: {snapshots_least} snapshots of {shape.total_bytes} bytes")
        snapshot = job.status().snapshot
        if snapshot is not None and snapshot.began_s * 1000 > first_ms:
            seen[snapshot.number] = snapshot
        time.sleep(0.05)
    last_ms = time.time() * 1000
    wait_until(lambda: results.first_due_after(last_ms) is not None, "all rows of the measured time have come")
    job.cancel()
    assert not results.wrong, results.wrong
    late_ms = results.late_ms(first_ms, last_ms)
    p99 = round(float(np.percentile(late_ms, 99)), 2)
    return p99, len(late_ms) / (last_ms - first_ms) * 1000, list(seen.values())
