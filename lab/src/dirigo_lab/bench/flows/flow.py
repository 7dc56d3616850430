"""How many rows per second a flow gets through on one core: kernel, FIFO and operators together, rows ready in memory.

Counted are the bids that the query reads, not the persons and auctions among which they were generated. The queries are
Nexmark's own, word for word; the row form is the same counting with a plain Python function in front of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from dirigo import Dataflow, Stream, Tumbling, count, to_memory
from dirigo_lab.bench.flows.memory_source import MemoryTables
from dirigo_lab.bench.flows.run import FlowRun
from dirigo_lab.nexmark.queries import QUERIES
from dirigo_lab.nexmark.tables import Tables

EVENTS = 1_000_000
ROW_FORM_EVENTS = 200_000
REPEATS = 5
VECTORISED_PER_S_LEAST = 3_000_000.0  # the budgets
ROW_FORM_PER_S_LEAST = 300_000.0

QueryFunction = Callable[[Dataflow, Tables], Stream]

VECTORISED = ("q7", "q12_event")


@dataclass(frozen=True)
class FlowCost:
    """One query over bids in memory."""

    query: str
    bids: int
    seconds: float  # of processor time, the best of the repeats
    per_s_least: float  # the budget
    answer: AnswerTime  # for comparison with whoever else answers the same question

    @property
    def bids_per_s(self) -> float:
        return self.bids / self.seconds

    def within_budget(self) -> bool:
        return self.bids_per_s >= self.per_s_least


@dataclass(frozen=True)
class AnswerTime:
    """What a query said, in short: equal answers are the same rows, as far as two numbers can tell."""

    rows: int
    total: int  # of all values of all 64 bit integer columns

    @classmethod
    def of(cls, table: pa.Table) -> AnswerTime:
        columns = [column for column in table.columns if column.type == pa.int64()]
        return cls(table.num_rows, sum(pc.sum(column).as_py() or 0 for column in columns))


def count_after_filter(flow: Dataflow, tables: Tables) -> Stream:
    """q12_event of the bids for which a Python function says yes, which are all."""
    bids = flow.source(tables.bids("bidder", "price", "date_time"))
    return _counted(bids.filter(lambda row: row["price"] > 0))


def count_after_map(flow: Dataflow, tables: Tables) -> Stream:
    """q12_event of rows that a Python function made, each as a new dictionary."""
    bids = flow.source(tables.bids("bidder", "date_time"))
    made = bids.map(
        lambda row: {"bidder": row["bidder"], "date_time": row["date_time"]}, {"bidder": int, "date_time": datetime}
    )
    return _counted(made)


def _counted(bids: Stream) -> Stream:
    return bids.key_by("bidder").window(Tumbling("10s")).aggregate(bid_count=count())


ROW_FORMS: dict[str, QueryFunction] = {
    "q12_event, filter with a lambda": count_after_filter,
    "q12_event, map with a lambda": count_after_map,
}


def measure_flows(
    events: int = EVENTS, row_form_events: int = ROW_FORM_EVENTS, repeats: int = REPEATS
) -> tuple[FlowCost, ...]:
    """Run every query some times over the same bids."""
    vectorised = [
        measure_flow(name, QUERIES[name].function, MemoryTables(events), repeats, VECTORISED_PER_S_LEAST)
        for name in VECTORISED
    ]
    row_forms = [
        measure_flow(name, function, MemoryTables(row_form_events), repeats, ROW_FORM_PER_S_LEAST)
        for name, function in ROW_FORMS.items()
    ]
    return (*vectorised, *row_forms)


def measure_flow(name: str, query: QueryFunction, tables: MemoryTables, repeats: int, per_s_least: float) -> FlowCost:
    """Run one query some times."""
    costs = []
    for _ in range(repeats):
        results = to_memory()
        run = FlowRun(lambda flow: query(flow, tables), results)
        seconds = run.run()
        costs.append(FlowCost(name, run.rows_read, seconds, per_s_least, AnswerTime.of(results.table)))
    return min(costs, key=lambda cost: cost.seconds)
