"""q14, calculation: bids in a range of prices in euros, with the kind of their hour and the number of letters c in them."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col, when
from dirigo_lab.nexmark.queries.rows.currency import in_euros
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "date_time", "extra"))
    hour, price = col("date_time").hour(), col("price")
    kind = when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    converted = bids.with_columns(price=in_euros("price"))
    chosen = converted.filter((price > 1_000_000) & (price < 50_000_000))
    return chosen.select(
        "auction",
        "bidder",
        "price",
        bid_time_type=kind,
        date_time="date_time",
        extra="extra",
        c_counts=col("extra").count_of("c"),
    )
