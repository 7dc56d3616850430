"""q9, winning bids: every auction that was won, with the bid that won it.

The highest valid bid wins; among equal ones the earliest, and at the same time the one with the lowest event number.
"""

from __future__ import annotations

from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.queries.joins.valid_bids import valid_bids
from dirigo_lab.nexmark.tables import Tables

AUCTION = ["id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires", "seller", "category", "extra"]
BID = ["auction", "bidder", "price", "date_time", "extra", "event_number"]


def query(flow: Dataflow, tables: Tables) -> Stream:
    offers = valid_bids(flow, tables, AUCTION, BID)
    won = offers.key_by("id").top(1, by=["-bid_price", "bid_date_time", "bid_event_number"])
    bid = {"auction": "bid_auction", "bidder": "bid_bidder", "price": "bid_price"}
    return won.select(*AUCTION, **bid, bid_date_time="bid_date_time", bid_extra="bid_extra")
