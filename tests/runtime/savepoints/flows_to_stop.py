"""A flow with every kind of state that savepoints are about, and what it has to come to in all."""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import dirigo as dg
from runtime.clusters import SCHEMA, numbers

ROWS = 6_000
BLOCK = 50


def keyed(first: int, count: int) -> pa.RecordBatch:
    """Rows n with a time of n milliseconds. Other keys come every 900 ms, so that sessions end."""
    keys = [n // 900 * 7 % 13 * 10 + n * n % 10 for n in range(first, first + count)]
    return numbers(first, count).set_column(1, SCHEMA.field("key"), pa.array(keys, pa.int64()))


def slowly(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.03)
    return keyed(first, count)


class Reminders(dg.Function):
    """Says of some rows that they were there, a while later, and how many there were of a key in the end."""

    count = dg.ValueState(int, default=0, combine=operator.add)

    def on_message(self, context: Any, row: Any) -> None:
        self.count.add(1)
        if row.n % 7 == 0:
            context.set_event_timer(row.ts + 700, row.n)

    def on_timer(self, context: Any, payload: Any) -> None:
        context.emit({"key": context.key, "said": f"there was {payload}"})

    def on_end(self, context: Any) -> None:
        context.emit({"key": context.key, "said": f"{self.count.get()} in all"})


SINKS = ("windows", "sessions", "firsts", "pairs", "reminders")


class Results:
    """The rows of all sinks, over several runs."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[Any]] = {name: Counter() for name in SINKS}

    def add(self, sinks: dict[str, Any]) -> None:
        for name, sink in sinks.items():
            self.rows[name].update(as_counter(sink.rows))


def as_counter(rows: Iterable[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def flow_of(
    maker: Any = slowly, *, partitions: int = 4, rows: int = ROWS, name: str = "stopped"
) -> tuple[Any, dict[str, Any]]:
    """The flow, and its sinks by name."""
    sinks = {each: dg.to_memory() for each in SINKS}
    flow = dg.Dataflow("stopped", partitions=partitions)
    source = flow.source(dg.from_generator(maker, SCHEMA, rows, block=BLOCK, time="ts", name="numbers"), splits=2)
    by_key = source.key_by("key")
    windows = by_key.window(dg.Tumbling("1s")).aggregate(rows=dg.count(), total=dg.sum("n")).named("per_second")
    windows.sink(sinks["windows"])
    by_key.window(dg.Session("600ms")).aggregate(rows=dg.count()).named("series").sink(sinks["sessions"])
    even = source.filter(dg.col("n") % 2 == 0)
    source.with_columns(bucket=dg.col("n") % 1_009).deduplicate("bucket", name="once").select("bucket").sink(sinks["firsts"])
    even.join(source.filter(dg.col("n") % 3 == 0), on="key", within=("5ms", "5ms"), name="near").sink(sinks["pairs"])
    by_key.process(Reminders, schema={"key": "int64", "said": str}, name="remind").sink(sinks["reminders"])
    return flow, sinks


def expected(rows: int = ROWS) -> dict[str, Counter[Any]]:
    flow, sinks = flow_of(keyed, rows=rows)
    dg.run(flow)
    results = Results()
    results.add(sinks)
    assert all(results.rows.values())
    return results.rows
