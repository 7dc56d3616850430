"""The other side of the comparison: Spark Structured Streaming's own SQL for q7 and q12_event, on two local threads.

Spark is given what helps it: the best of some settings, chosen in the same run, a warm virtual machine, a checkpoint in
memory where the system has such a folder, only the columns that it needs, a sink that takes no time, and the cheapest SQL of
those that we tried.
It runs in a process of its own, because Java and a session cannot be told apart from what ran in this one before.

The SQL groups by the end of a window as a plain timestamp, with a watermark of one window's length on it. That closes
windows at the very same rows as `window(date_time, ...)` without delay does, and costs less, because the key is no struct.
For q7 it takes the largest struct that begins with the price, for a join with the largest price would have to keep all bids.
Where several bids share the highest price, that is one of them, and q7 asks for all: a run that meets such a window is
refused, as is any other whose answer differs from DuckDB's.

Real-time mode is no candidate: it only updates results (outputMode update) and never says that a window is complete.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dirigo.nexmark.generator import Generator

EVENTS = 10_000_000
EVENTS_PER_FILE = 100_000
REPEATS = 3
WARM_UPS = 3  # runs over all files; Java is not done with compiling after the first
LATENCY_SECONDS = 30
LATENCY_WARM_UP_SECONDS = 10
_FIRST_FILE_S = 1_000_000_000  # any time: Spark takes files in the order of their times, and only that counts

Trigger = Literal["available now", "processing time 0"]
StateStore = Literal["in memory", "rocksdb"]


@dataclass(frozen=True)
class StreamingSettings:
    """What can be chosen for a streaming query."""

    files_per_batch: int = 20
    shuffle_partitions: int = 2
    state_store: StateStore = "in memory"
    trigger: Trigger = "available now"


CANDIDATES = (StreamingSettings(), StreamingSettings(files_per_batch=50))
ALL_CANDIDATES = (
    *(StreamingSettings(files_per_batch=files) for files in (5, 10, 20, 50, 100)),
    StreamingSettings(shuffle_partitions=1),
    StreamingSettings(shuffle_partitions=4),
    StreamingSettings(state_store="rocksdb"),
    StreamingSettings(trigger="processing time 0"),
)


@dataclass(frozen=True)
class StreamingFigures:
    """One query over files of bids: the best run with one choice of settings."""

    query: str
    settings: StreamingSettings
    bids: int
    results: int  # rows of all windows that closed
    seconds: float  # on the wall, from the start of the query until it had taken all files
    cpu_s: float  # of the processors, by Java
    per_batch_s: tuple[float, ...]

    @property
    def events_per_s(self) -> float:
        """Counted are bids, as everywhere."""
        return self.bids / self.seconds

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> StreamingFigures:
        made = {"settings": StreamingSettings(**content["settings"]), "per_batch_s": tuple(content["per_batch_s"])}
        return cls(**{**content, **made})


@dataclass(frozen=True)
class StreamingLatency:
    """How long after the end of its window, of 1 s, a result was there, at a steady rate of bids."""

    query: str
    rate_per_s: int
    settings: StreamingSettings
    results: int
    windows: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    per_batch_s: tuple[float, ...]

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> StreamingLatency:
        made = {"settings": StreamingSettings(**content["settings"]), "per_batch_s": tuple(content["per_batch_s"])}
        return cls(**{**content, **made})


def write_bid_files(directory: Path, events: int = EVENTS, events_per_file: int = EVENTS_PER_FILE) -> int:
    """Write the bids among the first events to DIRECTORY/bid, all columns, in files that a stream takes one after the other.

    `write_events` makes a single file, and a stream cannot take less than a file at once. Returns the number of bids.
    """
    folder = directory / "bid"
    folder.mkdir(parents=True)
    bids = 0
    for number, first in enumerate(range(0, events, events_per_file)):
        rows = Generator().bids(first, min(first + events_per_file, events))
        file = folder / f"part-{number:05d}.parquet"
        pq.write_table(pa.Table.from_batches([rows]), file)
        os.utime(file, (_FIRST_FILE_S + number,) * 2)
        bids += rows.num_rows
    return bids


def throughput(
    query: str,
    events: Path,
    candidates: Sequence[StreamingSettings] = CANDIDATES,
    *,
    repeats: int = REPEATS,
    warm_ups: int = WARM_UPS,
) -> StreamingFigures:
    """The best that Spark does with any of the settings, over the files in `events`/bid that `write_bid_files` wrote."""
    return max(compare(query, events, candidates, repeats=repeats, warm_ups=warm_ups), key=lambda each: each.events_per_s)


def compare(
    query: str, events: Path, candidates: Sequence[StreamingSettings], *, repeats: int = REPEATS, warm_ups: int = WARM_UPS
) -> tuple[StreamingFigures, ...]:
    """The best run with each of the settings, which take turns."""
    work = {"events": str(events), "candidates": [asdict(each) for each in candidates], "repeats": repeats}
    found = _ask(query, {"measure": "throughput", **work, "warm_ups": warm_ups})
    return tuple(StreamingFigures.from_json(each) for each in found)


def latency(
    query: str,
    rate_per_s: int,
    seconds: float = LATENCY_SECONDS,
    settings: StreamingSettings | None = None,
    *,
    warm_up_seconds: float = LATENCY_WARM_UP_SECONDS,
) -> StreamingLatency:
    """When results come if so many bids per second fall due, in the windows of the last `seconds`.

    A bid's time is the moment at which it is due, windows are of 1 s, and no bid is late. A result's latency is the moment
    at which the sink has its row minus the end of its window. Batches follow each other without a pause.
    """
    work = {"rate_per_s": rate_per_s, "seconds": seconds, "warm_up_seconds": warm_up_seconds}
    found = _ask(query, {"measure": "latency", **work, "settings": asdict(settings or StreamingSettings())})
    return StreamingLatency.from_json(found)


def _ask(query: str, work: dict[str, Any]) -> Any:
    command = [
        sys.executable,
        "-m",
        "dirigo_lab.bench.service.structured_streaming_process",
        json.dumps({"query": query, **work}),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # for the source of bids, which is in Python
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"Structured Streaming's {query} failed:\n{ended.stderr}")
    return json.loads(ended.stdout)


def main() -> None:
    """`python -m dirigo_lab.bench.service.structured_streaming [EVENTS [RATE]]` tries all settings, then latency: JSON."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="dirigo-bids-") as folder:
        write_bid_files(Path(folder), events)
        for query in ("q7", "q12_event"):
            tried = compare(query, Path(folder), ALL_CANDIDATES)
            best = max(tried, key=lambda each: each.events_per_s)
            rate = int(sys.argv[2]) if len(sys.argv) > 2 else int(best.events_per_s / 2)
            found[query] = {
                "tried": [{**asdict(each), "events_per_s": each.events_per_s} for each in tried],
                "best": asdict(best.settings),
                "latency": asdict(latency(query, rate)),
            }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
