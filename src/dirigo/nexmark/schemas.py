"""The columns of Nexmark's three kinds of events: persons, auctions and bids."""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("ms", tz="UTC")

PERSON = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email_address", pa.string()),
        ("credit_card", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("date_time", TIME),
        ("extra", pa.string()),
        ("event_number", pa.int64()),  # the generator's number of the event: it breaks every tie
    ]
)

AUCTION = pa.schema(
    [
        ("id", pa.int64()),
        ("item_name", pa.string()),
        ("description", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("date_time", TIME),
        ("expires", TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
        ("event_number", pa.int64()),
    ]
)

BID = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("date_time", TIME),
        ("extra", pa.string()),
        ("event_number", pa.int64()),
    ]
)
