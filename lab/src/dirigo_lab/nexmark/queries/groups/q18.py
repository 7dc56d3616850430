"""q18, find the last bid: of every bidder on every auction."""

from __future__ import annotations

from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    columns = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")
    bids = flow.source(tables.bids(*columns, "event_number"))
    return bids.key_by("bidder", "auction").top(1, by=["-date_time", "-event_number"]).select(*columns)
