"""q17, auction statistics: per auction and day, how many bids, in all and by rank of price, and what do they offer?"""

from __future__ import annotations

import dirigo as dg
from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.queries.groups.price_ranks import bid_counts
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "price", "date_time"))
    days = bids.with_columns(day=col("date_time").format_time("%Y-%m-%d")).key_by("auction", "day")
    return days.aggregate(
        **bid_counts(),
        min_price=dg.min("price"),
        max_price=dg.max("price"),
        avg_price=dg.avg("price"),
        sum_price=dg.sum("price"),
    )
