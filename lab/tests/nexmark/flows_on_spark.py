"""Nexmark queries that take their time, so that something can happen to them, and what their rows have to be."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import dirigo as dg
from dirigo.flow.sources.generator import RowMaker
from dirigo.nexmark.generator import BASE_MS, Generator
from dirigo.nexmark.sources import EventSource
from dirigo_lab.nexmark.events import write_events
from dirigo_lab.nexmark.oracles import comparison, duckdb_oracle
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import GeneratedTables

RATE = 1_000  # events per second of event time
TIMED = "timed"
NAMES = ("q5", "q7", "q8", "q11", "q12_event", TIMED)
_BLOCK_EVENTS = 100  # small, so that all splits are read all the time
_SECOND_MS = 1_000
_TIMED_ANSWER = """
    SELECT auction, epoch_ms(date_time) // 1000 AS second, count(*) AS bids
    FROM read_parquet('{}/bid/*.parquet') GROUP BY ALL
"""


def add(one: int, other: int) -> int:
    return one + other


class BidsPerSecond(dg.Function):
    """Counts the bids on an auction in each second of event time: a timer at its end tells how many there were."""

    ordered = True
    counts = dg.MapState(int, int, default=0, combine=add)

    def on_message(self, context: dg.FunctionContext, row: dg.Row) -> None:
        second = int(row.date_time.timestamp())
        self.counts.add(second, 1)
        context.set_event_timer((second + 1) * _SECOND_MS - 1, second, name=str(second))

    def on_timer(self, context: dg.FunctionContext, payload: Any) -> None:
        context.emit({"auction": context.key, "second": payload, "bids": self.counts.get(payload, 0)})


class SlowTables:
    """Generated events that come as their times say, ``speed`` times as fast; or each block of them takes that long."""

    def __init__(self, events: int, *, speed: float | None, block_s: float = 0.0) -> None:
        self._tables = GeneratedTables(events, RATE, block_events=_BLOCK_EVENTS)
        self._speed = speed
        self._block_s = block_s

    def persons(self, *columns: str) -> dg.Source:
        return self._slowed(self._tables.persons(*columns))

    def auctions(self, *columns: str) -> dg.Source:
        return self._slowed(self._tables.auctions(*columns))

    def bids(self, *columns: str) -> dg.Source:
        return self._slowed(self._tables.bids(*columns))

    def _slowed(self, source: dg.Source) -> dg.Source:
        if self._speed is not None:
            return dg.paced(source, speed=self._speed, begins_ms=BASE_MS)
        assert isinstance(source, EventSource)
        slowed = copy(source)
        slowed._fn = SlowRows(source._fn, self._block_s)
        return slowed


class SlowRows:
    """Rows that are not there at once, however long nobody has asked for them."""

    def __init__(self, fn: RowMaker, block_s: float) -> None:
        self._fn = fn
        self._block_s = block_s

    def __call__(self, first: int, count: int) -> pa.RecordBatch | Sequence[Mapping[str, Any]]:
        time.sleep(self._block_s)
        return self._fn(first, count)


def flow_of(name: str, out: Path, tables: SlowTables, splits: int = 2) -> tuple[dg.Dataflow, Any]:
    """A query. Its rows go to OUT/<query>, and to the sink that is returned."""
    flow = dg.Dataflow(name.replace("_", "-"), splits=splits)
    if name == TIMED:
        bids = flow.source(tables.bids("auction", "date_time")).key_by("auction")
        rows = bids.process(BidsPerSecond(), {"auction": int, "second": int, "bids": int})
    else:
        rows = QUERIES[name].function(flow, tables)
    memory = dg.to_memory(name="results")
    rows.sink(dg.to_parquet(out / name))
    rows.sink(memory)
    return flow, memory


def answers(names: Iterable[str], events: int, folder: Path) -> dict[str, pa.Table]:
    """What DuckDB says to the same events."""
    write_events(Generator(rate=RATE), events, folder)
    return {name: _timed_answer(folder) if name == TIMED else duckdb_oracle.run(name, folder) for name in names}


def _timed_answer(events: Path) -> pa.Table:
    with duckdb.connect(":memory:") as connection:
        return comparison.normalise(connection.sql(_TIMED_ANSWER.format(events)).to_arrow_table())


def assert_rows(out: Path, results: Mapping[str, pa.Table], expected: Mapping[str, pa.Table]) -> None:
    """In the files and in the results logs: each row that DuckDB has, as often as it has it."""
    for name, answer in expected.items():
        assert answer.num_rows > 0, name
        for what, table in (("files", pq.read_table(out / name)), ("log", results[name])):
            found = comparison.normalise(table)
            assert comparison.difference(found, answer, f"{name}'s {what}", "DuckDB") is None, (
                name,
                what,
                comparison.difference(found, answer, f"{name}'s {what}", "DuckDB"),
            )
