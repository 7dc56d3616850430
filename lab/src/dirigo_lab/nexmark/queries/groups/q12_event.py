"""q12_event, q12 in event time: how many bids did each bidder make in every 10 s?"""

from __future__ import annotations

from dirigo import Dataflow, Stream, Tumbling, count
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("bidder", "date_time"))
    return bids.key_by("bidder").window(Tumbling("10s")).aggregate(bid_count=count())
