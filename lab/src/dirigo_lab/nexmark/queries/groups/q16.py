"""q16, channel statistics: the counts of q15 for every channel and day, and the last minute of the day with a bid."""

from __future__ import annotations

import dirigo as dg
from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.queries.groups.price_ranks import bid_counts, distinct_counts
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "channel", "date_time"))
    time = col("date_time")
    channels = bids.with_columns(day=time.format_time("%Y-%m-%d"), minute=time.format_time("%H:%M")).key_by("channel", "day")
    return channels.aggregate(
        minute=dg.max("minute"), **bid_counts(), **distinct_counts("bidder"), **distinct_counts("auction")
    )
