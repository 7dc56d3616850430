"""Whether a count per key costs more per event when there are many keys.

The same number of rows in the same windows, with few or many keys, drawn evenly from numbers that are spread over 64 bits.
Windows are so long that even of many keys nearly all are open at once. With few keys a batch shrinks to a few rows before it
leaves its sender, and nothing is cheaper than that; with more keys than a batch has rows, every row goes all the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dirigo import Dataflow, Stream, Tumbling, count, to_memory
from dirigo.nexmark.sources import TIME_COLUMN
from dirigo_lab.bench.flows.memory_source import MemorySource, cut
from dirigo_lab.bench.flows.run import FlowRun

KEYS = (10, 1_000, 100_000)
EVENTS = 2_000_000
REPEATS = 5
WINDOWS = 2
EVENTS_PER_MS = 10
FLATNESS_MOST = 2.5  # the budget: what the most keys may cost over the fewest


@dataclass(frozen=True)
class KeyCost:
    """A count per key and window."""

    keys: int
    event_ns: float  # of processor time, the best of the repeats
    results: int


@dataclass(frozen=True)
class KeyCosts:
    """By number of keys."""

    costs: tuple[KeyCost, ...]

    @property
    def flatness(self) -> float:
        return self.costs[-1].event_ns / self.costs[0].event_ns

    def within_budget(self) -> bool:
        return self.flatness <= FLATNESS_MOST


def measure_keys(keys: tuple[int, ...] = KEYS, events: int = EVENTS, repeats: int = REPEATS) -> KeyCosts:
    """Measure with each number of keys. The numbers take turns, so that a disturbance hits all of them alike."""
    sources = [MemorySource(key_batches(events, number)) for number in keys]
    rounds = [[_run(source, events) for source in sources] for _ in range(repeats)]
    return KeyCosts(
        tuple(
            KeyCost(number, min(each[place][0] for each in rounds) / events * 1e9, rounds[0][place][1])
            for place, number in enumerate(keys)
        )
    )


def key_batches(events: int, keys: int) -> tuple[pa.RecordBatch, ...]:
    """Rows whose keys are drawn evenly; the same for the same numbers."""
    random = np.random.default_rng(keys)
    numbers = random.integers(-(2**63), 2**63 - 1, keys)
    times = pa.array(np.arange(events) // EVENTS_PER_MS).cast(pa.timestamp("ms", tz="UTC"))
    return cut(pa.table({"bidder": numbers[random.integers(0, keys, events)], TIME_COLUMN: times}))


def _run(source: MemorySource, events: int) -> tuple[float, int]:
    """Seconds of processor time, and how many results there were."""
    window_ms = -(-events // (EVENTS_PER_MS * WINDOWS))

    def counted(flow: Dataflow) -> Stream:
        return flow.source(source).key_by("bidder").window(Tumbling(f"{window_ms}ms")).aggregate(bid_count=count())

    results = to_memory()
    seconds = FlowRun(counted, results).run()
    return seconds, results.table.num_rows
