"""What q4, q6 and q9 begin with: every auction together with each bid that came while it was open."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables


def valid_bids(flow: Dataflow, tables: Tables, auction_columns: list[str], bid_columns: list[str]) -> Stream:
    """Auctions with their valid bids: these columns of the auction, and those of the bid with `bid_` before their names."""
    auctions = flow.source(tables.auctions(*dict.fromkeys(["id", "date_time", "expires", *auction_columns])))
    bids = flow.source(tables.bids(*dict.fromkeys(["auction", "date_time", *bid_columns])))
    bids = bids.select(**{f"bid_{column}": column for column in bids.schema.names})
    both = auctions.join(bids, on={"id": "bid_auction"})
    return both.filter(col("bid_date_time").between(col("date_time"), col("expires")))
