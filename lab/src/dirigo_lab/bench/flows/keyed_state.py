"""How many rows per second a function with a value per key gets through, with few and with many keys; and others beside it.

A running count: every row comes out with how many of its key there have been. In the row form the function is called for
each row; in the batch form it handles all rows of a batch at once. The rows are those of the windowed count per key.
"""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dirigo import Dataflow, Function, FunctionContext, Row, Stream, ValueState, to_memory
from dirigo_lab.bench.flows.keys import FLATNESS_MOST, key_batches
from dirigo_lab.bench.flows.memory_source import MemorySource
from dirigo_lab.bench.flows.run import FlowRun

KEYS = (10, 1_000, 100_000)
EVENTS = 1_000_000
SPARK_EVENTS = 100_000  # in one run after the one that warms it up; it takes long enough
SPARK_KEYS_MOST = 1_000  # it keeps each key in RocksDB, and takes more than ten minutes for a hundred times as many
PEER_S_MOST = 600.0
REPEATS = 3
COUNTED = pa.schema([("bidder", pa.int64()), ("bids", pa.int64())])


class CountRows(Function):
    """One call per row."""

    ordered: ClassVar[bool] = True
    bids = ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: FunctionContext, row: Row) -> None:
        count = self.bids.get() + 1
        self.bids.set(count)
        context.emit({"bidder": row.bidder, "bids": count})


class CountBatches(CountRows):
    """One call per batch."""

    def on_batch(self, context: FunctionContext, batch: pa.RecordBatch) -> None:
        counts = self.bids.add_each([1] * batch.num_rows)
        context.emit_batch(pa.record_batch([batch.column("bidder"), pa.array(counts, pa.int64())], schema=COUNTED))


PEERS = ("bytewax", "spark")
FORMS: dict[str, type[Function]] = {"row form": CountRows, "batch form": CountBatches}


@dataclass(frozen=True)
class KeyedStateCost:
    """A running count in one form, over so many keys."""

    form: str
    keys: int
    events: int
    seconds: float  # of processor time, Spark's on the wall; the best of the repeats
    total: int  # of all counts that came out: equal for equal answers

    @property
    def rows_per_s(self) -> float:
        return self.events / self.seconds


@dataclass(frozen=True)
class KeyedStateCosts:
    """By form, and by number of keys."""

    costs: tuple[KeyedStateCost, ...]
    peers: tuple[KeyedStateCost, ...] = ()
    missing: tuple[str, ...] = ()  # peers that are not installed

    def flatness(self, form: str) -> float:
        seconds = [cost.seconds / cost.events for cost in self.costs if cost.form == form]
        return seconds[-1] / seconds[0]

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cost.form for cost in self.costs))

    def within_budget(self) -> bool:
        return all(self.flatness(form) <= FLATNESS_MOST for form in self.forms)


def measure_keyed_state(
    keys: tuple[int, ...] = KEYS, events: int = EVENTS, repeats: int = REPEATS, peers: Iterable[str] = ()
) -> KeyedStateCosts:
    """Measure both forms with each number of keys. They take turns, so that a disturbance hits all of them alike."""
    cases = [(form, number, MemorySource(key_batches(events, number))) for form in FORMS for number in keys]
    rounds = [[_run(FORMS[form], source) for form, _, source in cases] for _ in range(repeats)]
    costs = [
        KeyedStateCost(form, number, events, min(each[place][0] for each in rounds), rounds[0][place][1])
        for place, (form, number, _) in enumerate(cases)
    ]
    missing = tuple(peer for peer in peers if peer == "bytewax" and find_spec(peer) is None)
    measured = [
        cost
        for peer in peers
        if peer not in missing
        for number in keys
        if peer != "spark" or number <= SPARK_KEYS_MOST
        for cost in _measure_peer(peer, number, *((min(events, SPARK_EVENTS), 1) if peer == "spark" else (events, repeats)))
    ]
    return KeyedStateCosts(tuple(costs), tuple(measured), missing)


def _measure_peer(peer: str, keys: int, events: int, repeats: int) -> list[KeyedStateCost]:
    """In a process of its own, for each number of keys: a process has one session of Spark."""
    work = [peer, str(keys), str(events), str(repeats)]
    command = [sys.executable, "-m", "dirigo_lab.bench.flows.keyed_state_process", *work]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PEER_S_MOST)
    if ended.returncode:
        raise RuntimeError(f"the running count of {peer} failed:\n{ended.stderr[-2_000:]}")
    return [KeyedStateCost(**each) for each in json.loads(ended.stdout.splitlines()[-1])]


def _run(function: type[Function], source: MemorySource) -> tuple[float, int]:
    """Seconds of processor time, and the sum of all counts."""

    def counted(flow: Dataflow) -> Stream:
        return flow.source(source).key_by("bidder").process(function, COUNTED)

    results = to_memory()
    seconds = FlowRun(counted, results).run()
    return seconds, int(pc.sum(results.table["bids"]).as_py())
