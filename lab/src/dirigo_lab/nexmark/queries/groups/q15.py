"""q15, bidding statistics: per day, how many bids, different bidders and different auctions, in all and by rank of price?"""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.queries.groups.price_ranks import bid_counts, distinct_counts
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "date_time"))
    days = bids.with_columns(day=col("date_time").format_time("%Y-%m-%d")).key_by("day")
    return days.aggregate(**bid_counts(), **distinct_counts("bidder"), **distinct_counts("auction"))
