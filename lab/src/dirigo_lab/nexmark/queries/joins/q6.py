"""q6, average selling price by seller: what did each sold auction and the up to ten that its seller sold before it bring?

One row for every auction that was sold, at the price of its winning bid (see q9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dirigo import Dataflow, Group, Stream
from dirigo_lab.nexmark.queries.joins.valid_bids import valid_bids
from dirigo_lab.nexmark.tables import Tables

AUCTIONS_AVERAGED = 11


def query(flow: Dataflow, tables: Tables) -> Stream:
    offers = valid_bids(flow, tables, auction_columns=["seller"], bid_columns=["price", "event_number"])
    sold = offers.key_by("id").top(1, by=["-bid_price", "bid_date_time", "bid_event_number"])
    sales = sold.select("seller", "bid_price", "bid_date_time", "bid_event_number")
    return sales.key_by("seller").apply(moving_average, {"seller": int, "avg_price": float})


def moving_average(sales: Group) -> Iterator[dict[str, Any]]:
    """The average over the latest sales, after each sale of one seller. A price that is null does not count."""
    in_order = sorted(sales.rows, key=lambda sale: (sale.bid_date_time, sale.bid_event_number))
    prices = [sale.bid_price for sale in in_order]
    for end in range(1, len(prices) + 1):
        latest = [price for price in prices[max(end - AUCTIONS_AVERAGED, 0) : end] if price is not None]
        yield {"seller": sales.key["seller"], "avg_price": sum(latest) / len(latest) if latest else None}
