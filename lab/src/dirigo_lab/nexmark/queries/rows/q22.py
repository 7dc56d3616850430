"""q22, url directories: every bid with the three directories of its url."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "channel", "url"))
    url = col("url")
    return bids.select(
        "auction",
        "bidder",
        "price",
        "channel",
        dir1=url.split_part("/", 3),
        dir2=url.split_part("/", 4),
        dir3=url.split_part("/", 5),
    )
