"""q19, auction top ten: the ten highest bids on every auction, and their places. Of equal ones, the first comes first."""

from __future__ import annotations

from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "channel", "url", "date_time", "extra", "event_number"))
    top = bids.key_by("auction").top(10, by=["-price", "event_number"], rank="rank_number")
    return top.drop("event_number")
