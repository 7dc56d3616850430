"""q7, highest bid: the bids with the highest price of every 10 s. If several share that price, all of them."""

from __future__ import annotations

from dirigo import Dataflow, Stream, Tumbling
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "date_time", "extra"))
    return bids.window(Tumbling("10s")).top(1, by="-price", ties=True)
