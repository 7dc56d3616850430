"""q4, average price for a category: what do its auctions bring in the end, on average?

An auction brings its highest valid bid. One without a valid bid does not count.
"""

from __future__ import annotations

import dirigo as dg
from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.queries.joins.valid_bids import valid_bids
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    offers = valid_bids(flow, tables, auction_columns=["category"], bid_columns=["price"])
    closed = offers.key_by("id", "category").aggregate(price=dg.max("bid_price"))
    return closed.key_by("category").aggregate(final=dg.avg("price")).rename(category="id")
