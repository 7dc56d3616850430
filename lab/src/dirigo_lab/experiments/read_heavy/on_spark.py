"""``read-heavy`` on real workers: the same load, on a function with a replicated state."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from dirigo import Dataflow, Function, FunctionContext, Row, to_memory
from dirigo.state import ValueState
from dirigo_lab.experiments.read_heavy.load import (
    READ,
    READ_S,
    TIME,
    UPDATE,
    UPDATE_S,
    UPDATES_PER_S_ON_SPARK,
    arrivals,
    strategy,
)
from dirigo_lab.experiments.window_jobs.scheduled_rows import SCHEMA, Entry, ScheduledRows

_DONE = pa.schema([("kind", pa.int64()), ("due_s", pa.float64()), ("done_s", pa.float64())])
_TIMEOUT_S = 1_200.0


class StartGate(Function):
    """Makes critical messages of reads, if they have to be. Ordered, so that it is not spread itself."""

    ordered = True

    def __init__(self, is_replicated: bool) -> None:
        self._is_replicated = is_replicated

    def on_message(self, context: FunctionContext, row: Row) -> None:
        if row.value == READ and not self._is_replicated:
            context.emit_critical(row.due_s)
        else:
            context.emit(row)


class CountedReads(Function):
    """Counts updates, and answers reads. Emits when each was done; sleeps for as long as it should take."""

    scope = "partition"
    count = ValueState(int, default=0, combine=operator.add, replicated=True)

    def on_message(self, context: FunctionContext, row: Row) -> None:
        if row.value == UPDATE:
            time.sleep(UPDATE_S)
            self.count.add(1)
        else:
            time.sleep(READ_S)
            self.count.read()
        context.emit({"kind": row.value, "due_s": row.due_s, "done_s": time.time()})

    def on_critical(self, context: FunctionContext, payload: Any) -> None:
        time.sleep(READ_S)
        self.count.read()
        context.emit({"kind": READ, "due_s": payload, "done_s": time.time()})

    def on_watermark(self, context: FunctionContext, time_ms: int) -> None:
        """That there is one renews the replica."""


def run(cluster: Any, is_replicated: bool, reads_per_s: float, seconds: float, seed: int) -> list[tuple[int, float, float]]:
    """(kind, when it came, when it was done) of all updates and reads, in seconds since the first one."""
    done = to_memory()
    flow = Dataflow("reads", watermark_every="1ms")
    rows = flow.source(ScheduledRows(partial(_schedule, reads_per_s, seconds, seed)))
    rows.process(StartGate(is_replicated), SCHEMA, name="gate", time="at").process(CountedReads, _DONE, name="count").sink(
        done
    )
    cluster.submit(flow, strategy=strategy()).wait(_TIMEOUT_S)
    kinds, due_s, done_s = (done.table.column(name).to_pylist() for name in _DONE.names)
    began_s = min(due_s, default=0.0)
    return sorted(zip(kinds, (at - began_s for at in due_s), (at - began_s for at in done_s), strict=True))


def _schedule(reads_per_s: float, seconds: float, seed: int) -> Iterator[Entry]:
    for at_s, kind in arrivals(reads_per_s, seconds, seed, UPDATES_PER_S_ON_SPARK):
        yield Entry(at_s, None if kind == TIME else kind)
