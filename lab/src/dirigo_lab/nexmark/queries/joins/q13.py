"""q13, bounded side input join: every bid with what a small fixed table says about its auction."""

from __future__ import annotations

import pyarrow as pa

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables

SIDE_INPUT_KEYS = 10_000


def side_input() -> pa.Table:
    """Keys from 0, each with its own number as text."""
    keys = pa.array(range(SIDE_INPUT_KEYS), pa.int64())
    return pa.table({"key": keys, "value": keys.cast(pa.string())})


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "date_time"))
    keyed = bids.with_columns(key=col("auction") % SIDE_INPUT_KEYS)
    return keyed.join_table(side_input(), on="key").drop("key")
