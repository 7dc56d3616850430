"""q1, currency conversion: every bid with its price in euros instead of dollars, in exact decimals."""

from __future__ import annotations

from dirigo import Dataflow, Stream
from dirigo_lab.nexmark.queries.rows.currency import in_euros
from dirigo_lab.nexmark.tables import Tables


def query(flow: Dataflow, tables: Tables) -> Stream:
    bids = flow.source(tables.bids("auction", "bidder", "price", "date_time", "extra"))
    return bids.with_columns(price=in_euros("price"))
