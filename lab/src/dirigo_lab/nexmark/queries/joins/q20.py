"""q20, expand bid with auction: every bid on an auction of category 10, with all that is known about that auction."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables

AUCTION = ("id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires", "seller", "category", "extra")


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "channel", "url", "date_time", "extra"))
    auctions = flow.source(tables.auctions(*AUCTION)).filter(col("category") == 10)
    return (
        bids.rename(date_time="bid_date_time", extra="bid_extra")
        .join(auctions.rename(date_time="auction_date_time", extra="auction_extra"), on={"auction": "id"})
        .drop("id")
    )
