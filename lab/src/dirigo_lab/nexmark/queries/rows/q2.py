"""q2, selection: the bids on a few chosen auctions, one in 123."""

from __future__ import annotations

from dirigo import Dataflow, Stream, col
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "price"))
    return bids.filter(col("auction") % 123 == 0)
