"""What every operator says that it holds, against the memory that its rows really take: a budget goes by it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dirigo as dg
from dirigo.flow.operators.operator import Operator
from dirigo.flow.plan.bound_job import BoundJob
from dirigo.flow.plan.states import Nothing, StageStates
from dirigo.state import ListState, MapState, ValueState
from flow.flows import Running

FIRST, MORE = 2_000, 20_000
FACTOR = 3
SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("text", pa.string()), ("ts", pa.int64())])


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    columns = [list(numbers), [n % 5_000 for n in numbers], [f"some text {n}" for n in numbers], list(numbers)]
    return pa.record_batch([pa.array(column) for column in columns], schema=SCHEMA)


def source(flow: dg.Dataflow, name: str) -> dg.Stream:
    return flow.source(dg.from_generator(rows, SCHEMA, 1_000_000, block=1_000, time="ts", name=name))


class Keeping(dg.Function):
    scope = "partition"
    ordered = True
    seen = MapState(int, str)
    all = ListState(str)
    last = ValueState(dict, default={})

    def on_message(self, context: Any, row: Any) -> None:
        self.seen[row.id] = row.text
        self.all.append(row.text)
        self.last.set({**self.last.get(), row.key: row.text} if row.id % 100 == 0 else self.last.get())


def both(flow: dg.Dataflow, **how: Any) -> dg.Stream:
    return source(flow, "left").join(source(flow, "right"), on="id", **how)


def last_text(before: Any, row: Any) -> Any:
    return {"id": row.id, "key": row.key, "text": row.text, "ts": row.ts}


def nothing(_: Any) -> list[Any]:
    return []


class KeepingByKey(dg.Function):
    ordered = True
    seen = MapState(str, int, ttl="1d")
    all = ListState(str)
    count = ValueState(int, default=0)

    def on_message(self, context: Any, row: Any) -> None:
        self.seen[row.text] = row.id
        self.all.append(row.text)
        self.count.set(self.count.get() + 1)
        context.set_event_timer(row.ts + 1_000_000, row.text, name="quiet")

    def on_timer(self, context: Any, payload: Any) -> None:
        pass


# For each operator with a state: flows in which it keeps much.
Build = Callable[[dg.Dataflow], dg.Stream]
CASES: dict[str, Build] = {
    "deduplicate": lambda flow: source(flow, "rows").deduplicate("id"),
    "deduplicate by text": lambda flow: source(flow, "rows").deduplicate("text", "key"),
    "deduplicate within": lambda flow: source(flow, "rows").deduplicate("id", within="1d"),
    "join": both,
    "window join": lambda flow: both(flow, window=dg.Tumbling("1d")),
    "interval join": lambda flow: both(flow, within=("1d", "1d")),
    "scan": lambda flow: source(flow, "rows").key_by("id").scan(last_text),
    "window": lambda flow: source(flow, "rows").key_by("id").window(dg.Tumbling("1d")).aggregate(n=dg.count()),
    "window by text": lambda flow: (
        source(flow, "rows").key_by("text").window(dg.Sliding("1d", "6h")).aggregate(n=dg.max("id"), s=dg.median("id"))
    ),
    "window of reduced rows": lambda flow: source(flow, "rows").key_by("id").window(dg.Tumbling("1d")).reduce(last_text),
    "window of all rows": lambda flow: (
        source(flow, "rows").key_by("key").window(dg.Tumbling("1d")).apply(nothing, {"n": int})
    ),
    "top": lambda flow: source(flow, "rows").key_by("key").window(dg.Tumbling("1d")).top(100, by="id"),
    "session window": lambda flow: source(flow, "rows").key_by("id").window(dg.Session("1d")).aggregate(n=dg.count()),
    "process": lambda flow: source(flow, "rows").key_by("id").process(Keeping, {"n": int}),
    "process by key": lambda flow: source(flow, "rows").key_by("id").process(KeepingByKey, {"n": int}),
}


def held(running: Running) -> int:
    """What all instances say that they hold."""
    worker = running.host.worker
    instances = [worker.instance(spec.address) for spec in running.job.specs() if spec.address in worker.participants]
    return sum(states.held_bytes() for each in instances if isinstance(states := each.states, StageStates))


def taken() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] + int(pa.total_allocated_bytes())


def grown(flow: dg.Dataflow) -> tuple[int, int]:
    """By how much its states have grown, as they say, and as memory was taken."""
    running = Running(flow)

    def read(count: int) -> None:
        for number, reader in enumerate(running.job.readers):
            until = reader.rows + count
            while reader.rows < until:
                running.read(number, 1_000)

    read(FIRST)
    tracemalloc.start()
    try:
        said_before, before = held(running), taken()
        read(MORE)
        return held(running) - said_before, taken() - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", CASES)
def test_what_an_operator_says_that_it_holds_is_about_what_it_takes(case: str) -> None:
    flow = dg.Dataflow("sizes")
    CASES[case](flow).sink(dg.to_nothing())
    said, took = grown(flow)
    assert took > MORE  # bytes: the flow does keep something
    assert took / FACTOR < said < took * FACTOR


def test_rows_that_wait_for_their_file_count(tmp_path: Path) -> None:
    flow = dg.Dataflow("sizes")
    source(flow, "rows").sink(dg.to_parquet(tmp_path / "out"))
    said, took = grown(flow)
    assert took > MORE
    assert took / FACTOR < said < took * FACTOR


def test_every_operator_with_a_state_is_among_them(tmp_path: Path) -> None:
    met: set[type[Operator]] = set()
    for build in CASES.values():
        flow = dg.Dataflow("sizes")
        build(flow).sink(dg.to_parquet(tmp_path / "out", mode="overwrite"))
        met |= {type(stage.operator) for stage in BoundJob(flow).plan.stages}
    kinds = _kinds(Operator)
    stateful = {kind for kind in kinds if kind.new_states is not Operator.new_states}
    assert stateful
    assert stateful <= met
    assert isinstance(Operator("plain", SCHEMA, None).new_states(), Nothing)


def _kinds(kind: type[Operator]) -> set[type[Operator]]:
    below = {sub for sub in kind.__subclasses__() if sub.__module__.startswith("dirigo.")}
    return below | {found for sub in below for found in _kinds(sub)}
