"""q21, add channel id: every bid with the number of its channel, known by name or found in the url; others are left out."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col, when
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "channel", "url"))
    channel = col("channel").lower()
    channel_id = (
        when(channel == "apple", "0")
        .when(channel == "google", "1")
        .when(channel == "facebook", "2")
        .when(channel == "baidu", "3")
        .otherwise(col("url").extract("(&|^)channel_id=([^&]*)", 2))
    )
    return bids.with_columns(channel_id=channel_id).drop("url").filter(col("channel_id").is_not_null())
