"""q10, log to files: every bid with its day and its minute, by which files of a log would be kept apart."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "date_time", "extra"))
    time = col("date_time")
    return bids.with_columns(dt=time.format_time("%Y-%m-%d"), hm=time.format_time("%H:%M"))
