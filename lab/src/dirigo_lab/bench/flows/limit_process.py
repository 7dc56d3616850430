"""The process that `limits` starts: one batch query in turns with the flow, their figures on standard output.

The number of threads of Polars is in the environment; see there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from time import process_time

import pyarrow as pa

from dirigo_lab.bench.flows.flow import VECTORISED_PER_S_LEAST, AnswerTime, measure_flow
from dirigo_lab.bench.flows.limits import LimitCost
from dirigo_lab.bench.flows.memory_source import MemoryTables, bid_batches
from dirigo_lab.nexmark.queries import QUERIES

COLUMNS = {"q7": ("auction", "bidder", "price", "date_time", "extra"), "q12_event": ("bidder", "date_time")}

_SQL = {
    "q7": """
        select bids.* from bids join (
            select epoch_ms(date_time) // 10000 as slot, max(price) as highest from bids group by slot
        ) on epoch_ms(bids.date_time) // 10000 = slot and bids.price = highest
        """,
    "q12_event": """
        select bidder, epoch_ms(date_time) // 10000 * 10000 as window_start, count(*) as bid_count
        from bids group by bidder, window_start
        """,
}


def polars_query(query: str, bids: pa.Table) -> Callable[[], pa.Table]:
    """A function that answers the query; what is prepared here is not measured."""
    import polars as pl

    frame = pl.from_arrow(bids)
    assert isinstance(frame, pl.DataFrame)
    slot = pl.col("date_time").dt.truncate("10s").alias("slot")
    if query == "q7":
        with_slots = frame.lazy().with_columns(slot)
        highest = with_slots.group_by("slot").agg(pl.col("price").max())
        lazy = with_slots.join(highest, on=["slot", "price"]).select(COLUMNS[query])
    else:
        lazy = frame.lazy().group_by("bidder", slot).agg(pl.len().cast(pl.Int64).alias("bid_count"))
    return lambda: lazy.collect().to_arrow()


def duckdb_query(query: str, bids: pa.Table) -> Callable[[], pa.Table]:
    """A function that answers the query from a table of DuckDB's own."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("set threads = 1")
    connection.execute("set timezone = 'UTC'")
    connection.register("given", bids)
    connection.execute("create table bids as select * from given")

    def answer() -> pa.Table:
        table = connection.sql(_SQL[query]).to_arrow_table()
        return table.drop(["window_start"]) if query == "q12_event" else table

    return answer


ENGINES: dict[str, Callable[[str, pa.Table], Callable[[], pa.Table]]] = {"polars": polars_query, "duckdb": duckdb_query}


def measure(engine: str, query: str, events: int, repeats: int) -> LimitCost:
    bids = pa.Table.from_batches(bid_batches(events, COLUMNS[query])).combine_chunks()
    ask = ENGINES[engine](query, bids)
    answer = AnswerTime.of(ask())  # the first time is for warming up
    batch_seconds, flow_seconds = [], []
    for _ in range(repeats):
        batch_seconds.append(_seconds(ask))
        flow = measure_flow(query, QUERIES[query].function, MemoryTables(events), 1, VECTORISED_PER_S_LEAST)
        flow_seconds.append(flow.seconds)
        if flow.answer != answer:
            raise RuntimeError(f"{query}: the flow answers {flow.answer} and {engine} {answer}; one of them is wrong")
    return LimitCost(engine, query, bids.num_rows, min(batch_seconds), min(flow_seconds))


def _seconds(ask: Callable[[], pa.Table]) -> float:
    begin = process_time()
    ask()
    return process_time() - begin


if __name__ == "__main__":
    _, named_engine, named_query, named_events, named_repeats = sys.argv
    found = measure(named_engine, named_query, int(named_events), int(named_repeats))
    sys.stdout.write(json.dumps(asdict(found)))
