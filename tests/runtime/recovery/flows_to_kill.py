"""Flows of many operators whose results do not depend on who is killed when, and what they must come to."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dirigo as dg
from runtime.clusters import SCHEMA, numbers, wait_for_file

OTHERS = pa.schema([("key", pa.int64()), ("ts", pa.int64()), ("other", pa.int64())])
STEP = pa.schema([("key", pa.int64()), ("said", pa.string())])
SINKS = ("windows", "sessions", "once", "both", "running", "timed", "clocked")


def slow_numbers(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.002)
    return numbers(first, count)


class GatedNumbers:
    """Numbers that do not come to their end before a file is there: the flow still runs, however slow the machine is."""

    def __init__(self, gate: Path, rows: int) -> None:
        self._gate = gate
        self._rows = rows

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        if first >= self._rows // 2 and not self._gate.exists():
            time.sleep(0.05)  # and go on: snapshots are taken between blocks
        if first + count >= self._rows:
            wait_for_file(str(self._gate))
        return slow_numbers(first, count)


def slow_others(first: int, count: int) -> pa.RecordBatch:
    time.sleep(0.002)
    each = range(first, first + count)
    columns = [[n % 7 for n in each], [n * 3 for n in each], list(each)]
    return pa.record_batch([pa.array(column, pa.int64()) for column in columns], schema=OTHERS)


def add(one: int, other: int) -> int:
    return one + other


class Running(dg.Function):
    """The rows of a key are counted and put down in their order per split; a timer tells of every hundred milliseconds."""

    ordered = True
    seen = dg.ValueState(int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        self.seen.add(1)
        context.emit({"key": context.key, "said": f"row {self.seen.get()}"})

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        """None are set."""


class Timed(dg.Function):
    """Counts rows per key and tenth of a second of event time, by timers."""

    ordered = True
    counts = dg.MapState(int, int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        tenth = row.ts // 100
        self.counts.add(tenth, 1)
        context.set_event_timer(tenth * 100 + 99, tenth, name=str(tenth))

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"key": context.key, "said": f"tenth {payload}: {self.counts.get(payload, 0)}"})


class Clocked(dg.Function):
    """The first row of each key starts a clock, which says so once; at the end or before it."""

    ordered = True
    began = dg.ValueState(int, default=0)
    said = dg.ValueState(int, default=0)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        if not self.began.get():
            self.began.set(1)
            context.set_timer("0.7s", "first", name="first")

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        self.said.set(self.said.get() + 1)
        context.emit({"key": context.key, "said": f"{payload} {self.began.get()}"})

    def on_end(self, context: dg.FunctionContext) -> None:
        if not self.said.get():  # a timer that is due after the end has no effect
            context.emit({"key": context.key, "said": f"first {self.began.get()}"})


def flow_of(folder: Path, rows: int, gate: Path | None = None) -> tuple[dg.Dataflow, dict[str, Any]]:
    """What collects its results is returned by name; all rows go to files, too. It ends once the gate is there."""
    flow = dg.Dataflow("many", partitions=3)
    read = slow_numbers if gate is None else GatedNumbers(gate, rows)
    source = flow.source(dg.from_generator(read, SCHEMA, rows, block=20, time="ts", name="numbers"), splits=2)
    others = flow.source(dg.from_generator(slow_others, OTHERS, rows // 4, block=20, time="ts", name="others"), splits=1)
    out: dict[str, Any] = {each: dg.to_memory(name=each) for each in SINKS}
    keyed = source.key_by("key")
    source.sink(dg.to_parquet(folder / "rows"))
    windows = keyed.window(dg.Tumbling("200ms")).aggregate(rows=dg.count(), total=dg.sum("n"))
    windows.sink(out["windows"])
    windows.sink(dg.to_json_lines(folder / "windows"))
    third = source.filter(lambda row: row.n // 500 % 3 == 0)
    third.key_by("key").window(dg.Session("300ms")).aggregate(rows=dg.count()).sink(out["sessions"])
    source.select("key").deduplicate("key").sink(out["once"])
    source.join(others, on="key", window=dg.Tumbling("100ms")).select("n", "other").sink(out["both"])
    keyed.process(Running(), STEP, name="running_rows").sink(out["running"])
    keyed.process(Timed(), STEP, name="timed_rows").sink(out["timed"])
    keyed.process(Clocked(), STEP, name="clocked_rows").sink(out["clocked"])
    return flow, out


def _counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


def written_rows(folder: Path) -> dict[str, Counter[str]]:
    """What is in the files; a file that is not whole cannot be read."""
    tables = [pq.read_table(path) for path in sorted((folder / "rows").glob("*.parquet"))]
    lines = [json.loads(line) for path in (folder / "windows").glob("*.json*") for line in path.read_text().splitlines()]
    return {
        "parquet": _counted([row for table in tables for row in table.to_pylist()]),
        "lines": _counted(lines),
    }


def results_of(folder: Path, out: dict[str, Any]) -> dict[str, Counter[str]]:
    return written_rows(folder) | {name: _counted(sink.rows) for name, sink in out.items()}


def differences(found: dict[str, Counter[str]], wanted: dict[str, Counter[str]]) -> dict[str, str]:
    """Per sink: what is missing, and what is there too often."""
    told = {}
    for name, rows in wanted.items():
        missing, surplus = rows - found[name], found[name] - rows
        if missing or surplus:
            told[name] = (
                f"of {rows.total()} rows {missing.total()} are missing and {surplus.total()} are there too often: "
                f"{sorted(missing)[:3]} {sorted(surplus)[:3]}"
            )
    return told


def left_files(folder: Path) -> list[str]:
    """Files that nobody should see or that should be gone: hidden ones, and those that are not rows."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and (path.name.startswith((".", "_tmp")) or path.suffix == ".tmp")
    )
